"""Where the addresses of a whole warp lie, in vectors: what `known_accesses` asks before it goes through the lanes.

Each function is here twice: as Numba would compile it, which says what it means, and as instructions of vectors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I64, vector
from nbtc.compiler.integers.integer_expressions import Primitives
from nbtc.compiler.jit import jit
from nbtc.executor.watch.words import GRANULE_BYTES, WORD, word

LANES = 32
_ROW = vector(I64, LANES)


@jit
def in_a_row(addresses, step):
    """Zero if each lane's address is the one before it and `step`."""
    apart, first = 0, word(addresses)
    for lane in range(LANES):
        apart |= word(addresses + WORD * lane) ^ (first + step * lane)
    return apart


@jit
def each_whole(addresses, first, most):
    """Negative unless each lane's address is a granule's, from `first` on and by `most` at most, and not that of the
    lane before."""
    wrong = 0
    for lane in range(LANES):
        address = word(addresses + WORD * lane)
        at = address - first
        wrong |= at | (most - at) | -(at & (GRANULE_BYTES - 1))
        if lane and address == word(addresses + WORD * (lane - 1)):
            wrong = -1
    return wrong


@jit(inline=True)
def fetch(address):
    """Let what is at an address come from memory, which is soon read and written: Numba's code leaves that to the
    processor."""
    return address


def _loaded(b: ir.IRBuilder, addresses: Any) -> Any:
    return b.load(b.inttoptr(addresses, _ROW.as_pointer()), align=WORD)


def _all(b: ir.IRBuilder, x: Any) -> Any:
    """A word in all lanes."""
    one = b.insert_element(ir.Constant(_ROW, ir.Undefined), x, ir.IntType(32)(0))
    return b.shuffle_vector(one, one, ir.Constant(vector(ir.IntType(32), LANES), [0] * LANES))


def _joined(b: ir.IRBuilder, x: Any) -> Any:
    """The lanes' words, or'ed."""
    half = LANES // 2
    while half:
        low, high = (ir.Constant(vector(ir.IntType(32), half), [*range(at, at + half)]) for at in (0, half))
        x = b.or_(b.shuffle_vector(x, x, low), b.shuffle_vector(x, x, high))
        half //= 2
    return b.extract_element(x, ir.IntType(32)(0))


def _emit_in_a_row(b: ir.IRBuilder, addresses: Any, step: Any) -> Any:
    x = _loaded(b, addresses)
    first = _all(b, b.extract_element(x, ir.IntType(32)(0)))
    there = b.add(first, b.mul(_all(b, step), ir.Constant(_ROW, [*range(LANES)])))
    return _joined(b, b.xor(x, there))


def _emit_each_whole(b: ir.IRBuilder, addresses: Any, first: Any, most: Any) -> Any:
    x = _loaded(b, addresses)
    at = b.sub(x, _all(b, first))
    before = ir.Constant(vector(ir.IntType(32), LANES), [1, *range(LANES - 1)])  # of the first lane the one after
    same = b.sext(b.icmp_signed("==", x, b.shuffle_vector(x, x, before)), _ROW)
    within = b.neg(b.and_(at, ir.Constant(_ROW, [GRANULE_BYTES - 1] * LANES)))
    return _joined(b, b.or_(b.or_(at, b.sub(_all(b, most), at)), b.or_(within, same)))


def _emit_fetch(b: ir.IRBuilder, address: Any) -> Any:
    pointer, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    name = "llvm.prefetch.p0"
    kind = ir.FunctionType(ir.VoidType(), [pointer, i32, i32, i32])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    to_write, to_all_caches, data = (ir.Constant(i32, x) for x in (1, 3, 1))
    b.call(function, [b.inttoptr(address, pointer), to_write, to_all_caches, data])
    return address


PRIMITIVES: Primitives = {in_a_row: _emit_in_a_row, each_whole: _emit_each_whole, fetch: _emit_fetch}
