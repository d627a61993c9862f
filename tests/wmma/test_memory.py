"""Memory of WMMA tiles: matrices and blocks of them as they lie, offsets of any integer type, messages in elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc import ptx
from nbtc import wmma as w
from nbtc.errors import AlignmentError, BoundsError, FormatError, NbtcError, OptionError, RangeError, ShapeError

F32, F16 = nbtc.f32, nbtc.f16


def accumulator(fill: float = 0.0, **more: Any) -> w.fragment:
    c = w.fragment(w.accumulator, 16, 16, 16, F32, **more)
    w.fill_fragment(c, fill)
    return c


def counted() -> w.fragment:
    c = accumulator()
    w.load_matrix_sync(c, np.arange(256, dtype=np.float32), 16, w.mem_row_major)
    return c


TILE = np.arange(256, dtype=np.float32).reshape(16, 16)


def test_store_into_a_block_of_a_matrix() -> None:
    d = np.zeros((64, 256), np.float32)
    w.store_matrix_sync(d[16:32, 32:48], counted(), 256, w.mem_row_major)
    assert (d[16:32, 32:48] == TILE).all() and np.count_nonzero(d) == 255
    w.store_matrix_sync(d, counted(), 256, w.mem_col_major, offset=48 * 256 - 16 * 256 + 64)
    assert (d[32:48, 64:80] == TILE.T).all() and np.count_nonzero(d) == 510
    flat = np.zeros(64 * 256, np.float32)
    w.store_matrix_sync(flat, counted(), 256, w.mem_row_major, offset=16 * 256 + 32)
    assert (flat.reshape(64, 256)[16:32, 32:48] == TILE).all()


def test_columns_may_be_the_lines() -> None:
    d = np.zeros((64, 32), np.float32, order="F")
    w.store_matrix_sync(d[16:32, 16:32], counted(), 64, w.mem_col_major)
    assert (d[16:32, 16:32] == TILE).all() and np.count_nonzero(d) == 255


def test_load_from_blocks_of_a_batch() -> None:
    x = np.arange(3 * 64 * 64, dtype=np.float32).reshape(3, 64, 64) % 1021
    c = w.fragment(w.accumulator, 16, 16, 16, F32, batch=(3,))
    w.load_matrix_sync(c, x[:, 32:48, 16:32], 64, w.mem_row_major)
    out = np.zeros((3, 16, 16), np.float32)
    w.store_matrix_sync(out, c, 16, w.mem_row_major)
    assert (out == x[:, 32:48, 16:32]).all()
    a = w.fragment(w.matrix_a, 8, 8, 32, w.experimental.precision.s4, w.row_major)
    numbers = (np.arange(8 * 64).reshape(8, 64) % 16 - 8).astype(np.int8)
    words = nbtc.pack(numbers, nbtc.s4)
    w.load_matrix_sync(a, words[:, 4:], 64)
    b = w.fragment(w.matrix_a, 8, 8, 32, w.experimental.precision.s4, w.row_major)
    w.load_matrix_sync(b, nbtc.pack(numbers[:, 32:], nbtc.s4).reshape(-1), 32)
    assert (a.x == b.x).all()


def test_reading_takes_any_stride() -> None:
    x = np.arange(512, dtype=np.float32)
    c = accumulator()
    w.load_matrix_sync(c, x[::2], 16, w.mem_row_major)
    assert c.x[0, 0] == 0 and c.x[1, 0] == 2


BLOCK = np.zeros((64, 64), np.float32)
ROWS = w.mem_row_major


def load(mem: Any, *more: Any) -> None:
    w.load_matrix_sync(accumulator(), mem, *more)


def store(mem: Any, ldm: Any, offset: Any = 0) -> None:
    w.store_matrix_sync(mem, accumulator(1), ldm, ROWS, offset)


ADVICE = "offset= and ldm="
REFUSED: list[tuple[type[NbtcError], str, Callable[[], Any]]] = [
    (ShapeError, "ldm=64", lambda: store(BLOCK[:16, :16], 16)),
    (BoundsError, "lines of 16 elements", lambda: store(BLOCK[:16, :8], 64)),
    (BoundsError, "lines", lambda: store(BLOCK[:8, :16], 64)),
    (BoundsError, "lines", lambda: store(BLOCK[:32, :16], 64, 8)),
    (ShapeError, ADVICE, lambda: store(BLOCK.reshape(-1)[::2], 16)),
    (ShapeError, ADVICE, lambda: store(BLOCK[::2, ::2], 64)),
    (ShapeError, ADVICE, lambda: store(BLOCK[::-1], 64)),
    (ShapeError, ADVICE, lambda: store(BLOCK.reshape(4, 4, 256), 64)),
    (BoundsError, "which leave the memory's 4096", lambda: store(BLOCK, 64, 3520)),
    (AlignmentError, "element 4, not a multiple of 8 elements", lambda: load(BLOCK, 64, ROWS, 4)),
    (BoundsError, "4096", lambda: load(BLOCK, 64, ROWS, np.uint16(65528))),
    (RangeError, "less than", lambda: load(BLOCK, np.int8(8), ROWS)),
]


@pytest.mark.parametrize("n", range(len(REFUSED)))
def test_refused(n: int) -> None:
    kind, says, call = REFUSED[n]
    with pytest.raises(NbtcError, match=says) as caught:
        call()
    assert type(caught.value) is kind and not BLOCK.any()
    text = str(caught.value)
    assert "byte" not in text and "ascontiguousarray" not in text and "reshape" not in text and ".copy()" not in text


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16, np.uint32, np.int64, np.uint64])
def test_small_integers_do_not_wrap(kind: type[np.integer[Any]]) -> None:
    """Offsets and strides whose bytes exceed their type: 120 elements of 4 bytes in an int8, 4096 of 16 in a uint16."""
    offset = {1: 120, 2: 4096 * 4 - 64}.get(np.dtype(kind).itemsize, 2**17)
    ldm = kind(64)
    c, mem = counted(), np.zeros(offset + 16 * 64, np.float32)
    w.store_matrix_sync(mem, c, ldm, w.mem_row_major, offset=kind(offset))  # type: ignore[arg-type]
    assert (mem[offset:].reshape(16, 64)[:, :16] == TILE).all() and np.count_nonzero(mem) == 255
    back = accumulator()
    w.load_matrix_sync(back, mem, ldm, w.mem_row_major, offset=kind(offset))  # type: ignore[arg-type]
    assert (back.x == c.x).all()
    raw = np.zeros(4 * 64 * 16 + 96, np.uint8)
    images = np.array(c.x.T.view(np.uint32))
    ptx.wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f32", raw, images, kind(96), ldm)  # type: ignore[arg-type]
    assert (raw[96:].view(np.float32).reshape(16, 64)[:, :16] == TILE).all()
    load = "wmma.load.c.sync.aligned.row.m16n16k16.f32"
    assert (ptx.wmma_load(load, raw, kind(96), ldm) == images).all()  # type: ignore[arg-type]


def test_sub_byte_tiles_have_one_layout() -> None:
    s4, b1 = w.experimental.precision.s4, w.experimental.precision.b1
    for kind, k in ((s4, 32), (b1, 128)):
        assert w.fragment(w.matrix_a, 8, 8, k, kind, w.row_major).num_elements == k // 4
        assert w.fragment(w.matrix_b, 8, 8, k, kind, w.col_major).num_elements == k // 4
        with pytest.raises(OptionError, match="row_major only"):
            w.fragment(w.matrix_a, 8, 8, k, kind, w.col_major)
        with pytest.raises(OptionError, match="col_major only"):
            w.fragment(w.matrix_b, 8, 8, k, kind, w.row_major)


def test_suggestions_are_of_the_same_use() -> None:
    with pytest.raises(
        OptionError, match=r"no accumulator fragment of shape m16n16k16 with f64.*f16, f32, s32"
    ) as caught:
        w.fragment(w.accumulator, 16, 16, 16, float)
    assert "matrix_a" not in str(caught.value) and "m8n8k4" in str(caught.value)
    with pytest.raises(OptionError, match=r"pass layout=wmma.mem_row_major or layout=wmma.mem_col_major"):
        w.load_matrix_sync(accumulator(), BLOCK, 16)


WRONG: list[tuple[type[NbtcError], Callable[[], Any]]] = [
    (FormatError, lambda: w.load_matrix_sync(3, BLOCK, 16)),  # type: ignore[arg-type]
    (FormatError, lambda: w.store_matrix_sync(BLOCK, None, 16, w.mem_row_major)),  # type: ignore[arg-type]
    (FormatError, lambda: w.fill_fragment(BLOCK, 1)),  # type: ignore[arg-type]
    (OptionError, lambda: w.fragment(w.matrix_a, 16.0, 16, 16, F16, w.row_major)),  # type: ignore[arg-type]
    (OptionError, lambda: w.fragment(w.matrix_a, [16], 16, 16, F16, w.row_major)),  # type: ignore[arg-type]
    (OptionError, lambda: w.fragment(w.matrix_a, 10**5000, 16, 16, F16, w.row_major)),
    (OptionError, lambda: accumulator(batch=-1)),
    (OptionError, lambda: accumulator(batch=(2, -1))),
    (OptionError, lambda: accumulator(batch="3")),
    (OptionError, lambda: accumulator(batch=1.5)),
    (OptionError, lambda: w.fragment([], 16, 16, 16, F16)),  # type: ignore[arg-type]
    (OptionError, lambda: w.fragment(w.matrix_a, 16, 16, 16, F16, [])),  # type: ignore[arg-type]
    (FormatError, lambda: w.fragment(w.accumulator, 16, 16, 16, [])),
    (FormatError, lambda: w.fragment(w.accumulator, 16, 16, 16, {})),
    (OptionError, lambda: w.load_matrix_sync(accumulator(), BLOCK, 16, [])),  # type: ignore[arg-type]
    (FormatError, lambda: w.load_matrix_sync(accumulator(), np.array([None] * 256), 16, w.mem_row_major)),
    (FormatError, lambda: w.load_matrix_sync(accumulator(), BLOCK, "16", w.mem_row_major)),  # type: ignore[arg-type]
    (FormatError, lambda: w.load_matrix_sync(accumulator(), BLOCK, 16, w.mem_row_major, 0.5)),  # type: ignore[arg-type]
    (NbtcError, lambda: w.load_matrix_sync(accumulator(), BLOCK, 10**5000, w.mem_row_major)),
    (NbtcError, lambda: w.load_matrix_sync(accumulator(), BLOCK, 64, w.mem_row_major, 10**5000)),
    (FormatError, lambda: w.fill_fragment(accumulator(), "one")),
    (FormatError, lambda: w.fill_fragment(accumulator(), object())),
    (FormatError, lambda: w.fill_fragment(accumulator(), [[1], [1, 2]])),
    (FormatError, lambda: w.fill_fragment(accumulator(), 1j)),
    (ShapeError, lambda: w.fill_fragment(accumulator(), np.zeros(31))),
    (RangeError, lambda: w.fill_fragment(w.fragment(w.accumulator, 16, 16, 16, "s32"), 10**400)),
    (RangeError, lambda: w.fill_fragment(w.fragment(w.matrix_a, 16, 16, 16, "u8", w.row_major), -1)),
]


@pytest.mark.parametrize("n", range(len(WRONG)))
def test_wrong_kinds_raise_our_errors(n: int) -> None:
    kind, call = WRONG[n]
    with pytest.raises(kind) as caught:
        call()
    assert 40 <= len(str(caught.value)) < 1000


def test_huge_numbers_fill() -> None:
    c = accumulator(1)
    for huge, want in ((10**400, np.inf), (-(10**400), -np.inf), (1e300, np.inf)):
        w.fill_fragment(c, huge)
        assert (c.x == want).all()
    s = w.fragment(w.matrix_a, 8, 8, 32, w.experimental.precision.s4, w.row_major)
    w.fill_fragment(s, 10**400 + 5)
    assert (s.x.view(np.uint32) == 0x55555555).all()
    u = w.fragment(w.matrix_a, 8, 8, 32, w.experimental.precision.u4, w.row_major)
    w.fill_fragment(u, np.arange(32, dtype=np.int8))
    assert u.x.shape == (1, 32) and u.x[0, 19] == 0x33333333
