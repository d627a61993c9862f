"""A warp's slice of a warpgroup product on every kind of processor, against the exact oracle.

This file is also a program: what it prints is what a process for another processor has found.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from llvmlite import ir

from nbtc.compiler.machine_code import native
from nbtc.formats.table import FORMATS
from nbtc.kernels.slices.slice_operands import bytes_of_b
from nbtc.kernels.slices.slice_product import slice_function
from nbtc.kernels.slices.slice_shape import COLUMNS, LINE, ROWS, UNITS, SliceShape
from nbtc.testing.cases import Case
from nbtc.testing.hosts import HOSTS, OTHERS
from nbtc.testing.strategies import operands, strategies

UNIT, TILES = 16, 3
# formats of A, B and accumulators; A at addresses, B by rows, signs of A and of B turned, sparse
SHAPES = [
    ("e4m3", "e4m3", "f32", (True, False, False, False)),
    ("e5m2", "e4m3", "f16", (True, False, True, True)),
    ("e4m3", "e5m2", "f32", (False, False, False, True)),
    ("f16", "f16", "f32", (True, True, True, False)),
    ("f16", "f16", "f16", (False, False, False, False)),
    ("e4m3", "e5m2", "f32", (True, False, False, True, True)),
    ("e5m2", "e5m2", "f16", (False, False, False, False, True)),
]
NAN_BESIDE_LARGEST = "a NaN in the second tile of B, all of A the largest number"
ORDINARY = ("normal", "cancellation", "alignment_edge")  # of which no tile may need the fallback


def shape_of(a: str, b: str, acc: str, flags: tuple[bool, ...]) -> SliceShape:
    """The shape with the arithmetic of sm_90's warpgroup unit."""
    row = Case("sm_90", "wgmma", a, b, acc, 8 * LINE // FORMATS[a].bits).row
    f16_acc = acc == "f16"
    short = not f16_acc and row.out == "rz14"
    return SliceShape(
        FORMATS[a], FORMATS[b], f16_acc, row.fraction, row.floor16 if f16_acc else row.floor32, short, *flags
    )


def compiled(shape: SliceShape) -> tuple[Any, Any]:
    """(what keeps the code alive, the function that decodes B and the one that finds it decoded)."""
    module = ir.Module()
    module.triple = native.target()[0]
    both = [slice_function(module, shape, decodes) for decodes in (True, False)]
    for f in both:
        f.linkage = "external"
    code = native.load(native.Native(native.compile_text(str(module)), {}))
    p = ctypes.c_void_p
    kind = ctypes.CFUNCTYPE(ctypes.c_uint64, p, p, p, p, p, ctypes.c_int64, ctypes.c_bool)
    return code, [kind(code.address(f.name)) for f in both]


def aligned(x: np.ndarray) -> np.ndarray:
    """A copy that begins at a multiple of 64 bytes, as images do."""
    buffer = np.zeros(x.nbytes + 64, np.uint8)
    first = -buffer.ctypes.data % 64
    out = buffer[first : first + x.nbytes].view(x.dtype).reshape(x.shape)
    out[...] = x
    return out


def image_of(matrix: np.ndarray) -> np.ndarray:
    """A matrix of sixteen rows of words to registers: of each eight words those of rows g, then of rows g + 8."""
    x = matrix.reshape(2, 8, -1, 4)  # half, g, group of four words, t
    return aligned(x.transpose(2, 0, 1, 3).reshape(-1, 32))


def matrix_of(image: np.ndarray) -> np.ndarray:
    """The inverse of `image_of`."""
    return image.reshape(-1, 2, 8, 4).transpose(1, 2, 0, 3).reshape(ROWS, -1)


def accumulators(c: np.ndarray, f16_acc: bool) -> np.ndarray:
    """The image of an accumulator: registers of f32 hold every other column, of f16 two columns."""
    if f16_acc:
        return image_of(np.ascontiguousarray(c.astype(np.uint16)).view(np.uint32))
    x = c.astype(np.uint32).reshape(2, 8, -1, 4, 2)  # half, g, tile, t, side
    return aligned(x.transpose(2, 0, 4, 1, 3).reshape(-1, 32))


def results(image: np.ndarray, f16_acc: bool) -> np.ndarray:
    """The inverse of `accumulators`."""
    if f16_acc:
        return np.ascontiguousarray(matrix_of(image)).view(np.uint16)
    return image.reshape(-1, 2, 2, 8, 4).transpose(1, 3, 0, 4, 2).reshape(ROWS, -1)


def addresses(shape: SliceShape, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where the units of A and of B lie: A row by row, B column by column, or in rows of a tile's columns."""
    rows = [(8 * (q % 2) + r) * LINE + UNIT * (q // 2) for q in range(4) for r in range(8)]
    if shape.by_rows:
        units = [UNIT * (n * UNITS + k) for n in range(TILES) for k in range(UNITS)]
    else:
        size, both = LINE * shape.lines, range(LINE * shape.lines // UNIT)
        units = [(COLUMNS * n + r) * size + UNIT * u for n in range(TILES) for u in both for r in range(COLUMNS)]
    return aligned(a.ctypes.data + np.array(rows, np.int64)), aligned(b.ctypes.data + np.array(units, np.int64))


def metadata(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Indices of the stored elements of each row among four of B, a pair two different ones; their image."""
    indices = rng.permuted(np.tile(np.arange(4), (ROWS, LINE // 2, 1)), axis=2)[..., :2].reshape(ROWS, LINE)
    image = np.zeros((8, 4), np.uint32)  # lanes: of rows g and g + 8 the first sixteen elements, then the others
    for row, k in np.ndindex(indices.shape):
        image[row % 8, 2 * (k // 16) + row // 8] |= np.uint32(indices[row, k]) << np.uint32(2 * (k % 16))
    return indices, aligned(image)


def oracle(case: Case, a: np.ndarray, b: np.ndarray, c: np.ndarray, indices: np.ndarray | None) -> np.ndarray:
    """What is right: of sparse products row by row, of the elements of B that the row's indices choose."""
    if indices is None:
        return case.oracle().matrix(a, b, c)
    first = 4 * (np.arange(a.shape[1]) // 2)
    rows = [case.oracle().matrix(a[r : r + 1], b[first + indices[r]], c[r : r + 1]) for r in range(ROWS)]
    return np.concatenate(rows)


def compare(shape: SliceShape, both: list[Any], strategy: str, keep: bool) -> tuple[int, int]:
    """(tiles that needed the fallback, outputs that are wrong), of two warps with the same B: one finds it decoded."""
    a_format, b_format = shape.a, shape.b
    acc = FORMATS["f16" if shape.f16_acc else "f32"]
    case = Case("sm_90", "wgmma", a_format.name, b_format.name, acc.name, shape.depth)
    rng, sizes = np.random.default_rng(len(strategy)), (ROWS, COLUMNS * TILES, shape.depth)
    a, b, c = operands(rng, "normal" if strategy == NAN_BESIDE_LARGEST else strategy, sizes, a_format, b_format, acc)
    if strategy == NAN_BESIDE_LARGEST:
        a[...] = a_format.special - 1
        b[5, COLUMNS + 3] = (1 << b_format.bits - 1) - 1
    indices, meta = metadata(rng) if shape.sparse else (None, aligned(np.zeros(32, np.uint32)))
    if shape.sparse:  # half of what rows and columns meet comes from other columns
        b = rng.permuted(np.concatenate([b, b[:, ::-1]]), axis=0)
    word = np.dtype(f"u{a_format.bits // 8}")
    left = aligned(np.ascontiguousarray(a.astype(word)).view(np.uint32))
    if shape.by_rows:
        right = b.reshape(shape.depth, TILES, COLUMNS).transpose(1, 0, 2)
    else:
        right = b.T
    right = aligned(np.ascontiguousarray(right.astype(word)).view(np.uint8))
    source, places = addresses(shape, left, right)
    if not shape.a_rows:
        source = image_of(left)
    decoded = aligned(np.full(bytes_of_b(shape, TILES), 0xA5, np.uint8))
    first, d = (accumulators(c, shape.f16_acc) for _ in range(2))
    kept = d.copy()
    decodes, finds = both
    given = meta.ctypes.data, first.ctypes.data, TILES, keep
    also = decodes(source.ctypes.data, places.ctypes.data, decoded.ctypes.data, *given)
    marked = finds(source.ctypes.data, None, decoded.ctypes.data, given[0], d.ctypes.data, TILES, keep)
    assert also == marked and (first == d).all()
    sign = np.uint64(1 << (a_format.bits - 1))
    a, b = (x ^ sign if turned else x for x, turned in ((a, shape.minus_a), (b, shape.minus_b)))
    want = oracle(case, a, b, c if keep else np.zeros_like(c), indices)
    found, before = results(d, shape.f16_acc), results(kept, shape.f16_acc)
    bad = [bool(marked >> n & 1) for n in range(TILES)]
    wanted = np.where(np.repeat(bad, COLUMNS), before, want.astype(found.dtype))
    return sum(bad), int((found != wanted).sum())


def check(shapes: list[tuple[Any, ...]]) -> None:
    """All strategies; prints what it has done."""
    for a, b, acc, flags in shapes:
        shape = shape_of(a, b, acc, flags)
        code, both = compiled(shape)
        for keep in (True, False):
            for strategy in (*strategies(shape.a), NAN_BESIDE_LARGEST):
                marked, wrong = compare(shape, both, strategy, keep)
                assert wrong == 0, (a, b, acc, strategy, keep, wrong)
                assert not (marked and strategy in ORDINARY), (a, b, acc, strategy, keep, marked)
        del code
    print("right")


@pytest.mark.parametrize("shape", SHAPES, ids=["-".join(s[:3]) + "-sparse" * (len(s[3]) > 4) for s in SHAPES])
def test_every_strategy(shape: tuple[Any, ...]) -> None:
    """What is not reported is right to the bit; what is reported is left as it was."""
    check([shape])


@pytest.mark.parametrize("host", OTHERS)
def test_plainer_processors(host: str) -> None:
    """The same in a process for another processor, with half of the shapes."""
    environment = os.environ | HOSTS[host]
    run = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert run.stdout.split() == ["right"], run.stderr


if __name__ == "__main__":
    check(SHAPES[1:6:2])
