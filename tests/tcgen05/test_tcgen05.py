"""Tensor memory: descriptors, moves, products of every kind against matmul, hazards, and what raises by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nbtc
from nbtc import tcgen05, wgmma
from nbtc.errors import (
    BoundsError,
    DescriptorError,
    HazardError,
    OptionError,
    ShapeError,
    UnsupportedInstructionError,
)
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS
from nbtc.ops.tcgen05.moves import SHAPES, places
from nbtc.ops.tcgen05.product import d_places
from nbtc.tcgen05 import Descriptor, InstructionDescriptor, TensorMemory

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")


def tile(codes: np.ndarray, fmt: str, at: int, smem: np.ndarray, packed: bool = False) -> Descriptor:
    """Write codes (MN, K) to shared memory, K-major without swizzle, and describe them."""
    f = FORMATS[fmt]
    rows, k = codes.shape
    row, column = np.arange(rows)[:, None], np.arange(k)[None, :]
    d = Descriptor(at, rows * 16, 128)
    if f.bits == 4:
        where = d.address(row, column, "mxf4") if packed else d.address(row, column // 16 * 16, "u8") + column % 16 // 2
        np.bitwise_or.at(smem, where, codes << (4 * (column % 2)).astype(np.uint8))
    else:
        octets = np.ascontiguousarray(codes).view(np.uint8).reshape(*codes.shape, -1)
        smem[d.address(row, column, fmt)[..., None] + np.arange(octets.shape[-1])] = octets
    return d


def draw(rng: np.random.Generator, fmt: str, shape: tuple[int, int]) -> np.ndarray:
    """Codes of ordinary numbers."""
    f = FORMATS[fmt]
    if f.kind == "int":
        return rng.integers(0, 256, shape, dtype=np.uint8)
    if f.bits < 8:
        return rng.integers(0, 1 << f.bits, shape, dtype=np.uint8)
    return np.asarray(to_bits(rng.standard_normal(shape).astype(np.float32).astype(f.dtype), f))


def run(
    kind: str, formats: tuple[str, str, str], shape: tuple[int, int], group: int = 1, a_in_tmem: bool = False,
    enable: bool = True, scale: str = "", size: str = "", **modifiers: Any,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """D of tcgen05.mma and of matmul."""
    rng, (a, b, d), (m, n) = np.random.default_rng(m_seed := sum(shape)), formats, shape
    assert m_seed
    i = InstructionDescriptor(kind, d, a, b, m, n, scale=scale, **modifiers)
    x, y = draw(rng, a, (m, i.k)), draw(rng, b, (n, i.k))
    c = draw(rng, d, (m, n)) if d != "s32" else rng.integers(0, 1 << 32, (m, n), dtype=np.uint32)
    ctas = [(TensorMemory(), np.zeros(1 << 16, np.uint8)) for _ in range(group)]
    packed = kind.startswith("mxf4")
    for g, (_, s) in enumerate(ctas):
        each, part = m // group, n // group
        da = tile(x[g * each : (g + 1) * each], a, 0, s, packed)
        db = tile(y[g * part : (g + 1) * part], b, 1 << 15, s, packed)
    cta, lane, column = d_places(m, n, group)
    for g, (t, _) in enumerate(ctas):
        mine = cta == g
        t.words[lane[mine], column[mine]] = c[mine]
    where: Any = da
    if a_in_tmem:
        where = 300
        width = 8 if FORMATS[a].bits < 8 and not packed else FORMATS[a].bits
        codes = x << np.uint8(2) if a == "e2m1" and not packed else x
        words = nbtc.pack(from_bits(x, a), a) if packed else np.ascontiguousarray(codes).view("<u4")
        assert words.shape == (m, 8), width
        for j in (0, n - 1):
            for r in range(m):
                ctas[cta[r, j]][0].words[lane[r, j], 300:308] = words[r]
    more: dict[str, Any] = {}
    options: dict[str, Any] = {"arch": "sm_100", "instruction": "tcgen05", "kind": kind, "acc": d}
    if scale:
        chunks = int(size[0])
        sa, sb = (rng.integers(118, 134, s, dtype=np.uint8) if scale == "ue8m0" else
                  rng.integers(0, 120, s, dtype=np.uint8) for s in ((m, chunks), (n, chunks)))  # fmt: skip
        for g, (t, _) in enumerate(ctas):
            each = m // group
            halves = [(0, 1), (2, 3)] if (m, group) == (128, 2) else [(0, 1, 2, 3)]
            part = n // len(halves)
            jobs = [(sa[g * each : (g + 1) * each], 400, (0, 1, 2, 3), i.scale_a_id)]
            jobs += [(sb[h * part : (h + 1) * part], 420, q, i.scale_b_id) for h, q in enumerate(halves)]
            for codes, at, quarters, byte in jobs:
                for mn, line in enumerate(codes):
                    word = sum(int(v) << 8 * (byte + j) for j, v in enumerate(line))
                    for q in quarters:
                        t.words[32 * q + mn % 32, at + mn // 32] = word
        more = {"scale_a": 400, "scale_b": 420}
        options |= {"scale_a": from_bits(sa, scale), "scale_b": from_bits(np.ascontiguousarray(sb.T), scale)}
    name = f"tcgen05.mma.cta_group::{group}.kind::{kind}" + (f".block_scale.scale_vec::{size}" if scale else "")
    memories = tuple(zip(*ctas, strict=True)) if group == 2 else ctas[0]
    tcgen05.mma(name, memories[0], 0, where, db, i, memories[1], a_in_tmem=a_in_tmem, enable_d=enable, **more)
    got = np.stack([t.words for t, _ in ctas])[cta, lane, column]
    if i.saturate:
        options["saturate"] = True
    x = x ^ x.dtype.type(1 << (FORMATS[a].bits - 1)) if i.negate_a else x
    accumulator = from_bits(c.astype(FORMATS[d].bits_dtype), d)
    want = nbtc.matmul(
        from_bits(x, a), from_bits(np.ascontiguousarray(y.T), b), accumulator if enable else None, **options
    )
    return got, want.view(FORMATS[d].bits_dtype).astype(np.uint32)


PLAIN = [
    ("f16", ("f16", "f16", "f32"), (128, 16)), ("f16", ("bf16", "bf16", "f32"), (64, 24)),
    ("f16", ("f16", "f16", "f16"), (64, 8)), ("tf32", ("tf32", "tf32", "f32"), (64, 8)),
    ("f8f6f4", ("e4m3", "e5m2", "f32"), (64, 16)), ("f8f6f4", ("e2m1", "e4m3", "f16"), (64, 8)),
    ("i8", ("s8", "u8", "s32"), (64, 24)),
]  # fmt: skip


@pytest.mark.parametrize("case", PLAIN, ids=lambda c: f"{c[0]}-{'-'.join(c[1])}-{c[2][0]}")
def test_products_of_one_cta(case: tuple[str, tuple[str, str, str], tuple[int, int]]) -> None:
    got, want = run(*case)
    assert (got == want).all()


@pytest.mark.parametrize("m", [128, 256])
@pytest.mark.parametrize("a_in_tmem", [False, True])
def test_a_pair_of_ctas_shares_a_product(m: int, a_in_tmem: bool) -> None:
    got, want = run("f16", ("f16", "f16", "f32"), (m, 32), 2, a_in_tmem)
    assert (got == want).all()


@pytest.mark.parametrize("case", [("f8f6f4", ("e2m1", "e2m1", "f32")), ("f8f6f4", ("e3m2", "e4m3", "f32")),
                                  ("f16", ("bf16", "bf16", "f32")), ("i8", ("u8", "u8", "s32"))])  # fmt: skip
def test_a_in_tensor_memory(case: tuple[str, tuple[str, str, str]]) -> None:
    got, want = run(*case, (64, 8), a_in_tmem=True)
    assert (got == want).all()


SCALED = [("mxf8f6f4", "e4m3", "ue8m0", "1X"), ("mxf4", "e2m1", "ue8m0", "2X"), ("mxf4nvf4", "e2m1", "ue8m0", "2X"),
          ("mxf4nvf4", "e2m1", "ue8m0", "4X"), ("mxf4nvf4", "e2m1", "ue4m3", "4X")]  # fmt: skip


@pytest.mark.parametrize("case", SCALED, ids="-".join)
@pytest.mark.parametrize(("m", "group"), [(128, 1), (128, 2), (256, 2)])
def test_block_scales(case: tuple[str, str, str, str], m: int, group: int) -> None:
    kind, fmt, scale, size = case
    byte = {"1X": 3, "2X": 2, "4X": 0}[size]
    got, want = run(kind, (fmt, fmt, "f32"), (m, 16 * group), group, scale=scale, size=size, scale_a_id=byte)
    assert (got == want).all()


def test_modifiers() -> None:
    for how in ({"enable": False}, {"negate_a": True}):
        got, want = run("f16", ("f16", "f16", "f32"), (64, 8), **how)
        assert (got == want).all()
    got, want = run("i8", ("s8", "s8", "s32"), (64, 8), saturate=True)
    assert (got == want).all()


def test_descriptors_round_trip() -> None:
    cases = (
        ("f16", ("bf16", "bf16", "f32"), ""), ("i8", ("s8", "u8", "s32"), ""), ("f8f6f4", ("e3m2", "e5m2", "f16"), ""),
        ("mxf4nvf4", ("e2m1", "e2m1", "f32"), "ue4m3"), ("mxf8f6f4", ("e2m3", "e4m3", "f32"), "ue8m0"),
    )  # fmt: skip
    for kind, (a, b, d), scale in cases:
        how = {"transpose_b": kind == "f16", "negate_a": kind != "i8", "scale": scale}
        i = InstructionDescriptor(kind, d, a, b, 256, 248, **how)
        assert InstructionDescriptor.decode(i.encode(), kind) == i
        assert i.explain().startswith(f"0x{i.encode():08x}")
        with pytest.raises(DescriptorError, match="reserves"):
            InstructionDescriptor.decode(i.encode() | 4, kind)
    # formats, N / 8, M / 16 and the accumulator where the ISA's table has them
    word = InstructionDescriptor("f8f6f4", "f32", "e2m1", "e3m2", 128, 256).encode()
    assert word == 1 << 4 | 5 << 7 | 4 << 10 | 32 << 17 | 8 << 24
    for wrong in (("f16", "f16", "bf16", "bf16", 128, 64), ("f16", "f32", "f16", "f16", 100, 64), ("f9", "f32", "f16",
                  "f16", 128, 64), ("mxf4", "f32", "e2m1", "e2m1", 128, 64)):  # fmt: skip
        with pytest.raises(DescriptorError):
            InstructionDescriptor(*wrong)
    for swizzle, code in (("none", 0), ("128B", 2), ("64B", 4), ("32B", 6)):
        d = Descriptor(1024, 512, 1024, swizzle=swizzle)
        assert d.encode() >> 61 == code and d.encode() >> 46 & 7 == 1 and Descriptor.decode(d.encode()) == d
        other = wgmma.Descriptor(1024, 512, 1024, swizzle=swizzle)
        rows, k = np.arange(64)[:, None], np.arange(16)[None, :]
        for major in ("k", "mn"):
            assert (d.address(rows, k, "f16", major) == other.address(rows, k, "f16", major)).all()
    with pytest.raises(DescriptorError, match="0b001"):
        Descriptor.decode(wgmma.Descriptor(0, 16, 128).encode())
    with pytest.raises(UnsupportedInstructionError, match="32-byte atoms"):
        Descriptor.decode(1 << 61 | 1 << 46)
    with pytest.raises(UnsupportedInstructionError, match="no chip has confirmed"):
        Descriptor(0, 16, 128).address(0, 0, "tf32", "mn")


@pytest.mark.parametrize("shape", SHAPES)
def test_loads_and_stores(shape: str) -> None:
    most, half = SHAPES[shape][1], SHAPES[shape][2]
    for num in (1, 2, min(16, most)):
        split = 4 * num if shape == "16x32bx2" else 0
        lane, column = places(shape, num, split)
        assert np.unique(lane * 512 + column).size == lane.size and lane.max() < half
        t = TensorMemory()
        x = np.random.default_rng(num).integers(0, 1 << 32, (128, lane.shape[1]), dtype=np.uint32)
        base = 16 << 16 | 64 if half == 16 else 64
        tcgen05.st(t, base, x, shape, num, split)
        with pytest.raises(HazardError, match="wait_st"):
            tcgen05.ld(t, base, shape, num, split)
        tcgen05.wait_st(t)
        assert (tcgen05.ld(t, base, shape, num, split) == x).all()
        quarter = 32 * (np.arange(128) // 32)[:, None] + (16 if half == 16 else 0)
        assert (t.words[quarter + np.tile(lane, (4, 1)), 64 + np.tile(column, (4, 1))] == x).all()
    packed = TensorMemory()
    tcgen05.st(packed, 0, np.full((128, 2), 0x00020001, np.uint32), num=2, unpack=True)
    tcgen05.wait_st(packed)
    assert packed.words[5, :5].tolist() == [1, 2, 1, 2, 0]
    assert (tcgen05.ld(packed, 0, num=2, pack=True) == 0x00020001).all()


def test_copies_bring_tiles_of_scales() -> None:
    scales = np.random.default_rng(1).integers(0, 256, (128, 4), dtype=np.uint8)
    t, smem = TensorMemory(), nbtc.mx.to_blocked(scales)
    tcgen05.cp(t, 7, Descriptor(0, 16, 128), smem, "32x128b.warpx4")
    for r in range(128):
        for quarter in range(4):
            word = int(t.words[32 * quarter + r % 32, 7 + r // 32])
            assert [word >> 8 * j & 255 for j in range(4)] == scales[r].tolist()
    rows = np.arange(4096, dtype=np.uint32).view(np.uint8)
    tcgen05.cp(t, 100, Descriptor(0, 2048, 128), rows, "128x256b")
    assert t.words[9, 100:108].tolist() == [36, 37, 38, 39, 512 + 36, 512 + 37, 512 + 38, 512 + 39]
    with pytest.raises(OptionError, match=r"none of tcgen05\.cp"):
        tcgen05.cp(t, 0, Descriptor(0, 16, 128), smem, "16x128b")
    with pytest.raises(UnsupportedInstructionError, match="not verified"):
        tcgen05.cp(t, 0, Descriptor(0, 16, 128), smem, "128x256b", ".b8x16.b4x16_p64")


def test_allocation() -> None:
    t = TensorMemory()
    first, second = tcgen05.alloc(t, 256), tcgen05.alloc(t, 128)
    assert (first, second, tcgen05.alloc(t, 64)) == (0, 256, 384)
    for wrong in (48, 16, 1024):
        with pytest.raises(OptionError, match="power of two"):
            tcgen05.alloc(t, wrong)
    with pytest.raises(OptionError, match="larger than an earlier"):
        tcgen05.alloc(t, 512)
    with pytest.raises(HazardError, match="block for ever"):
        tcgen05.alloc(t, 256)
    with pytest.raises(BoundsError, match="reaches columns 448"):
        tcgen05.ld(t, 448)
    tcgen05.dealloc(t, second, 128)
    with pytest.raises(OptionError, match="allocated are"):
        tcgen05.dealloc(t, second, 128)
    tcgen05.relinquish_alloc_permit(t)
    with pytest.raises(HazardError, match="relinquish"):
        tcgen05.alloc(t, 32)


def small() -> tuple[TensorMemory, np.ndarray, Descriptor, InstructionDescriptor]:
    smem = np.zeros(4096, np.uint8)
    d = tile(np.full((64, 16), 0x3C00, np.uint16), "f16", 0, smem)
    return TensorMemory(), smem, d, InstructionDescriptor("f16", "f32", "f16", "f16", 64, 64)


def test_order_of_asynchronous_work() -> None:
    t, smem, d, i = small()
    name = "tcgen05.mma.cta_group::1.kind::f16"
    tcgen05.mma(name, t, 0, d, d, i, smem, enable_d=False)
    tcgen05.mma(name, t, 0, d, d, i, smem)  # products are in order among themselves
    with pytest.raises(HazardError, match="a mma that is not complete"):
        tcgen05.ld(t, 0)
    with pytest.raises(HazardError, match="never ends"):
        tcgen05.wait(t)
    tcgen05.commit(t)
    with pytest.raises(HazardError, match="a mma that is not complete"):
        tcgen05.st(t, 0, np.zeros((128, 1), np.uint32))
    tcgen05.wait(t)
    with pytest.raises(HazardError, match="fence_after_thread_sync"):
        tcgen05.ld(t, 0)
    tcgen05.fence(t)
    assert (tcgen05.ld(t, 0, "16x64b").view(np.float32) == 32).all()
    tcgen05.st(t, 0, np.zeros((128, 1), np.uint32))
    with pytest.raises(HazardError, match="wait_st"):
        tcgen05.mma(name, t, 0, d, d, i, smem)
    tcgen05.wait_st(t)
    tcgen05.mma(name, t, 0, d, d, i, smem)
    smem[0] ^= 1
    tcgen05.commit(t)
    with pytest.raises(HazardError, match="was changed before"):
        tcgen05.wait(t)
    unwatched = TensorMemory(check=False)
    tcgen05.mma(name, unwatched, 0, d, d, i, smem)
    tcgen05.ld(unwatched, 0)


def test_what_is_refused_by_name() -> None:
    t, smem, d, i = small()
    name = "tcgen05.mma.cta_group::1.kind::f16"
    with pytest.raises(UnsupportedInstructionError, match="no recorded arithmetic"):
        tcgen05.mma("tcgen05.mma.sp.cta_group::1.kind::f16", t, 0, d, d, i, smem)
    with pytest.raises(UnsupportedInstructionError, match="sm_120 has no"):
        tcgen05.mma(name, t, 0, d, d, i, smem, arch="sm_120")
    with pytest.raises(UnsupportedInstructionError, match="6-bit elements"):
        six = InstructionDescriptor("f8f6f4", "f32", "e2m3", "e4m3", 64, 8)
        tcgen05.mma("tcgen05.mma.cta_group::1.kind::f8f6f4", t, 0, d, d, six, smem)
    with pytest.raises(UnsupportedInstructionError, match="no chip has confirmed"):
        turned = InstructionDescriptor("f8f6f4", "f32", "e4m3", "e2m1", 64, 16, transpose_b=True)
        tcgen05.mma("tcgen05.mma.cta_group::1.kind::f8f6f4", t, 0, d, d, turned, smem)
    with pytest.raises(OptionError, match="of kind f16, the instruction of tf32"):
        tcgen05.mma("tcgen05.mma.cta_group::1.kind::tf32", t, 0, d, d, i, smem)
    with pytest.raises(OptionError, match="M = 64 with cta_group::2"):
        tcgen05.mma(name.replace("::1.", "::2."), (t, t), 0, d, d, i, (smem, smem))
    with pytest.raises(OptionError, match="multiples of 16"):
        wide = InstructionDescriptor("i8", "s32", "s8", "s8", 64, 40)
        tcgen05.mma("tcgen05.mma.cta_group::1.kind::i8", t, 0, d, d, wide, smem)
    with pytest.raises(BoundsError, match="reads bytes up to"):
        tcgen05.mma(name, t, 0, d, d, i, smem[:100])
    with pytest.raises(OptionError, match="needs scale_a"):
        four = InstructionDescriptor("mxf4", "f32", "e2m1", "e2m1", 128, 8, scale="ue8m0")
        tcgen05.mma("tcgen05.mma.cta_group::1.kind::mxf4.block_scale.scale_vec::2X", t, 0, d, d, four, smem)
    with pytest.raises(ShapeError, match="uint32 \\(128, 2\\)"):
        tcgen05.st(t, 0, np.zeros((128, 1), np.uint32), num=2)
