"""What all vector code of warp-level products shares: the loop over warps, and the columns of B in the order of C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector

AHEAD = 4  # warps between a prefetch and its use
Table = list[list[list[int]]]


def prefetch(v: VectorBuilder, p: Any, write: bool) -> None:
    """Ask for a cache line; memory is the bound of large batches."""
    flags = [ir.Constant(I32, n) for n in (int(write), 3, 1)]
    kind = ir.FunctionType(ir.VoidType(), [p.type, I32, I32, I32])
    v.b.call(cgutils.get_or_insert_function(v.b.module, kind, "llvm.prefetch.p0"), [p, *flags])


def each_warp(
    v: VectorBuilder,
    count: Any,
    arrays: Sequence[Any],
    strides: Sequence[Any],
    registers: Sequence[int],
    body: Callable[[list[Any]], Any],
    doubt: Any,
) -> Any:
    """Emits body(addresses of a warp's images), an i1 that says "doubtful", `count` times; returns how many were.

    arrays: addresses of the first warp's images, those of D last; strides: bytes; doubt: one byte a warp.
    """
    b = v.b
    found = cgutils.alloca_once_value(b, v.int(0))
    with cgutils.for_range(b, count) as loop:
        pointers = [v.at(q, b.mul(loop.index, n)) for q, n in zip(arrays, strides, strict=True)]
        for n, (q, size) in enumerate(zip(pointers, registers, strict=True)):
            for line in range(0, 128 * size, 64):
                prefetch(v, v.at(q, AHEAD * 128 * size + line), n == len(pointers) - 1)
        bad = body(pointers)
        v.store(b.zext(bad, I8), v.at(doubt, loop.index))
        b.store(b.add(b.load(found), b.zext(bad, I64)), found)
    return b.load(found)


def warps(
    v: VectorBuilder, kinds: Sequence[Any], args: Sequence[Any]
) -> tuple[list[Any], list[Any], Any, Any, list[Any]]:
    """(arrays, strides in bytes, doubt, count, further numbers) for `each_warp`, from arguments that come as arrays,
    doubt, strides in words, first, last, numbers.

    doubt may be None where there is one warp.
    """
    b = v.b
    size = next(n for n, kind in enumerate(kinds) if not isinstance(kind, types.Array) or kind.dtype != types.uint32)
    none = isinstance(kinds[size], types.NoneType)
    doubt = cgutils.alloca_once(b, I8) if none else v.pointer(kinds[size], args[size])
    strides = [b.shl(n, v.int(2)) for n in args[size + 1 : 2 * size + 1]]
    first, last, *numbers = args[2 * size + 1 :]
    arrays = [v.at(v.pointer(k, x), b.mul(first, n)) for k, x, n in zip(kinds[:size], args, strides, strict=False)]
    return arrays, strides, v.at(doubt, first), b.sub(last, first), numbers


def columns(v: VectorBuilder, p: Any, table: Table) -> list[Any]:
    """Vectors of sixteen words of the image at p: vector q holds in its 128-bit lane u the words table[q][u]."""
    sources = []
    for u in range(4):
        places = [place for row in table for place in row[u]]
        first, size = min(places), max(places) - min(places) + 1
        sources.append((first, v.load(p, vector(I32, size), 4, 4 * first)))
    out = []
    for n in range(0, len(table), 4):
        lanes = [
            v.shuffle(x, x, [place - first for row in table[n : n + 4] for place in row[u]])
            for u, (first, x) in enumerate(sources)
        ]
        out += _exchanged(v, lanes)
    return out


def _exchanged(v: VectorBuilder, rows: list[Any]) -> list[Any]:
    """The 4 x 4 matrix of 128-bit lanes, transposed."""

    def lanes(x: Any, y: Any, chosen: list[int]) -> Any:
        return v.shuffle(x, y, [4 * n + i for n in chosen for i in range(4)])

    out = []
    for half in ([0, 4, 1, 5], [2, 6, 3, 7]):
        x, y = lanes(rows[0], rows[1], half), lanes(rows[2], rows[3], half)
        out += [lanes(x, y, [0, 1, 4, 5]), lanes(x, y, [2, 3, 6, 7])]
    return out
