"""Arrays to bits and back, packed words, and the naming of formats."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc import dpx, matmul, ptx, warp
from nbtc.errors import FormatError, OptionError, RangeError, ShapeError
from nbtc.formats.arrays import as_array, as_format, from_bits, pack, to_bits, unpack
from nbtc.formats.table import FORMATS, Format

ALL = list(FORMATS.values())
PACKED = [f for f in ALL if f.packed and f.kind != "float"]


@pytest.mark.parametrize("fmt", ALL, ids=str)
def test_a_format_is_named_by_object_name_and_dtype(fmt: Format) -> None:
    assert as_format(fmt) is fmt
    assert as_format(fmt.name) is fmt
    carried = {"tf32": FORMATS["f32"], "ue4m3": FORMATS["e4m3"]}.get(fmt.name, fmt)
    for name in (fmt.dtype, fmt.dtype.type, fmt.dtype.name, f"torch.{fmt.dtype.name}"):
        assert as_format(name) is carried


@pytest.mark.parametrize("name", [None, "f8", "float", "tf3", int, np.int64, "float8_e4m3fnuz", object(), [1, 2], 3])
def test_what_names_no_format_raises(name: object) -> None:
    with pytest.raises(FormatError, match=r"names no number format.*try a format"):
        as_format(name)


class FakeTorchDtype:
    """Prints as torch's dtypes do, and comes from a module of that name."""

    __module__ = "torch"

    def __repr__(self) -> str:
        return "torch.bfloat16"


def test_torch_dtypes_are_named_without_importing_torch() -> None:
    assert as_format(FakeTorchDtype()) is FORMATS["bf16"]


class Exported:
    """Speaks DLPack and nothing else."""

    def __init__(self, x: np.ndarray) -> None:
        self.x = x

    def __dlpack__(self, **how: object) -> object:
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.x.__dlpack_device__()


def test_dlpack_and_foreign_byte_order_are_read() -> None:
    x = np.arange(6, dtype=np.float32)
    assert np.shares_memory(as_array(Exported(x)), x)
    assert to_bits(np.array([1.0, 2.0], ">f4")).tolist() == [0x3F800000, 0x40000000]


@pytest.mark.parametrize("fmt", [f for f in ALL if f.bits <= 16], ids=str)
def test_every_code_survives_the_round_trip(fmt: Format) -> None:
    codes = np.arange(1 << fmt.bits).astype(fmt.bits_dtype)
    array = from_bits(codes, fmt)
    assert array.dtype == fmt.dtype
    assert (to_bits(array, fmt) == codes).all()
    if fmt.kind == "int":
        assert int(array.astype(np.int64).min()) == fmt.low
        assert int(array.astype(np.int64).max()) == fmt.high


def test_bits_are_views_where_a_view_can_serve() -> None:
    x = np.zeros((4, 6), np.float16, order="F")[::2, ::-1]
    assert np.shares_memory(to_bits(x), x)
    assert np.shares_memory(from_bits(to_bits(x), "f16"), x)
    assert to_bits(np.array([True, False])).dtype == np.uint8


def test_int4_bits_are_the_low_nibble_whatever_is_above_it() -> None:
    x = np.array([0xF8, 0x0F, 0x17], np.uint8).view(ml_dtypes.int4)
    assert to_bits(x).tolist() == [8, 15, 7]


@pytest.mark.parametrize(
    ("x", "fmt"), [(np.zeros(2, np.uint16), "f16"), (np.zeros(2), "f32"), (np.zeros(2, np.int8), "s4")]
)
def test_bits_of_another_dtype_raise(x: np.ndarray, fmt: str) -> None:
    with pytest.raises(FormatError, match=r"astype.*view"):
        to_bits(x, fmt)


def test_from_bits_wants_words_of_the_width() -> None:
    with pytest.raises(FormatError, match="bits of f16 are uint16"):
        from_bits(np.zeros(2, np.uint32), "f16")
    with pytest.raises(FormatError, match="bits of e4m3 are uint8"):
        from_bits(np.zeros(2, np.float16), "e4m3")


@given(data=st.data(), fmt=st.sampled_from(PACKED), shape=st.lists(st.integers(0, 40), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_packing_matches_its_definition_and_inverts(data: st.DataObject, fmt: Format, shape: list[int]) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    seed = data.draw(st.integers(0, 2**32 - 1))
    values = np.random.default_rng(seed).integers(fmt.low, fmt.high + 1, shape)
    words = pack(values, fmt, axis)
    per = 32 // fmt.bits
    assert words.dtype == np.uint32
    assert words.shape[axis] == -(-shape[axis] // per)
    lines = np.moveaxis(values, axis, -1).reshape(-1, shape[axis]) if values.size else values[:0]
    packed = np.moveaxis(words, axis, -1).reshape(-1, words.shape[axis]) if values.size else words[:0]
    mask = (1 << fmt.bits) - 1
    for line, got in zip(lines[:4], packed[:4], strict=True):
        number = sum((int(v) & mask) << (fmt.bits * i) for i, v in enumerate(line))
        assert sum(int(w) << (32 * i) for i, w in enumerate(got)) == number
    back = unpack(words, fmt, axis, count=shape[axis])
    assert back.dtype == fmt.dtype
    assert (back.astype(np.int64) == values).all()
    assert (pack(back, fmt, axis) == words).all()
    assert unpack(words, fmt, axis).shape[axis] == per * words.shape[axis]


def test_words_may_be_signed_and_strided() -> None:
    words = pack(np.arange(-8, 8).reshape(2, 8), "s4")
    assert (unpack(words.view(np.int32), "s4") == unpack(words, "s4")).all()
    assert (unpack(np.repeat(words, 2, 0)[::2], "s4") == unpack(words, "s4")).all()


@pytest.mark.parametrize(
    ("values", "fmt"), [([8], "s4"), ([-9], "s4"), ([16], "u4"), ([-1], "u4"), ([2], "b1"), ([0, 0, 300], "u4")]
)
def test_values_out_of_range_raise_and_are_named(values: list[int], fmt: str) -> None:
    with pytest.raises(RangeError, match=rf"value {values[-1]} does not fit {fmt}.*np\.clip"):
        pack(values, fmt)


def test_an_int4_array_out_of_uint4s_range_raises() -> None:
    with pytest.raises(RangeError, match="value -1"):
        pack(np.array([-1]).astype(ml_dtypes.int4), "u4")
    assert pack(np.array([7, 1]).astype(ml_dtypes.int4), "u4").tolist() == [0x17]


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: pack([0.5], "s4"), FormatError),
        (lambda: pack([1], "f16"), FormatError),
        (lambda: pack([1], "s8"), FormatError),
        (lambda: pack(1, "s4"), ShapeError),
        (lambda: pack([1], "s4", axis=1), ShapeError),
        (lambda: unpack(np.zeros(2, np.float32), "s4"), FormatError),
        (lambda: unpack(np.zeros(2, np.uint8), "b1"), FormatError),
        (lambda: unpack(np.zeros(2, np.uint32), "e4m3"), FormatError),
        (lambda: unpack(np.zeros(2, np.uint32), "s4", count=17), RangeError),
        (lambda: unpack(np.zeros(2, np.uint32), "s4", count=-1), RangeError),
        (lambda: unpack(np.zeros(2, np.uint32), "s4", count=True), OptionError),
        (lambda: unpack(np.zeros(2, np.uint32), "s4", count=1.5), OptionError),
        (lambda: unpack(np.zeros(2, np.uint32), "s4", axis=-2), ShapeError),
    ],
)  # fmt: skip
def test_wrong_input_says_what_would_work(call: object, error: type[Exception]) -> None:
    with pytest.raises(error) as caught:
        call()  # type: ignore[operator]
    assert len(str(caught.value)) >= 40


CALLS = {
    "matmul": lambda wrap: matmul(wrap(np.eye(16, dtype=np.float16)), np.eye(16, dtype=np.float16)),
    "matmul c": lambda wrap: matmul(*[np.eye(16, dtype=np.float16)] * 2, wrap(np.eye(16, dtype=np.float32))),
    "pack": lambda wrap: pack(wrap(np.eye(16, dtype=np.int8)), "s4"),
    "dpx": lambda wrap: dpx.vimax3_s32(wrap(np.eye(16, dtype=np.int32)), 1, 2),
    "reduce": lambda wrap: warp.reduce_add_sync(0xFFFFFFFF, wrap(np.ones((2, 32), np.int32))),
    "mask": lambda wrap: warp.reduce_add_sync(wrap(np.full((2, 1), 15, np.uint32)), np.ones((2, 32), np.int32)),
    "ldmatrix": lambda wrap: ptx.ldmatrix(wrap(np.zeros((1, 512), np.uint8)), 16 * np.arange(32)),
    "cvt": lambda wrap: ptx.cvt("cvt.rn.f16.f32", wrap(np.zeros((2, 2), np.uint32))),
}


@pytest.mark.parametrize("name", CALLS)
def test_masked_arrays_are_refused_by_every_call(name: str) -> None:
    for mask in (True, np.ma.nomask):
        with pytest.raises(FormatError, match=r"masked.*filled"):
            CALLS[name](lambda x, mask=mask: np.ma.array(x, mask=mask))


class Named(np.ndarray):
    """A subclass with state, as libraries of units or labels have them."""


@pytest.mark.parametrize("name", CALLS)
def test_subclasses_count_as_the_arrays_they_hold(name: str) -> None:
    want = CALLS[name](lambda x: x)
    for kind in (np.matrix, Named, np.memmap):
        found = CALLS[name](lambda x, kind=kind: x.view(kind))
        assert type(found) is np.ndarray and found.shape == want.shape and found.tobytes() == want.tobytes()


def test_any_byte_of_a_bool_but_zero_is_true() -> None:
    odd = np.array([0, 1, 2, 128, 255] * 20, np.uint8).view(np.bool_)
    assert (to_bits(odd) == to_bits(odd.view(np.uint8) != 0)).all()
    a = np.resize(odd, (8, 100))
    assert (matmul(a, a.T) == matmul(a.view(np.uint8) != 0, (a.view(np.uint8) != 0).T)).all()
    assert (pack(odd, "b1") == pack(odd.view(np.uint8) != 0, "b1")).all()
