"""nbtc.warp: recordings, CUDA's four shuffle tables, a lane-by-lane oracle, compiled functions, wrong input."""

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numba.core.errors import TypingError

from nbtc import errors, warp

ALL = 0xFFFFFFFF
LANES = np.arange(32)
FOLDERS = [Path(__file__).parents[1] / "golden", *map(Path, filter(None, [os.environ.get("NBTC_GOLDEN")]))]
SHUFFLES = {"shfl": warp.shfl_sync, "up": warp.shfl_up_sync, "down": warp.shfl_down_sync, "xor": warp.shfl_xor_sync}
REDUCTIONS = {
    "add": lambda x: sum(x),
    "min": min,
    "max": max,
    "and": lambda x: np.bitwise_and.reduce(x),
    "or": lambda x: np.bitwise_or.reduce(x),
    "xor": lambda x: np.bitwise_xor.reduce(x),
}
TYPES = {
    "int": np.int32,
    "unsigned": np.uint32,
    "float": np.float32,
    "long_long": np.int64,
    "double": np.float64,
    "half": np.float16,
    "half2": np.uint32,
    "bfloat16": ml_dtypes.bfloat16,
    "bfloat162": np.uint32,
}
MASKS = st.one_of(st.integers(0, ALL), st.sampled_from([0, 1, 1 << 31, 0xFFFF, ALL]))


def taking_part(mask):
    return np.array([bool(int(mask) >> i & 1) for i in range(32)])


def source(mode, lane, b, width):
    """The lane read from, in the words of the programming guide; None: the lane keeps its own."""
    first = lane // width * width
    if mode == "shfl":
        return first + b % width
    step = b % 32
    if mode == "up":
        return lane - step if lane - step >= first else None
    target = lane + step if mode == "down" else lane ^ step
    return target if target < first + width else None


def shuffled(mode, mask, values, b, width):
    out = []
    for lane in range(32):
        read = source(mode, lane, int(b[lane]), width)
        if not mask >> lane & 1 or read is None:
            out.append(values[lane])
        else:
            out.append(values[read] if mask >> read & 1 else values.dtype.type(0))
    return np.array(out, values.dtype)


def same_bits(got, want):
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    word = f"u{got.dtype.itemsize}"
    np.testing.assert_array_equal(got.view(word), want.view(word))


# Values 0..31 through the four shuffles of CUDA's examples: what lanes 0..31 print.
TABLES = {
    ("shfl", 2, 16): "2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 2 18 18 18 18 18 18 18 18 18 18 18 18 18 18 18 18",
    ("up", 2, 16): "0 1 0 1 2 3 4 5 6 7 8 9 10 11 12 13 16 17 16 17 18 19 20 21 22 23 24 25 26 27 28 29",
    ("down", 3, 8): "3 4 5 6 7 5 6 7 11 12 13 14 15 13 14 15 19 20 21 22 23 21 22 23 27 28 29 30 31 29 30 31",
    ("xor", 3, 32): "3 2 1 0 7 6 5 4 11 10 9 8 15 14 13 12 19 18 17 16 23 22 21 20 27 26 25 24 31 30 29 28",
}


@pytest.mark.parametrize(("mode", "b", "width"), TABLES)
def test_the_tables_of_the_cuda_examples(mode, b, width):
    values = LANES.astype(np.int32)
    assert " ".join(map(str, SHUFFLES[mode](ALL, values, b, width))) == TABLES[mode, b, width]


@pytest.mark.parametrize("folder", FOLDERS, ids=["subset", "all"][: len(FOLDERS)])
@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("mode", SHUFFLES)
def test_recorded_shuffles(mode, kind, folder):
    form = f"shfl_{kind}" if mode == "shfl" else f"shfl_{mode}_{kind}"
    with np.load(folder / "warp.npz") as z:
        v, b, mask, width, out = (z[f"{form}__{x}"] for x in ("v", "b", "mask", "width", "out"))
    want = np.where([taking_part(m) for m in mask], out, v).astype(v.dtype).view(TYPES[kind])
    same_bits(SHUFFLES[mode](mask[:, None], v.view(TYPES[kind]), b, width[:, None]), want)
    for i in range(len(v)):
        same_bits(SHUFFLES[mode](int(mask[i]), v[i].view(TYPES[kind]), b[i], int(width[i])), want[i])


@pytest.mark.parametrize("folder", FOLDERS, ids=["subset", "all"][: len(FOLDERS)])
@pytest.mark.parametrize(
    "form", [f"{op}_int" for op in ("add", "min", "max")] + [f"{op}_unsigned" for op in REDUCTIONS]
)
def test_recorded_reductions(form, folder):
    op, kind = form.split("_")
    with np.load(folder / "warp.npz") as z:
        v, mask, out = (z[f"reduce_{form}__{x}"].view(np.uint32) for x in ("v", "mask", "out"))
    function = getattr(warp, f"reduce_{op}_sync")
    on = np.array([taking_part(m) for m in mask])
    both = np.where(on, mask[:, None], ~mask[:, None])  # the recording's two groups, each lane with its own mask
    same_bits(function(both, v.view(TYPES[kind])), out.view(TYPES[kind]))
    same_bits(function(mask[:, None], v.view(TYPES[kind])), np.where(on, out, v).view(TYPES[kind]))


@pytest.mark.parametrize("folder", FOLDERS, ids=["subset", "all"][: len(FOLDERS)])
def test_recorded_votes(folder):
    with np.load(folder / "warp.npz") as z:
        v, mask, out = (z[f"votes__{x}"] for x in ("v", "mask", "out"))
    on, mask = np.array([taking_part(m) for m in mask]), mask[:, None]
    got = [f(mask, v & 1) for f in (warp.all_sync, warp.any_sync, warp.ballot_sync)]
    got += [warp.match_any_sync(mask, v), *warp.match_all_sync(mask, v)]
    assert [str(x.dtype) for x in got] == ["int32", "int32", "uint32", "uint32", "uint32", "int32"]
    for i, x in enumerate(got):
        np.testing.assert_array_equal(x.view(np.uint32), np.where(on, out[..., i], 0))


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(list(SHUFFLES)), st.sampled_from(list(TYPES)), MASKS, st.integers(0, 5), st.data())
def test_shuffles_against_the_words_of_the_guide(mode, kind, mask, log_width, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    dtype = np.dtype(TYPES[kind])
    values = rng.integers(0, 256, 32 * dtype.itemsize, dtype=np.uint8).view(dtype)
    b = data.draw(st.integers(-(2**31), 2**32 - 1)) if data.draw(st.booleans()) else rng.integers(-70, 70, 32)
    want = shuffled(mode, mask, values, np.broadcast_to(b, 32), 1 << log_width)
    same_bits(SHUFFLES[mode](mask, values, b, 1 << log_width), want)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(list(REDUCTIONS)), st.sampled_from([np.int32, np.uint32]), MASKS, st.integers(0, 2**32))
def test_reductions_against_numpy(op, dtype, mask, seed):
    values = np.random.default_rng(seed).integers(0, 2**32, 32, dtype=np.uint32).view(dtype)
    on = taking_part(mask)
    want = values.copy()
    if on.any():
        want.view(np.uint32)[on] = int(REDUCTIONS[op](values[on].astype(np.int64))) & ALL
    same_bits(getattr(warp, f"reduce_{op}_sync")(mask, values), want)


@settings(max_examples=200, deadline=None)
@given(MASKS, MASKS, st.integers(1, 4), st.integers(0, 2**32))
def test_votes_and_matches_against_sets(mask, truth, kinds, seed):
    predicate, on = taking_part(truth), taking_part(mask)
    holds = predicate[on]
    want = {"all": holds.all(), "any": holds.any(), "uni": len(set(holds)) <= 1, "ballot": mask & truth}
    for name, value in want.items():
        got = getattr(warp, f"{name}_sync")(mask, predicate)
        np.testing.assert_array_equal(got, np.where(on, int(value), 0))
    values = np.random.default_rng(seed).integers(0, kinds, 32)
    equal = [sum(1 << k for k in LANES.tolist() if on[k] and values[k] == v) for v in values]
    np.testing.assert_array_equal(warp.match_any_sync(mask, values), np.where(on, equal, 0))
    agree = len(set(values[on])) == 1
    lanes, same = warp.match_all_sync(mask, values.astype(np.float32))
    np.testing.assert_array_equal(lanes, np.where(on & agree, mask, 0))
    np.testing.assert_array_equal(same, on & agree)


def test_matches_compare_bits():
    values = np.zeros(32)
    values[1], values[2], values[3] = -0.0, np.nan, np.nan
    assert warp.match_any_sync(0xF, values)[:4].tolist() == [1, 2, 12, 12]


def test_a_batch_is_its_warps():
    rng = np.random.default_rng(0)
    v, b = rng.integers(0, 99, (3, 1, 32)), rng.integers(0, 99, (4, 32))
    mask, width = rng.integers(0, ALL, (3, 4, 1)), np.array([[4], [8], [16], [32]])
    got = warp.shfl_down_sync(mask, v, b, width)
    assert got.shape == (3, 4, 32)
    for i in range(3):
        for j in range(4):
            one = warp.shfl_down_sync(int(mask[i, j, 0]), v[i, 0], b[j], int(width[j, 0]))
            np.testing.assert_array_equal(got[i, j], one)
    assert warp.reduce_add_sync(ALL, np.zeros((0, 5, 32), np.int32)).shape == (0, 5, 32)
    transposed = np.asfortranarray(v[:, 0])
    np.testing.assert_array_equal(warp.shfl_sync(ALL, transposed, b[:3]), warp.shfl_sync(ALL, v[:, 0], b[:3]))


def test_the_caller_s_array_stays():
    v = LANES.astype(np.int32)
    got = warp.reduce_add_sync(0, v)
    assert got is not v
    assert got.tolist() == LANES.tolist()
    got[0] = 9
    assert v.tolist() == LANES.tolist()


def test_the_rest():
    assert int(warp.activemask()) == ALL
    assert warp.syncwarp() is None
    assert warp.nanosleep(100) is None


V = LANES.astype(np.int32)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: warp.shfl_sync(-1, V, 0), errors.RangeError),
        (lambda: warp.shfl_sync(1 << 32, V, 0), errors.RangeError),
        (lambda: warp.shfl_sync(1 << 80, V, 0), errors.RangeError),
        (lambda: warp.shfl_sync(1.5, V, 0), errors.FormatError),
        (lambda: warp.shfl_sync(True, V, 0), errors.FormatError),
        (lambda: warp.shfl_sync(None, V, 0), errors.FormatError),
        (lambda: warp.shfl_sync([[1], [1, 2]], V, 0), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V, 0.0), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V, 1 << 32), errors.RangeError),
        (lambda: warp.shfl_up_sync(ALL, V, np.zeros(32)), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V, 0, 0), errors.OptionError),
        (lambda: warp.shfl_sync(ALL, V, 0, 3), errors.OptionError),
        (lambda: warp.shfl_down_sync(ALL, V, 1, 64), errors.OptionError),
        (lambda: warp.shfl_xor_sync(ALL, V, 1, -8), errors.OptionError),
        (lambda: warp.shfl_xor_sync(ALL, V, 1, np.where(V, 32, 5)), errors.OptionError),
        (lambda: warp.shfl_xor_sync(ALL, V, 1, 8.0), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V[:31], 0), errors.ShapeError),
        (lambda: warp.shfl_sync(ALL, np.int32(7), 0), errors.ShapeError),
        (lambda: warp.shfl_sync(ALL, V, np.zeros((2, 16), int)), errors.ShapeError),
        (lambda: warp.shfl_sync(np.ones(2, int), V, 0), errors.ShapeError),
        (lambda: warp.shfl_sync(ALL, V.astype(np.int16), 0), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V.astype(complex), 0), errors.FormatError),
        (lambda: warp.shfl_sync(ALL, V > 3, 0), errors.FormatError),
        (lambda: warp.reduce_add_sync(ALL, V.astype(np.float32)), errors.FormatError),
        (lambda: warp.reduce_min_sync(ALL, V.astype(np.int64)), errors.FormatError),
        (lambda: warp.reduce_or_sync(ALL, V[None, :4]), errors.ShapeError),
        (lambda: warp.all_sync(ALL, V.astype(float)), errors.FormatError),
        (lambda: warp.ballot_sync(ALL, V[:8]), errors.ShapeError),
        (lambda: warp.any_sync(-5, V), errors.RangeError),
        (lambda: warp.match_any_sync(ALL, V.astype(np.float16)), errors.FormatError),
        (lambda: warp.match_all_sync(ALL + 1, V), errors.RangeError),
        (lambda: warp.reduce_add_sync(np.where(V == 4, 0xFF, ALL), V), errors.RangeError),
        (lambda: warp.syncwarp(1 << 40), errors.RangeError),
        (lambda: warp.nanosleep(-1), errors.RangeError),
        (lambda: warp.nanosleep(1.0), errors.FormatError),
    ],
)
def test_wrong_input_raises(call, error):
    with pytest.raises(error) as raised:
        call()
    assert len(str(raised.value)) >= 40


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.uint16], ids=str)
def test_compiled_shuffles(dtype):
    @njit
    def four(mask, v, b, width):
        return (
            warp.shfl_sync(mask, v, b, width),
            warp.shfl_up_sync(mask, v, delta=b, width=width),
            warp.shfl_down_sync(mask, v, b, width=width),
            warp.shfl_xor_sync(mask, v, lane_mask=b),
        )

    rng = np.random.default_rng(1)
    for mask, width in ((ALL, 32), (0xFF00FF, 8), (0, 16)):
        v, b = rng.integers(0, 2**16, 32).astype(dtype), rng.integers(-70, 70, 32)
        for mode, got in zip(SHUFFLES, four(mask, v, b, width), strict=True):
            same_bits(got, shuffled(mode, mask, v, b, 32 if mode == "xor" else width))


def test_compiled_reductions_votes_and_matches():
    @njit
    def everything(mask, v, x):
        lanes, same = warp.match_all_sync(mask, x)
        warp.syncwarp(mask)
        warp.nanosleep(10)
        sums = (warp.reduce_add_sync(mask, v), warp.reduce_min_sync(mask, v), warp.reduce_max_sync(mask, v))
        bits = (warp.reduce_and_sync(mask, v), warp.reduce_or_sync(mask, v), warp.reduce_xor_sync(mask, v))
        votes = (warp.all_sync(mask, v < 0), warp.any_sync(mask, v), warp.uni_sync(mask, v & 1))
        return sums, bits, votes, warp.ballot_sync(mask, v > 0), warp.match_any_sync(mask, x), lanes, same

    rng = np.random.default_rng(2)
    for mask in (ALL, 0x00F0F001, 0):
        v, x = rng.integers(-9, 9, 32).astype(np.int32), rng.integers(0, 3, 32).astype(np.float32)
        sums, bits, votes, ballot, match, lanes, same = everything(mask, v, x)
        for op, got in zip(REDUCTIONS, (*sums, *bits), strict=True):
            same_bits(got, getattr(warp, f"reduce_{op}_sync")(mask, v))
        for got, want in zip(
            votes, (warp.all_sync(mask, v < 0), warp.any_sync(mask, v), warp.uni_sync(mask, v & 1)), strict=True
        ):
            same_bits(got, want)
        same_bits(ballot, warp.ballot_sync(mask, v > 0))
        same_bits(match, warp.match_any_sync(mask, x))
        for got, want in zip((lanes, same), warp.match_all_sync(mask, x), strict=True):
            same_bits(got, want)


def test_compiled_functions_check_too():
    @njit
    def broadcast(mask, v, lane, width):
        return warp.shfl_sync(mask, v, lane, width)

    np.testing.assert_array_equal(broadcast(ALL, V, 5, 8), np.repeat([5, 13, 21, 29], 8))
    for arguments, error in (
        ((1 << 32, V, 0, 32), errors.RangeError),
        ((-1, V, 0, 32), errors.RangeError),
        ((ALL, V, 0, 5), errors.OptionError),
        ((ALL, V[:8], 0, 32), errors.ShapeError),
    ):
        with pytest.raises(error, match=r".{40}"):
            broadcast(*arguments)
    for arguments in ((1.5, V, 0, 32), (ALL, V.astype(np.int8), 0, 32), (ALL, V, 0.5, 32), (ALL, V, 0, 8.0)):
        with pytest.raises(TypingError, match="shfl_sync"):
            broadcast(*arguments)


@njit
def every_shuffle(mask, lane, width, v):
    lanes = (warp.shfl_sync(mask, v, lane, width), warp.shfl_up_sync(mask, v, lane, width))
    more = (warp.shfl_down_sync(mask, v, lane, width), warp.shfl_xor_sync(mask, v, lane, width))
    return lanes, more


VALUES_AND_MASKS = {
    "reduce": njit(lambda mask, v: warp.reduce_add_sync(mask, v)),
    "ballot": njit(lambda mask, v: warp.ballot_sync(mask, v)),
    "any": njit(lambda mask, v: warp.any_sync(mask, v)),
    "match any": njit(lambda mask, v: warp.match_any_sync(mask, v)),
    "match all": njit(lambda mask, v: warp.match_all_sync(mask, v)),
}


@pytest.mark.parametrize("size", [0, 1, 31, 33])
@pytest.mark.parametrize("short", range(3))
def test_compiled_shuffles_read_no_parameter_past_its_end(short, size):
    arguments = [np.full(32, ALL, np.int64), np.zeros(32, np.int64), np.full(32, 32), V]
    every_shuffle(*arguments)
    arguments[short] = np.resize(arguments[short], size)
    with pytest.raises(errors.ShapeError, match="32 elements"):
        every_shuffle(*arguments)


@pytest.mark.parametrize("size", [0, 1, 31, 33])
@pytest.mark.parametrize("name", VALUES_AND_MASKS)
def test_compiled_functions_read_no_mask_past_its_end(name, size):
    VALUES_AND_MASKS[name](np.full(32, ALL, np.uint32), V)
    with pytest.raises(errors.ShapeError, match="32 elements"):
        VALUES_AND_MASKS[name](np.full(size, ALL, np.uint32), V)
