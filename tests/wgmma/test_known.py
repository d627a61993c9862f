"""Warpgroup products that are asked for again: what was checked for the first one holds for theirs alone."""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc.errors import BoundsError, DescriptorError, FormatError, NbtcError, OptionError, ShapeError
from nbtc.isa.parse import row
from nbtc.ops.wgmma import known
from nbtc.wgmma import Descriptor, tile_to_smem

DEPTHS = {"f32.f16.f16": 16, "f16.f16.f16": 16, "f32.tf32.tf32": 8, "f32.e4m3.e4m3": 32, "s32.s8.s8": 32}


@pytest.fixture(autouse=True)
def nothing_known() -> None:
    known.cache_clear()


class Call:
    """A product and its operands, which `draw` makes anew; lead: axes of its batch."""

    def __init__(self, types: str, n: int = 16, lead: tuple[int, ...] = (), registers: bool = False) -> None:
        self.name, self.lead = f"wgmma.mma_async.sync.aligned.m64n{n}k{DEPTHS[types]}.{types}", lead
        form, self.rng = row(self.name), np.random.default_rng(3)
        assert form.a is not None and form.b is not None and form.d is not None
        self.a_format, self.n, self.k, self.d_registers = form.a.format, n, DEPTHS[types], form.d.registers
        self.of_registers = registers
        self.draw()

    def elements(self, *shape: int) -> Any:
        if self.a_format.kind == "int":
            return self.rng.integers(-128, 128, shape, np.int8)
        return self.rng.standard_normal(shape).astype(np.float32).astype(self.a_format.dtype)

    def draw(self) -> None:
        images = []
        for _ in range(int(np.prod(self.lead, dtype=int))):
            (a, da), (b, db) = (tile_to_smem(self.elements(r, self.k), self.a_format) for r in (64, self.n))
            images.append(np.concatenate([a, b]))
        self.smem = np.array(images).reshape(*self.lead, -1)
        self.a: Any = da.encode()
        self.b = Descriptor(a.size, db.leading, db.stride).encode()
        if self.of_registers:
            self.a = self.rng.integers(0, 1 << 16, (*self.lead, 128, 4), np.uint32) & np.uint32(0x3BFF3BFF)
        self.d = self.rng.integers(0, 1 << 14, (*self.lead, 128, self.d_registers), np.uint32)

    def __call__(self, **options: Any) -> Any:
        given = {"d": self.d, "a": self.a, "b_desc": self.b, "smem": self.smem} | options
        return nbtc.ptx.wgmma(self.name, **given)

    def first(self, **options: Any) -> Any:
        """The same, checked and worked out."""
        known.cache_clear()
        d = self(**options)
        known.cache_clear()
        return d


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize("lead", [(), (1,), (2, 3)])
@pytest.mark.parametrize("types", DEPTHS)
def test_the_bits_are_those_of_the_first(types: str, lead: tuple[int, ...], registers: bool) -> None:
    call = Call(types, lead=lead, registers=registers)
    floats = types != "s32.s8.s8"
    forms: tuple[dict[str, Any], ...] = ({}, {"scale_d": 0}, {"arch": "sm_90a"}, *([{"scale_a": -1}] if floats else []))
    wanted, found = [], []
    for turn in range(4):
        call.draw()
        if turn == 3 and floats:
            call.smem.reshape(-1).view(np.uint8)[:64] = 0xFF  # NaNs, which are for the general path
        for form in forms:
            found.append(call(**form))
        kept = dict(known._KNOWN)
        wanted += [call.first(**form) for form in forms]
        known._KNOWN.update(kept)
    assert len(known._KNOWN) == len(forms)
    for x, y in zip(found, wanted, strict=True):
        assert x.shape == y.shape and x.dtype == y.dtype and (x == y).all()
    assert len({x.ctypes.data for x in found}) == len(found)


def test_nothing_else_is_taken_for_it() -> None:
    call = Call("f32.f16.f16")
    call()
    others: tuple[dict[str, Any], ...] = (
        {"d": call.d + 1}, {"d": np.asfortranarray(call.d)}, {"d": np.stack([call.d, call.d])}, {"scale_b": -1},
        {"smem": np.concatenate([call.smem, call.smem])}, {"smem": np.repeat(call.smem, 2)[::2]}, {"trans_b": 0},
        {"a": np.uint64(call.a)}, {"a": Descriptor.decode(call.a)}, {"b_desc": [call.b, call.b]}, {"threads": 2},
        {"scale_d": np.array([0, 1])}, {"scale_d": False}, {"arch": "H100"},
    )  # fmt: skip
    for other in others:
        assert (call(**other) == call.first(**other)).all(), other
        call()
    read_only = call.d.copy()
    read_only.flags.writeable = False
    assert (call(d=read_only) == call()).all()
    for shape in ((), (1,)):  # descriptors in arrays, one after the other
        words = [np.array((call.a & 0xFFFF0000) + n, np.uint32).reshape(shape) for n in (0, 4)]
        wanted = [call.first(a=word) for word in words]
        assert not (wanted[0] == wanted[1]).all()
        assert all((call(a=word) == want).all() for word, want in zip(words, wanted, strict=True))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"scale_a": 1.0}, OptionError),
        ({"scale_a": True}, OptionError),
        ({"trans_a": 0.0}, OptionError),
        ({"scale_d": 2}, OptionError),
        ({"scale_d": 1.0}, OptionError),
        ({"threads": 0}, OptionError),
        ({"threads": True}, OptionError),
        ({"arch": "sm_80"}, NbtcError),
        ({"arch": []}, NbtcError),
        ({"d": np.zeros((128, 8), np.int32)}, FormatError),
        ({"d": np.zeros((128, 4), np.uint32)}, ShapeError),
        ({"smem": np.zeros(64, np.uint8)}, BoundsError),
        ({"b_desc": 2.0}, DescriptorError),
        ({"meta": np.zeros(128, np.uint32)}, NbtcError),
    ],
    ids=str,
)
def test_wrong_arguments_are_refused_as_before(options: dict[str, Any], error: type[Exception]) -> None:
    call = Call("f32.f16.f16")
    with pytest.raises(error) as before:
        call(**options)
    call()
    call()
    with pytest.raises(error) as after:
        call(**options)
    assert str(after.value) == str(before.value)


def test_rows_that_are_added_count(monkeypatch: pytest.MonkeyPatch) -> None:
    call = Call("f32.f16.f16")
    call()
    monkeypatch.setattr(known, "changes", lambda: 1 << 40)
    call()
    assert len(known._KNOWN) == 2


def test_arrays_are_not_kept_and_products_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known, "MOST", 3)
    for lead in ((), (1,), (2,), (3,), (4,)):
        call = Call("f32.f16.f16", lead=lead, registers=True)
        arrays = [weakref.ref(x) for x in (call.d, call.smem, call.a, call())]
        del call
        assert [x() for x in arrays] == [None] * 4
    assert len(known._KNOWN) == 3
    monkeypatch.setattr("nbtc.ops.wgmma.product.MOST_GROUPS", 4)
    known.cache_clear()
    Call("f32.f16.f16", lead=(5,))()
    assert not known._KNOWN
