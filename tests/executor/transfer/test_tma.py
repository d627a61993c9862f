"""Tensor maps, and tiles between arrays and swizzled shared memory."""

import numpy as np
import pytest

import nbtc
from nbtc import errors
from nbtc.executor.transfer.tma import (
    FINE,
    LOAD,
    LOAD_ONLY,
    MISALIGNED,
    NEGATIVE,
    OTHER_MODE,
    OUT_OF_BOX,
    OUTSIDE,
    REDUCE,
    STORE,
    column_copy,
    tile_copy,
)


def aligned(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(size + 1024, np.uint8)
    start = -raw.ctypes.data % 1024
    return raw[start : start + size].view(dtype).reshape(shape)


def run(kind, array, tile_map, start, shared, op=0, offsets=None):
    """Copy a tile, or a column of pixels at offsets; (what went wrong, bytes)."""
    words = np.frombuffer(bytes(tile_map), np.uint8)
    regions = np.array([array.ctypes.data, array.nbytes, 1], np.int64)
    at = np.array([*start, *[0] * (5 - len(start))], np.int64)
    status = np.zeros(2, np.int64)
    places = words.ctypes.data, shared.ctypes.data, 0, at
    if offsets is None:
        return tile_copy(kind, op, *places, regions, status), int(status[0])
    moved = np.array([*offsets, *[0] * (3 - len(offsets))], np.int64)
    return column_copy(kind, op, *places, moved, regions, status), int(status[0])


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
def test_a_tile_over_the_edge(swizzle):
    array = aligned((20, 32), np.float32)
    array[:] = np.arange(array.size).reshape(array.shape)
    view = array[:, :30]
    units = {"none": 2, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    tile = nbtc.TensorMap(view, (4 * units, 8), swizzle=swizzle)
    shared = aligned(8 * 16 * units, np.uint8)
    assert run(LOAD, array, tile, (20, -3), shared) == (FINE, shared.nbytes)
    want = np.zeros((8, 4 * units), np.float32)
    for y in range(8):
        for x in range(4 * units):
            if y >= 3 and 20 + x < 30:
                want[y, x] = view[y - 3, 20 + x]
    got = np.zeros_like(want)
    lines = want.view(np.uint8).reshape(8, units, 16)
    mode = {"none": 1, "32B": 2, "64B": 4, "128B": 8}[swizzle]
    for y in range(8):
        for u in range(units):
            at = 16 * (units * y + u)
            at ^= ((at >> 7) & (mode - 1)) << 4
            got.view(np.uint8).reshape(8, units, 16)[y, u] = shared[at : at + 16]
    assert (got.view(np.uint8).reshape(lines.shape) == lines).all()


@pytest.mark.parametrize("dtype", ["tf32", "tf32_ftz"])
def test_loads_of_tf32_round(dtype):
    """To nearest even, subnormals too; NaNs become one (what an H200 gave for 65,536 words, both types alike)."""
    cases = {
        0x3F801000: 0x3F800000, 0x3F803000: 0x3F804000, 0xBF801000: 0xBF800000, 0xBF803000: 0xBF804000,  # ties
        0x3F800FFF: 0x3F800000, 0x3F801001: 0x3F802000, 0x3F802000: 0x3F802000, 0xC0FFFFFF: 0xC1000000,
        0x00000001: 0x00000000, 0x80001000: 0x80000000, 0x00003000: 0x00004000, 0x007FF001: 0x00800000,  # subnormal
        0x7F7FF000: 0x7F800000, 0xFF7FFFFF: 0xFF800000, 0x7F7FEFFF: 0x7F7FE000, 0x7F800000: 0x7F800000,  # too large
        0x7F800001: 0x7FFFE000, 0xFF800001: 0x7FFFE000, 0x7FC00000: 0x7FFFE000, 0xFFFFFFFF: 0x7FFFE000,  # NaN
    }  # fmt: skip
    array = aligned((1, len(cases)), np.uint32)
    array[:] = list(cases)
    shared = aligned(4 * len(cases), np.uint8)
    tile = nbtc.TensorMap(array.view(np.float32), (len(cases), 1), dtype=dtype)
    assert run(LOAD, array, tile, (0, 0), shared) == (FINE, 4 * len(cases))
    assert shared.view(np.uint32).tolist() == list(cases.values())


def test_finite_tf32_loads_are_rounded_as_cvt_rn_does():
    rng = np.random.default_rng(13)
    array = aligned((64, 256), np.uint32)
    array[:] = rng.integers(0, 2**32, array.shape, np.uint32)
    array[::2] = array[::2] & np.uint32(0xFFFFE000) | np.uint32(0x1000)  # ties
    finite = array & 0x7F800000 != 0x7F800000
    array[~finite] = 0
    shared = aligned((64, 256), np.uint32)
    tile = nbtc.TensorMap(array.view(np.float32), (256, 64), dtype="tf32")
    assert run(LOAD, array, tile, (0, 0), shared)[0] == FINE
    assert (shared == nbtc.convert(array.view(np.float32), "tf32", rounding="rn").view(np.uint32)).all()


def test_stores_and_sums():
    array = aligned((6, 8), np.int32)
    tile = nbtc.TensorMap(array, (8, 4))
    shared = aligned((4, 8), np.int32)
    shared[:] = np.arange(32).reshape(4, 8)
    assert run(STORE, array, tile, (0, 2), shared)[0] == FINE
    assert (array[2:] == shared).all() and not array[:2].any()
    assert run(REDUCE, array, tile, (0, 2), shared)[0] == FINE
    assert (array[2:] == 2 * shared).all()


def test_what_the_hardware_refuses():
    array = aligned((6, 8), np.int32)
    tile, shared = nbtc.TensorMap(array, (8, 4)), aligned((4, 8), np.int32)
    assert run(LOAD, array, tile, (1, 0), shared)[0] == MISALIGNED
    assert run(STORE, array, tile, (0, -1), shared)[0] == NEGATIVE
    assert run(LOAD, array[:2], tile, (0, 0), shared)[0] == OUTSIDE


@pytest.mark.parametrize("swizzle", ["none", "128B"])
def test_sixteen_padded_elements_are_eight_bytes_and_a_gap(swizzle):
    """CUDA driver API, CU_TENSOR_MAP_DATA_TYPE_16U4_ALIGN16B: "8 byte gaps between every 8 byte chunk"."""
    array = aligned((5, 128), np.uint8)
    array[:] = np.arange(array.size).reshape(array.shape) % 251
    tile = nbtc.TensorMap(array, (128, 4), swizzle=swizzle, dtype="b4x16_p64")
    assert tile.dims == (256, 5)
    shared = aligned((4, 8, 16), np.uint8)
    shared[:] = 77
    assert run(LOAD, array, tile, (128, 2), shared) == (FINE, shared.nbytes)
    for row in range(4):
        for unit in range(8):
            at = unit ^ row if swizzle == "128B" else unit
            want = array[2 + row, 64 + 8 * unit : 72 + 8 * unit] if row < 3 else np.zeros(8, np.uint8)
            assert (shared[row, at, :8] == want).all()
            assert (shared[row, at, 8:] == 77).all()
    assert run(LOAD, array, tile, (-128, 0), shared)[0] == FINE
    assert not shared[:, :, :8].any()
    assert run(LOAD, array, tile, (64, 0), shared)[0] == MISALIGNED
    assert run(STORE, array, tile, (0, 0), shared)[0] == LOAD_ONLY


PADDED = """.version 8.6 .target sm_100a .address_size 64
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 out) {
  .shared .align 128 .b8 tile[512]; .shared .align 8 .b8 bar[8];
  .reg .b32 t, s, o, m, x; .reg .b64 p, q; .reg .pred z, d; mov.u32 t, %tid.x; setp.eq.u32 z, t, 0;
  ld.param.u64 p, [out]; mov.u32 s, tile; mov.u32 m, bar; mov.b64 q, map; cvta.param.u64 q, q;
  @z mbarrier.init.shared::cta.b64 [m], 1;
  bar.sync 0;
  @z mbarrier.arrive.expect_tx.shared.b64 _, [m], 256;
  @z cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [s], [q, {t, t}], [m];
WAIT: mbarrier.try_wait.parity.shared.b64 d, [m], 0; @!d bra WAIT;
  shl.b32 o, t, 3; mad.lo.u32 o, t, 8, s; ld.shared.b32 x, [o]; mul.wide.u32 q, t, 4; add.u64 p, p, q;
  st.global.b32 [p], x; ret; }"""


def test_mbarriers_count_the_bytes_of_padded_elements_that_the_array_has():
    """As Triton 3.6 expects them: 8192 bytes for the 128 x 128 elements of a descriptor that is `fp4_padded`."""
    array, out = aligned((4, 64), np.uint8), np.zeros(64, np.uint32)
    array[:] = np.arange(256).reshape(4, 64)
    tile = nbtc.TensorMap(array, (128, 4), dtype="b4x16_p64")
    nbtc.load(PADDED)["k"].launch(1, 64, (tile, out), timeout=60)
    assert (out[::2] == array.view(np.uint32).reshape(-1)[::2]).all()


@pytest.mark.parametrize(
    ("shape", "box", "options", "error"),
    [
        ((4, 128), (64, 4), {}, errors.RangeError),
        ((4, 96), (128, 4), {}, errors.RangeError),
        ((4, 128), (128, 4), {"swizzle": "64B"}, errors.OptionError),
    ],
)
def test_bad_maps_of_padded_elements(shape, box, options, error):
    with pytest.raises(error):
        nbtc.TensorMap(aligned(shape, np.uint8), box, dtype="b4x16_p64", **options)


def test_rows_of_padded_elements_are_multiples_of_32_bytes():
    with pytest.raises(errors.AlignmentError):
        nbtc.TensorMap(aligned((4, 144), np.uint8)[:, :128], (128, 4), dtype="b4x16_p64")


@pytest.mark.parametrize(
    ("shape", "box", "options", "error"),
    [
        ((4, 6), (4, 4), {}, errors.AlignmentError),  # rows of 24 bytes
        ((4, 8), (3, 4), {}, errors.AlignmentError),
        ((4, 8), (8, 4, 1), {}, errors.ShapeError),
        ((4, 64), (64, 4), {"swizzle": "32B"}, errors.RangeError),
        ((4, 8), (8, 4), {"swizzle": "16B"}, errors.OptionError),
        ((4, 8), (8, 4), {"oob": "nan"}, errors.OptionError),
        ((4, 8), (8, 300), {}, errors.RangeError),
        ((4, 8), (8, 4), {"dtype": "f16"}, errors.FormatError),
    ],
)
def test_bad_maps(shape, box, options, error):
    with pytest.raises(error):
        nbtc.TensorMap(aligned(shape, np.int32), box, **options)


def pixels_of(box, sizes, strides, start):
    """Where the pixels of a column lie, before offsets: (image, ..., height, width) each."""
    lower, upper, count = box
    at, found = list(start), []
    while len(found) < count:
        found.append(tuple(reversed(at)))
        for d in range(len(lower)):
            at[d] += strides[d]
            if at[d] <= sizes[d] - 1 + upper[d]:
                break
            at[d] = lower[d]
        else:
            at[-1] += 1
    return found


@pytest.mark.parametrize(
    ("sizes", "lower", "upper", "strides", "start", "offsets"),
    [  # all but sizes: width first
        ((9,), (-2,), (-1,), (1,), (3, 0), (3,)),
        ((5, 7), (-1, -1), (-1, -1), (1, 1), (2, 3, 1), (2, 0)),
        ((5, 7), (0, 0), (-2, -2), (1, 1), (2, 4, 0), (2, 2)),
        ((6, 8), (-1, -1), (-1, -1), (2, 3), (-1, 2, 0), (1, 2)),
        ((3, 4, 5), (-1, 0, -2), (1, -1, 0), (1, 2, 1), (0, 2, -2, 0), (1, 0, 2)),
    ],
)
@pytest.mark.parametrize("oob", ["zero", "nan"])
def test_columns_of_pixels(sizes, lower, upper, strides, start, offsets, oob):
    """sizes: width first, as in a tensor map; the array has its images first."""
    images, channels, count = 3, 8, 50
    array = aligned((images, *reversed(sizes), 12 + channels), np.float32)  # rows of channels with room behind
    array[:] = 1 + np.arange(array.size).reshape(array.shape)
    view = array[..., :18]
    columns = nbtc.TensorMap.im2col(view, lower, upper, channels, count, element_strides=(1, *strides, 1), oob=oob)
    shared = aligned((count, channels), np.float32)
    got = run(LOAD, array, columns, (12, *start), shared, offsets=offsets)
    assert got == (FINE, shared.nbytes)
    outside = np.uint32(0x7FF77FF7).view(np.float32) if oob == "nan" else np.float32(0)
    want = np.full_like(shared, outside)
    for n, (image, *pixel) in enumerate(pixels_of((lower, upper, count), sizes, strides, start)):
        pixel = [x + o for x, o in zip(pixel, reversed(offsets), strict=True)]
        if image < images and all(0 <= x < size for x, size in zip(pixel, reversed(sizes), strict=True)):
            want[n, :6] = view[(image, *pixel)][12:]
    np.testing.assert_array_equal(shared.view(np.uint32), want.view(np.uint32))


def test_columns_are_stored_and_summed():
    array, shared = aligned((2, 3, 4, 8), np.int32), aligned((20, 8), np.int32)
    shared[:] = 1 + np.arange(shared.size).reshape(shared.shape)
    columns = nbtc.TensorMap.im2col(array, (0, 0), (0, -1), channels=8, pixels=20)
    assert run(STORE, array, columns, (0, 2, 1, 0), shared, offsets=())[0] == FINE
    want = np.zeros_like(array)
    for n, place in enumerate(pixels_of(((0, 0), (0, -1), 20), (4, 3), (1, 1), (2, 1, 0))):
        if place[0] < 2:
            want[place] = shared[n]
    np.testing.assert_array_equal(array, want)
    assert run(REDUCE, array, columns, (0, 2, 1, 0), shared, offsets=())[0] == FINE
    np.testing.assert_array_equal(array, 2 * want)
    assert run(STORE, array, columns, (-4, 0, 0, 0), shared, offsets=())[0] == NEGATIVE


@pytest.mark.parametrize(
    ("kind", "lower", "upper", "start", "fine"),
    [  # what an H100 copied, and what it ended as an illegal instruction
        (LOAD, (-1, 0), (1, -1), (-1, 1), True),
        (LOAD, (-1, 0), (1, -1), (4, 1), True),
        (LOAD, (-1, 0), (1, -1), (5, 1), False),
        (LOAD, (-1, 0), (1, -1), (-2, 1), False),
        (LOAD, (-1, 0), (1, -1), (0, 2), False),
        (STORE, (1, 0), (0, -1), (1, 1), True),
        (STORE, (1, 0), (0, -1), (0, 1), False),
        (STORE, (-1, 0), (0, -1), (0, 1), False),
        (REDUCE, (0, 0), (1, 0), (0, 1), False),
    ],
)
def test_where_columns_may_begin(kind, lower, upper, start, fine):
    array, shared = aligned((2, 3, 4, 8), np.int32), aligned((5, 8), np.int32)
    columns = nbtc.TensorMap.im2col(array, lower, upper, channels=8, pixels=5)
    offsets = (0, 0) if kind == LOAD else ()
    assert run(kind, array, columns, (0, *start, 0), shared, offsets=offsets)[0] == (FINE if fine else OUT_OF_BOX)


def test_a_map_is_for_one_mode():
    array, shared = aligned((2, 3, 4, 8), np.int32), aligned((20, 8), np.int32)
    assert run(LOAD, array, nbtc.TensorMap(array, (8, 1, 1, 1)), (0,) * 4, shared, offsets=(0, 0))[0] == OTHER_MODE
    columns = nbtc.TensorMap.im2col(array, (0, 0), (0, 0), channels=8, pixels=20)
    assert run(LOAD, array, columns, (0,) * 4, shared)[0] == OTHER_MODE


@pytest.mark.parametrize(
    ("shape", "lower", "upper", "channels", "error"),
    [
        ((4, 8), (), (), 8, errors.ShapeError),
        ((2, 4, 4, 8), (0,), (0, 0), 8, errors.ShapeError),
        ((2, 4, 4, 8), (-129, 0), (0, 0), 8, errors.RangeError),
        ((2, 4, 4, 4, 8), (0, 0, 0), (0, 0, 16), 8, errors.RangeError),
        ((2, 4, 4, 8), (0, 0), (0, 0), 6, errors.AlignmentError),
        ((2, 4, 4, 8), (0, "a"), (0, 0), 8, errors.FormatError),
    ],
)
def test_boxes_of_pixels_are_checked(shape, lower, upper, channels, error):
    with pytest.raises(error):
        nbtc.TensorMap.im2col(aligned(shape, np.int32), lower, upper, channels, 16)


@pytest.mark.parametrize(("atom", "unit"), [(1, 32), (3, 64)])
def test_swizzles_of_wider_units(atom, unit):
    """PTX ISA, "Swizzling Modes": units of 32 bytes change places in 4 lines, units of 64 in 2."""
    array = aligned((16, 128), np.uint8)
    array[:] = np.arange(array.size).reshape(array.shape) >> 4
    tile, shared = nbtc.TensorMap(array, (128, 16), swizzle="128B"), aligned((16, 128), np.uint8)
    tile._record["swizzle_atomicity"] = atom
    assert run(LOAD, array, tile, (0, 0), shared)[0] == FINE
    for line in range(16):
        units = array[line].reshape(-1, unit)
        order = [n ^ line % len(units) for n in range(len(units))]
        np.testing.assert_array_equal(shared[line].reshape(-1, unit), units[order])
