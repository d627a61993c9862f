"""Wrong calls: what cannot be called says what to call, far-fetched suggestions are not made, errors are nbtc's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc import ptx
from nbtc.errors import (
    BoundsError,
    DescriptorError,
    FormatError,
    NbtcError,
    OptionError,
    ParseError,
    ShapeError,
    UnsupportedInstructionError,
)  # fmt: skip
from nbtc.formats.table import FORMATS, Format
from nbtc.isa import mma, parse
from nbtc.wgmma import Descriptor, Sequence, smem_to_tile, tile_to_smem

CALLED = ("mma", "mma.sp", "wmma.mma")


@pytest.mark.parametrize("family", [f for f in parse.families() if f not in CALLED])
def test_a_call_names_the_function_that_works(family: str) -> None:
    row = next((r for r in parse.rows(family=family) if r.executable), None)
    if row is None:
        pytest.skip("no form of the family runs yet")
    with pytest.raises(UnsupportedInstructionError) as caught:
        nbtc.instruction(row.mnemonic)(np.zeros(32, np.uint32))
    words = [w.strip(",.:") for w in str(caught.value).split() if w.startswith("nbtc.")]
    assert words or "nothing to do" in str(caught.value)
    for word in words:
        found: Any = nbtc
        for part in word.split(".")[1:]:
            found = getattr(found, part)
        assert callable(found), word


def test_missing_operands_are_named() -> None:
    i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    with pytest.raises(FormatError, match="b and c not given"):
        i(np.zeros((32, 4), np.uint32))


@pytest.mark.parametrize(
    "text", ["fma.rn.f32", "HMMA.16816.F32 R4, R8, R2, R4 ;", "IMMA.16832.S8.S8 R0, R0, R2, R4", "ld.global.b32", "bra"]
)
def test_nothing_far_fetched_is_suggested(text: str) -> None:
    with pytest.raises(ParseError) as caught:
        nbtc.instruction(text)
    assert "Nearest" not in str(caught.value) and "near" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("mmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16"),
        ("ldmatirx.sync.aligned.m8n8.x4.shared.b16", "ldmatrix.sync.aligned.m8n8.x4"),
        ("wgma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "wgmma.mma_async.sync.aligned.m64n8k16"),
        ("mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32", "mma.sync.aligned.m16n8k16"),
    ],
)
def test_what_is_near_is_suggested(text: str, near: str) -> None:
    with pytest.raises(ParseError, match="Nearest") as caught:
        nbtc.instruction(text)
    assert near in str(caught.value)


def test_names_of_known_kin_say_what_there_is() -> None:
    try:
        found = nbtc.instruction("tcgen05.nothing.sync.aligned.32x32b.x1.b32 {r0}, [taddr];").family
    except ParseError as error:
        assert "of tcgen05 it has" in str(error) and "tcgen05.mma" in str(error)
    else:
        raise AssertionError(f"parsed as {found}")


def test_architectures_take_every_spelling() -> None:
    i = nbtc.instruction("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16")
    assert i.min_arch in i.archs and "sm_90a" in i.archs and 90 in i.archs and "sm_90" in i.archs
    assert "sm_80" not in i.archs and "volta" not in i.archs and None not in i.archs
    assert i.archs == ("sm_90",)


def test_the_other_operation_is_named() -> None:
    a = np.zeros((8, 256), bool)
    with pytest.raises(UnsupportedInstructionError, match=r"forms are \.and, not \.xor.*pass op='and'"):
        nbtc.matmul(a, a.T, op="xor", instruction="wgmma")
    assert "wgmma" in nbtc.plan(a, a.T, op="and", instruction="wgmma").instruction


def ragged() -> Any:
    return [[1], [1, 2]]


WG = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SMEM = np.zeros(4096, np.uint8)
WRONG: list[tuple[type[NbtcError], Callable[[], Any]]] = [
    (OptionError, lambda: nbtc.pack(np.zeros(8, np.int8), "s4", axis=1.0)),  # type: ignore[arg-type]
    (OptionError, lambda: nbtc.unpack(np.zeros(8, np.uint32), "s4", axis=None)),  # type: ignore[arg-type]
    (ShapeError, lambda: nbtc.pack(np.zeros(8, np.int8), "s4", axis=10**5000)),
    (FormatError, lambda: nbtc.pack(np.array([None]), "s4")),
    (FormatError, lambda: nbtc.pack(ragged(), "s4")),
    (FormatError, lambda: nbtc.as_format({})),
    (FormatError, lambda: nbtc.as_format([])),
    (FormatError, lambda: nbtc.convert(np.array([None]), "f16")),
    (OptionError, lambda: nbtc.convert(np.zeros(2, np.float32), "f16", rounding=[])),  # type: ignore[arg-type]
    (DescriptorError, lambda: smem_to_tile(SMEM, 0, (8, 8), "f16")),  # type: ignore[arg-type]
    (DescriptorError, lambda: smem_to_tile(SMEM, None, (8, 8), "f16")),  # type: ignore[arg-type]
    (FormatError, lambda: smem_to_tile(ragged(), Descriptor(0, 16, 128), (8, 8), "f16")),
    (OptionError, lambda: tile_to_smem(np.zeros((8, 8), np.float16), "f16", [])),  # type: ignore[arg-type]
    (OptionError, lambda: tile_to_smem(np.zeros((8, 8), np.float16), "f16", "k", [])),  # type: ignore[arg-type]
    (OptionError, lambda: tile_to_smem(np.zeros((8, 8), np.float16), "f16", np.zeros(2))),  # type: ignore[arg-type]
    (FormatError, lambda: tile_to_smem(np.array([[None]]), "f16")),
    (OptionError, lambda: ptx.ldmatrix(SMEM, 16 * np.arange(32), shape=[])),  # type: ignore[arg-type]
    (OptionError, lambda: ptx.ldmatrix(SMEM, 16 * np.arange(32), num=[])),  # type: ignore[arg-type]
    (OptionError, lambda: ptx.ldmatrix(SMEM, 16 * np.arange(32), trans=[])),  # type: ignore[arg-type]
    (OptionError, lambda: ptx.ldmatrix(SMEM, 16 * np.arange(32), type={})),  # type: ignore[arg-type]
    (FormatError, lambda: ptx.wgmma(WG, ragged(), 0, 0, SMEM)),
    (BoundsError, lambda: Sequence(64).load(0, -1)),
    (BoundsError, lambda: Sequence(64).load(-1, 1)),
    (BoundsError, lambda: Sequence(64).load(np.uint8(250), np.uint8(250))),  # type: ignore[arg-type]
    (BoundsError, lambda: Sequence(64).load(10**5000, 1)),
    (FormatError, lambda: Sequence(64).load(0.5, 1)),  # type: ignore[arg-type]
    (BoundsError, lambda: Sequence(-1)),
    (BoundsError, lambda: Sequence(10**30)),
    (BoundsError, lambda: Sequence(64).registers(-1)),
    (FormatError, lambda: Sequence(64).store(0, np.array([None]))),
    (ShapeError, lambda: Sequence(np.zeros((2, 64), np.uint8)).store(0, np.zeros((3, 8), np.uint8))),
]


@pytest.mark.parametrize("n", range(len(WRONG)))
def test_errors_are_ours(n: int) -> None:
    kind, call = WRONG[n]
    with pytest.raises(kind) as caught:
        call()
    assert 40 <= len(str(caught.value)) < 1000


def test_an_empty_batch_of_descriptors_is_an_empty_batch() -> None:
    none = np.zeros(0, np.uint64)
    assert ptx.wgmma(WG, np.zeros((0, 128, 4), np.uint32), none, none, SMEM).shape == (0, 128, 4)


def test_rows_that_nothing_serves_are_refused_by_name() -> None:
    """A scale is no multiplicand, six bits do not pack, and a format that came too late is in no kernel's tables."""
    with pytest.raises(FormatError, match="no kernel multiplies ue8m0"):
        list(mma.dense("m16n8k64", nbtc.ue8m0, nbtc.ue8m0, nbtc.f32, "sm_90"))
    with pytest.raises(FormatError, match=r"slots of 6 bits .* e2m3"):
        list(mma.dense("m16n8k64", nbtc.e2m3, nbtc.e2m3, nbtc.f32, "sm_90"))
    late = Format("e3m4", 40, "float", 8, 3, 4, dtype_name="float8_e3m4")
    (row,) = mma.dense("m16n8k96", late, late, nbtc.f32, "sm_90")
    x = np.zeros((16, 96), late.dtype), np.zeros((96, 8), late.dtype), np.zeros((16, 8), np.float32)
    nbtc.matmul(np.zeros((2, 2), np.float16), np.zeros((2, 2), np.float16))  # kernels are loaded
    parse.register(row)
    FORMATS["e3m4"] = late
    try:
        i = nbtc.instruction(row.mnemonic)
        with pytest.raises(UnsupportedInstructionError, match="no kernel multiplies e3m4"):
            i(i.pack_a(x[0]), i.pack_b(x[1]), i.pack_c(x[2]))
        with pytest.raises(UnsupportedInstructionError, match="no kernel multiplies e3m4"):
            nbtc.matmul(x[0], x[1], a_format=late, b_format=late, instruction=row.mnemonic)
    finally:
        parse.unregister(row)
        del FORMATS["e3m4"]


def test_a_row_that_would_not_parse_is_not_added() -> None:
    odd = Format("nib", 41, "float", 8, 4, 3, dtype_name="float8_e4m3")
    (row,) = mma.dense("m16n8k32", odd, odd, nbtc.f32, "sm_90")
    with pytest.raises(ParseError, match="would not parse"):
        parse.register(row)
