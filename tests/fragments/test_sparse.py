"""Sparsity metadata against the table of the PTX manual written out a second time, and dense <-> stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc import sparse
from nbtc.errors import FormatError, MetadataError, ParseError, ShapeError
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.fragments import sparse as inner
from nbtc.isa import parse

ROWS = tuple(
    r
    for r in parse.rows(family="mma.sp") + parse.rows(family="wgmma.mma_async.sp")
    if r.executable and r.shape[1] == 8 and not r.saturate
)
CASES = tuple((r, s) for r in ROWS for s in r.selectors)
F16 = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"

# k and bits of A: lane of the quad, and nibble of its word, of (chunk c, upper half of the rows h, selector f)
PLACES = {
    (16, 16): lambda c, h, f: (f, c + 4 * h),
    (32, 16): lambda c, h, f: (2 * f + (c >> 2), (c & 3) + 4 * h),
    (8, 32): lambda c, h, f: (f, c + 4 * h),
    (16, 32): lambda c, h, f: (2 * f + (c >> 2), (c & 3) + 4 * h),
    (32, 8): lambda c, h, f: (2 * f + h, c),
    (64, 8): lambda c, h, f: (h + 2 * (c >> 3), c & 7),
    (64, 4): lambda c, h, f: (2 * f + h, c),
    (128, 4): lambda c, h, f: (h + 2 * (c >> 3), c & 7),
}


@pytest.mark.parametrize(("row", "selector"), CASES, ids=str)
def test_places(row, selector):
    lane, shift = inner.places(row, selector)
    rule = PLACES[row.shape[2], row.a.width]
    for r in range(row.shape[0]):
        for c in range(inner.chunks(row)):
            t, nibble = rule(c, r // 8 % 2, selector)
            assert (lane[r, c], shift[r, c]) == (32 * (r // 16) + 4 * (r % 8) + t, 4 * nibble)
    assert len(set(zip(lane.ravel().tolist(), shift.ravel().tolist(), strict=True))) == lane.size


def expand_by_hand(row, stored, nibbles):
    """Dense A from stored bits and nibbles, one element at a time."""
    m, _, k = row.shape
    dense = np.zeros((m, k), stored.dtype)
    for r in range(m):
        for c in range(inner.chunks(row)):
            nibble = int(nibbles[r, c])
            index = (nibble & 3, nibble >> 2)
            if row.a.width == 32:
                dense[r, 2 * c + (nibble == 14)] = stored[r, c]
            elif row.a.width == 4:
                for j in (0, 1):
                    for e in (0, 1):
                        dense[r, 8 * c + 2 * index[j] + e] = stored[r, 4 * c + 2 * j + e]
            else:
                for j in (0, 1):
                    dense[r, 4 * c + index[j]] = stored[r, 2 * c + j]
    return dense


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(CASES), seed=st.integers(0, 2**32))
def test_expand_and_compress(case, seed):
    row, selector = case
    rng = np.random.default_rng(seed)
    fmt = row.a.format
    stored = rng.integers(0, 1 << fmt.bits, (row.a.rows, row.a.cols)).astype(fmt.bits_dtype)
    stored[rng.random(stored.shape) < 0.2] = 0
    nibbles = rng.choice(np.flatnonzero(inner.legal_nibbles(row)), (row.a.rows, inner.chunks(row))).astype(np.uint8)
    meta = inner.from_nibbles(row, nibbles, selector)
    assert meta.shape == (row.a.lanes,)
    assert (inner.metadata_nibbles(row, meta, selector) == nibbles).all()
    meta = meta | unused_bits(row, selector, rng)
    dense = sparse.expand(from_bits(stored, fmt), meta, row, selector)
    assert (to_bits(dense, fmt) == expand_by_hand(row, stored, nibbles)).all()
    again, legal = sparse.compress(dense, row, selector)
    inner.check_legal(row, legal, selector)
    inner.check_legal(ordered(row), legal, selector)
    assert (to_bits(sparse.expand(again, legal, row, selector), fmt) == to_bits(dense, fmt)).all()


def unused_bits(row, selector, rng):
    """Random bits in the registers of lanes that supply no metadata: they must not matter."""
    words = rng.integers(0, 2**32, row.a.lanes, dtype=np.uint32)
    words[np.unique(inner.places(row, selector)[0])] = 0
    return words


def ordered(row):
    return parse.row(row.mnemonic.replace("mma.sp.", "mma.sp::ordered_metadata.")) if row.family == "mma.sp" else row


def test_worked_example():
    """Row 1 with non-zeros at columns {0, 3}, {5, 7}, {8, 9}, {14, 15}: lane 5 holds 0xE4DC."""
    dense = np.zeros((16, 16), np.float16)
    dense[1, [0, 3, 5, 7, 8, 9, 14, 15]] = np.arange(1, 9)
    stored, meta = sparse.compress(dense, F16, selector=1)
    assert hex(meta[5] & 0xFFFF) == "0xe4dc" and stored[1].tolist() == list(range(1, 9))
    assert not meta[np.arange(32) % 4 != 1].any()


def test_batches_and_warpgroups():
    row = parse.row("wgmma.mma_async.sp.sync.aligned.m64n8k64.f32.e4m3.e5m2")
    dense = np.zeros((2, 3, 64, 64), row.a.format.dtype)
    dense[..., ::4] = 1
    dense[..., 3::4] = 2
    stored, meta = sparse.compress(dense, row)
    assert stored.shape == (2, 3, 64, 32) and meta.shape == (2, 3, 128) and (meta == 0xCCCCCCCC).all()
    assert (sparse.expand(stored, meta, row) == dense).all()
    assert (sparse.expand(stored, meta[0, 0], row) == dense).all()


def test_negative_zeros_are_kept_where_there_is_room():
    dense = np.zeros((16, 16), np.float16)
    dense[0, :4] = [0, 1, 0, -0.0]
    dense[1, :4] = [-0.0, 0, -0.0, 0]
    stored, meta = sparse.compress(dense, F16)
    back = sparse.expand(stored, meta, F16)
    assert (back.view(np.uint16) == dense.view(np.uint16)).all()


@pytest.mark.parametrize("chunk", [[-0.0, 1, 2, 0], [-0.0, -0.0, -0.0, 0], [1, -0.0, 0, -0.0]])
def test_negative_zeros_are_not_lost_silently(chunk):
    dense = np.zeros((16, 16), np.float16)
    dense[3, 4:8] = chunk
    with pytest.raises(MetadataError, match="row 3, chunk 1 has a -0"):
        sparse.compress(dense, F16)
    stored, meta = sparse.compress(dense + np.float16(0), F16)
    assert (sparse.expand(stored, meta, F16) == dense).all()


def test_legal_nibbles():
    plain, strict = parse.row(F16), parse.row(F16.replace("mma.sp", "mma.sp::ordered_metadata"))
    assert np.flatnonzero(inner.legal_nibbles(strict)).tolist() == [4, 8, 9, 12, 13, 14]
    assert np.flatnonzero(~inner.legal_nibbles(plain)).tolist() == [0, 5, 10, 15]
    tf32 = parse.row("mma.sp.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32")
    assert np.flatnonzero(inner.legal_nibbles(tf32)).tolist() == [4, 14]
    swapped = inner.from_nibbles(plain, np.full((16, 4), 0b0001, np.uint8))
    inner.check_legal(plain, swapped)
    with pytest.raises(MetadataError, match="0b0001 of row 0, chunk 0"):
        inner.check_legal(strict, swapped)


def test_a_flipped_nibble_is_seen():
    dense = np.zeros((16, 16), np.float16)
    dense[:, ::2] = 1
    stored, meta = sparse.compress(dense, F16)
    for bit in range(0, 32, 4):
        other = meta.copy()
        other[8] ^= np.uint32(1 << bit)
        changed = sparse.expand(stored, other, F16) != dense
        assert changed.any() and set(np.flatnonzero(changed.any(1))) == {2 + 8 * (bit // 16)}


def test_errors():
    full, half = np.ones((16, 16), np.float16), np.ones((16, 8), np.float16)
    meta = np.full(32, 0x44444444, np.uint32)
    with pytest.raises(MetadataError, match="dense row 0 has more than 2 non-zero elements in columns 0 to 3"):
        sparse.compress(full, F16)
    with pytest.raises(MetadataError, match="selector=4 is not legal"):
        sparse.compress(full, F16, 4)
    with pytest.raises(MetadataError, match="selector=2 is not legal"):
        sparse.expand(half, meta, F16.replace("k16", "k32"), 2)
    with pytest.raises(MetadataError, match="not a sparse product"):
        sparse.compress(full, "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    with pytest.raises(MetadataError, match="share a place"):
        sparse.expand(half, np.zeros(32, np.uint32), F16)
    with pytest.raises(ShapeError, match="M x K, all of K"):
        sparse.compress(half, F16)
    with pytest.raises(ShapeError, match="stores half of K"):
        sparse.expand(full, meta, F16)
    with pytest.raises(ShapeError, match="one register a lane"):
        sparse.expand(half, meta[:16], F16)
    with pytest.raises(FormatError, match="uint32"):
        sparse.expand(half, meta.astype(np.int64), F16)
    with pytest.raises(FormatError):
        sparse.compress(full.astype(np.float32), F16)
    with pytest.raises(ParseError):
        sparse.compress(full, 3)
