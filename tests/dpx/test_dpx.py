"""nbtc.dpx: all functions against recordings and Python integers, from Python and inside compiled functions."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numba.core.errors import TypingError

from nbtc import dpx, errors
from nbtc.ops import dpx as ops
from tests.processes import forked, output

NAMES = dpx.__all__
FOLDERS = [Path(__file__).parents[1] / "golden", *map(Path, filter(None, [os.environ.get("NBTC_GOLDEN")]))]
EDGES = [
    0,
    1,
    2,
    0x7FFF,
    0x8000,
    0xFFFF,
    0x10000,
    0x7FFF8000,
    0x7FFFFFFF,
    0x80000000,
    0x80007FFF,
    0xFFFFFFFE,
    0xFFFFFFFF,
]
DTYPES = {name: np.dtype(np.int32 if "_s32" in name else np.uint32) for name in NAMES}
ARITY = {name: 2 if re.match(r"vib|vim(ax|in)_", name) else 3 for name in NAMES}


def lane(name, bits, values):
    """One lane in Python integers: (value, predicate), after the table of the CUDA C++ header."""

    def number(x):
        x &= (1 << bits) - 1
        return x - (1 << bits) if "_s" in name and x >> (bits - 1) else x

    a, b, *c = values
    pick = max if "max" in name else min
    if "add" in name:
        best = pick(number(a + b), number(c[0]))
    else:
        best = pick(number(x) for x in values)
    if name.endswith("_relu"):
        best = max(best, 0)
    return best & ((1 << bits) - 1), number(a) >= number(b) if pick is max else number(a) <= number(b)


def oracle(name, words):
    """(word, predicates in argument order) of a function on words."""
    if "x2" not in name:
        value, wins = lane(name, 32, words)
        return value, (wins,) if name.startswith("vib") else ()
    (high, wins_high), (low, wins_low) = (lane(name, 16, [w >> s & 0xFFFF for w in words]) for s in (16, 0))
    return high << 16 | low, (wins_high, wins_low) if name.startswith("vib") else ()


def split(result):
    return (result[0], result[1:]) if isinstance(result, tuple) else (result, ())


def words_of(x):
    return np.asarray(x).view(np.uint32)


def sample(name, count, seed=0):
    """Operands of a function: random words with every pair of edges among them."""
    rng = np.random.default_rng(seed)
    words = rng.integers(0, 2**32, (ARITY[name], count), dtype=np.uint32)
    edges = rng.choice(np.array(EDGES, np.uint32), words.shape)
    return tuple(np.where(rng.integers(0, 2, words.shape), words, edges).astype(np.uint32).view(DTYPES[name]))


def check(name, result, operands):
    value, predicates = split(result)
    want = [oracle(name, [int(w) for w in words]) for words in zip(*(words_of(x).flat for x in operands), strict=True)]
    np.testing.assert_array_equal(words_of(value).ravel(), np.array([w for w, _ in want], np.uint32))
    assert len(predicates) == len(want[0][1])
    for i, p in enumerate(predicates):
        np.testing.assert_array_equal(p.ravel(), [w[i] for _, w in want])


def test_there_are_36():
    assert len(NAMES) == 36
    absent = {"vimax_s32", "vimin_s32", "vimax_u32_relu", "vimax3_u32_relu", "vibmax_s32_relu", "viaddmax_u16x2_relu"}
    assert not absent & set(dir(dpx))


@pytest.mark.parametrize("folder", FOLDERS, ids=["subset", "all"][: len(FOLDERS)])
@pytest.mark.parametrize("name", NAMES)
def test_recordings(name, folder):
    with np.load(folder / "dpx.npz") as z:
        x, want = z[f"__{name}__in"], z[f"__{name}__out"]
    value, predicates = split(getattr(dpx, name)(*(np.ascontiguousarray(c).view(DTYPES[name]) for c in x.T)))
    np.testing.assert_array_equal(words_of(value), want[:, 0])
    assert value.dtype == DTYPES[name]
    assert len(predicates) == (want.shape[1] - 1) * (1 + ("x2" in name))
    for i, p in enumerate(predicates):
        assert p.dtype == bool
        np.testing.assert_array_equal(p, want[:, 1] >> i & 1)


def fours():
    """The functions, each with three others of as many operands and of the same type: one kernel calls all four."""
    kinds = {}
    for name in NAMES:
        kinds.setdefault((ARITY[name], DTYPES[name]), []).append(name)
    return [names[i : i + 4] for names in kinds.values() for i in range(0, len(names), 4)]


@pytest.mark.parametrize("names", fours(), ids=" ".join)
def test_python_and_compiled_agree_with_integers(names):
    e, f, g, h = (getattr(dpx, name) for name in names)
    if ARITY[names[0]] == 2:
        kernel = njit(lambda a, b: (e(a, b), f(a, b), g(a, b), h(a, b)))
    else:
        kernel = njit(lambda a, b, c: (e(a, b, c), f(a, b, c), g(a, b, c), h(a, b, c)))
    operands = sample(names[0], 300)
    found = [kernel(*words) for words in zip(*operands, strict=True)]
    for n, name in enumerate(names):
        check(name, getattr(dpx, name)(*operands), operands)
        rows = [split(results[n]) for results in found]
        value = np.array([v for v, _ in rows]).astype(DTYPES[name])
        predicates = tuple(np.array(p) for p in zip(*(p for _, p in rows), strict=True))
        check(name, (value, *predicates) if predicates else value, operands)


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.lists(st.one_of(st.sampled_from(EDGES), st.integers(0, 2**32 - 1)), min_size=3, max_size=3),
)
def test_scalars_give_scalars(name, words):
    words = words[: ARITY[name]]
    given_ = [w - 2**32 if DTYPES[name] == np.int32 and w >= 2**31 else w for w in words]
    value, predicates = split(getattr(dpx, name)(*given_))
    assert type(value) is DTYPES[name].type
    assert all(type(p) is np.bool_ for p in predicates)
    assert (int(value) & 0xFFFFFFFF, tuple(map(bool, predicates))) == oracle(name, words)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_broadcasts_like_numpy(data):
    name = data.draw(st.sampled_from(["viaddmin_s32", "vimax3_u16x2", "vibmin_s16x2", "vibmax_u32"]))
    shape = tuple(data.draw(st.lists(st.integers(0, 5), max_size=3)))
    operands = []
    for x in sample(name, 512, data.draw(st.integers(0, 99))):
        dropped = data.draw(st.integers(0, len(shape)))
        own = [n if data.draw(st.booleans()) else 1 for n in shape[dropped:]]
        array = x[: int(np.prod(own))].reshape(own)
        view = data.draw(st.sampled_from(["plain", "reversed", "strided", "fortran"]))
        if view == "reversed":
            array = array[..., ::-1] if array.ndim else array
        elif view == "strided":
            array = np.repeat(array, 2, axis=-1)[..., ::2] if array.ndim else array
        elif view == "fortran":
            array = np.asfortranarray(array)
        operands.append(array)
    full = np.broadcast_arrays(*operands)
    value, predicates = split(getattr(dpx, name)(*operands))
    assert value.shape == full[0].shape
    want, wins = split(getattr(dpx, name)(*(np.ascontiguousarray(x) for x in full)))
    np.testing.assert_array_equal(value, want)
    for got, p in zip(predicates, wins, strict=True):
        np.testing.assert_array_equal(got, p)
    if value.size:
        check(name, (value, *predicates) if predicates else value, [np.ascontiguousarray(x) for x in full])


def test_out_is_filled_and_returned():
    a, b, c = sample("viaddmax_s32", 1000)
    want = dpx.viaddmax_s32(a, b, c)
    for out in (np.empty(1000, np.int32), np.empty((2, 1000), np.int32)[1], np.empty(2000, np.int32)[::2]):
        assert dpx.viaddmax_s32(a, b, c, out=out) is out
        np.testing.assert_array_equal(out, want)
    assert dpx.viaddmax_s32(a, b, c, out=(out,))[0] is out
    value, high, low = np.empty(1000, np.uint32), np.empty(1000, bool), np.empty(1000, bool)
    x, y = a.view(np.uint32), b.view(np.uint32)
    given_ = (value, high, low)
    assert dpx.vibmax_u16x2(x, y, out=given_) is given_
    check("vibmax_u16x2", given_, (x, y))


def test_out_may_overlap_the_operands():
    for shift in (0, 1, -1):
        a, b, c = sample("viaddmin_s32", 70_000)
        x = a.copy()
        source, target = x[max(0, -shift) :][:69_000], x[max(0, shift) :][:69_000]
        want = dpx.viaddmin_s32(source.copy(), b[:69_000], c[:69_000])
        dpx.viaddmin_s32(source, b[:69_000], c[:69_000], out=target)
        np.testing.assert_array_equal(target, want)


def test_one_compilation_serves_every_call():
    name = "vimin3_s32"
    a, b, c = sample(name, 64)
    dpx.vimin3_s32(a, b, c, out=np.empty_like(a))
    dpx.vimin3_s32(a[::2], 1, c[0])
    dpx.vimin3_s32(1, 2, 3)
    a.flags.writeable = False
    dpx.vimin3_s32(a.reshape(8, 8), b.reshape(8, 8), c[:8])
    assert len(ops.kernel(ops_row(name)).signatures) == 1


def ops_row(name):
    from nbtc.numerics.dpx import ROWS

    return ROWS[name]


def test_integers_of_other_types_are_taken_when_they_fit():
    assert dpx.vimax3_s32(np.int64([1, -5]), np.uint8(3), [2, 9]).tolist() == [3, 9]
    assert dpx.vimax3_u32(np.array([7], ">u4"), 1, 1).tolist() == [7]
    assert dpx.vimax3_s32(np.empty((0, 3), np.int8), 1, 1).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda out: dpx.vimax3_s32(np.zeros(3), 1, 2, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32(1.5, 1, 2, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32(True, 1, 2, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32("a", 1, 2, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32([[1], [1, 2]], 1, 2, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32(1 << 31, 1, 2, out=out), errors.RangeError),
        (lambda out: dpx.vimax3_s32([1 << 70], 1, 2, out=out), errors.RangeError),
        (lambda out: dpx.vimax3_s32(np.uint32([1 << 31]), 1, 2, out=out), errors.RangeError),
        (lambda out: dpx.vimax3_u32(-1, 1, 2, out=out.view(np.uint32)), errors.RangeError),
        (lambda out: dpx.vimax3_s32([1, 2], [1, 2, 3], 2, out=out), errors.ShapeError),
        (lambda out: dpx.vimax3_s32([1, 2], 1, 2, out=out), errors.ShapeError),
        (lambda out: dpx.vimax3_s32(1, 1, 2, out=out.view(np.uint32)), errors.FormatError),
        (lambda out: dpx.vimax3_s32(1, 1, 2, out=[0, 0, 0]), errors.FormatError),
        (lambda out: dpx.vimax3_s32(1, 1, 2, out=(out, out)), errors.FormatError),
        (lambda out: dpx.vibmax_s32(1, 1, out=out), errors.FormatError),
        (lambda out: dpx.vimax3_s32(1, 1, 2, out=np.broadcast_to(out, (3, 3))), errors.FormatError),
    ],
)
def test_wrong_input_raises_and_writes_nothing(call, error):
    out = np.array([11, 22, 33], np.int32)
    with pytest.raises(error) as raised:
        call(out)
    assert len(str(raised.value)) >= 40
    assert out.tolist() == [11, 22, 33]


def test_compiled_functions_refuse_floats():
    with pytest.raises(TypingError, match="takes integer scalars"):
        njit(lambda x: dpx.vimax3_s32(x, 1, 2))(1.5)


def test_inlined_into_vector_code():
    @njit
    def best(a, b, c, out):
        for i in range(out.size):
            out[i] = dpx.viaddmax_s32_relu(a[i], b[i], c[i])

    a, b, c = sample("viaddmax_s32_relu", 64)
    out = np.empty_like(a)
    best(a, b, c, out)
    check("viaddmax_s32_relu", out, (a, b, c))
    (code,) = best.inspect_llvm().values()
    assert re.search(r"<\d+ x i32> @llvm\.smax", code)


def test_first_use_may_be_inside_a_function_being_compiled():
    code = (
        "import numba, numpy as np, nbtc\n"
        "print(numba.njit(lambda x: nbtc.dpx.vimax3_s32(x, 2, 3))(9))\n"
        "print(numba.njit(lambda x: nbtc.warp.shfl_sync(0xFFFFFFFF, x, 3))(np.arange(32))[0])\n"
    )
    assert output(forked(code)).split() == ["9", "3"]


@pytest.mark.parametrize("name", ["viaddmax_s32", "viaddmax_u32", "vimax3_s16x2"])
def test_compiled_functions_refuse_what_python_refuses(name):
    """64-bit integers outside of the type's range; at its ends both give the same."""
    function, limits = getattr(dpx, name), np.iinfo(DTYPES[name])
    kernel = njit(lambda a, b, c: function(a, b, c))
    for value in (limits.min, limits.max):
        assert int(kernel(value, 0, 0)) == int(function(value, 0, 0))
        assert int(kernel(0, 0, value)) == int(function(0, 0, value))
    for value in (limits.min - 1, limits.max + 1, 1 << 40, np.uint64((1 << 64) - 1)):
        for position in range(3):
            arguments = [0, 0, 0]
            arguments[position] = value
            with pytest.raises(errors.RangeError):
                function(*arguments)
            with pytest.raises(errors.RangeError):
                kernel(*arguments)
