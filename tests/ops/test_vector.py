"""The vector code of m16n8 floating forms against the general path, on every class of finite input and on others."""

from __future__ import annotations

import warnings
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nbtc.compiler.cpu import lowering as processors
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.parse import row
from nbtc.kernels.warps import warp
from nbtc.kernels.warps.warp_fp8 import Fp8Code
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma

FORMS = [
    "m16n8k8.row.col.f32.f16.f16.f32", "m16n8k8.row.col.f16.f16.f16.f16", "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k16.row.col.f16.f16.f16.f16", "m16n8k8.row.col.f32.bf16.bf16.f32", "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32", "m16n8k8.row.col.f32.tf32.tf32.f32",
]  # fmt: skip
Words = NDArray[np.uint32]


def image(rng: np.random.Generator, fmt: Format, warps: int, registers: int, kind: str) -> Words:
    """Registers full of elements with exponents in a narrow window, at the bottom, anywhere, or of any bits."""
    word = np.uint16 if fmt.bits == 16 else np.uint32
    x = rng.integers(0, 1 << fmt.bits, (warps, 32, registers * 32 // fmt.bits), dtype=np.uint32).astype(word)
    low, top = fmt.bits - 1 - fmt.exponent, (1 << fmt.exponent) - 1
    windows = {
        "near": (fmt.bias - 8, fmt.bias + 5),
        "tiny": (0, 4),
        "wide": (0, top),
        "huge": (top - 3, top),
        "zeros": (0, 2),
    }
    if kind in windows:
        field = rng.integers(*windows[kind], x.shape)
        x = (x & word(~(top << low) & ((1 << fmt.bits) - 1))) | (field << low).astype(word)
        sparse = rng.random(x.shape) < (0.8 if kind == "zeros" else 0.05)
        x = np.where(sparse, x & word(1 << (fmt.bits - 1)), x)
    return np.ascontiguousarray(x).view(np.uint32)


def both(name: str, arch: str, seed: int, kinds: tuple[str, str, str], warps: int = 6) -> int:
    """Runs a form both ways; returns how many warps the vector code computed itself."""
    r = row(f"mma.sync.aligned.{name}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = mma.prepare(r, arch)
    assert r.a is not None and r.b is not None and r.c is not None
    rng = np.random.default_rng(seed)
    operands = [image(rng, o.format, warps, o.registers, k) for o, k in zip((r.a, r.b, r.c), kinds, strict=True)]
    flats = [flat(x, 2, (warps,)) for x in operands]
    want = np.empty(warps * 32 * plan.registers[3], np.uint32)
    mma._general(plan, flats, want, 0, warps)
    assert (mma.perform(plan, *operands).ravel() == want).all(), (name, arch, kinds)
    assert (plan.vector is not None) == (processors.host() is not None)
    if plan.vector is None:
        return warps
    got, needs_fallback = np.empty_like(want), np.empty(warps, np.uint8)
    (a, sa), (b, sb), (c, sc) = flats
    sd = 32 * plan.registers[3]
    count = plan.vector((a, b, c, got), (sa, sb, sc, sd), 0, warps, plan.numbers, needs_fallback)
    good = needs_fallback == 0
    assert count == warps - good.sum()
    assert (got.reshape(warps, -1)[good] == want.reshape(warps, -1)[good]).all(), (name, arch, kinds)
    return int(good.sum())


KINDS = ("near", "tiny", "wide", "huge", "zeros", "bits")


@pytest.mark.parametrize("name", FORMS)
def test_every_mix_of_inputs(name: str) -> None:
    own = sum(
        both(name, arch, 36 * i + 6 * j + k, (x, y, z))
        for arch in (("sm_90",) if "f32.f16" in name else ("sm_90", "sm_80"))
        for i, x in enumerate(KINDS)
        for j, y in enumerate(KINDS)
        for k, z in enumerate(KINDS)
    )
    assert own > 200  # it did not just hand everything over


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(FORMS), st.tuples(*[st.sampled_from(KINDS[:5])] * 3))
def test_any_inputs(seed: int, name: str, kinds: tuple[str, str, str]) -> None:
    both(name, "sm_90", seed, kinds, warps=2)


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_100", "sm_120"])
def test_other_architectures(arch: str) -> None:
    """One block a step or two, other fractions and floors."""
    forms = [n for n in FORMS if row(f"mma.sync.aligned.{n}").since <= int(arch[3:]) and ".f16.f16." in n]
    assert sum(both(name, arch, n, ("near", "near", z)) for n, name in enumerate(forms) for z in KINDS) > 12


def test_largest_sums() -> None:
    """Sixteen products of 1.9990234375**2 and c: 33 bits with sign."""
    plan = mma.prepare(row(f"mma.sync.aligned.{FORMS[2]}"), "sm_90")
    for a, b, c in [
        (0x3FFF3FFF, 0x3FFF3FFF, 0x407FFFFF),
        (0xBFFFBFFF, 0x3FFF3FFF, 0xC07FFFFF),
        (0x7BFF7BFF, 0xFBFFFBFF, 0),
    ]:
        words = [np.full((32, n), w, np.uint32) for n, w in ((4, a), (2, b), (4, c))]
        want = np.empty(128, np.uint32)
        mma._general(plan, [flat(w, 2, ()) for w in words], want, 0, 1)
        assert (mma.perform(plan, *words).ravel() == want).all()


def test_every_code_of_f16() -> None:
    """All 65,536 codes as elements of A, times one, and of B: subnormals, zeros, Inf and NaN in each place."""
    plan = mma.prepare(row(f"mma.sync.aligned.{FORMS[2]}"), "sm_90")
    codes = np.random.default_rng(6).permutation(np.arange(1 << 16, dtype=np.uint16))
    ones = np.full((256, 32, 8), 0x3C00, np.uint16)
    for a, b in [(codes.reshape(256, 32, 8), ones[..., :4]), (ones, np.tile(codes, 2).reshape(-1, 32, 4)[:256])]:
        words = [np.ascontiguousarray(x).view(np.uint32) for x in (a, b, np.zeros((256, 32, 8), np.uint16))]
        want = np.empty(256 * 128, np.uint32)
        mma._general(plan, [flat(w, 2, (256,)) for w in words], want, 0, 256)
        assert (mma.perform(plan, *words).ravel() == want).all()


def test_rounding_mode_is_restored() -> None:
    """The vector code rounds down; its caller does not notice."""
    from numba import njit

    from nbtc import ptx

    @njit
    def around(a, b, c, x):
        d = ptx.mma_sync("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a, b, c)
        return d[0, 0], x - np.float64(2.0**-60)

    a, b, c = (np.zeros((32, n), np.uint32) for n in (4, 2, 4))
    one = np.float64(1.0)
    assert around(a, b, c, one) == (0, 1.0)
    assert one - np.float64(2.0**-60) == 1.0


PLAIN = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
PROCESSORS = {
    "AVX-512 alone": processors.LoweringTarget(processors.Avx512, PLAIN | processors.Avx2.row.needs | {"ssse3"}),
    "AVX2": processors.LoweringTarget(processors.Avx2, processors.Avx2.row.needs | {"ssse3"}),
    "SSE2": processors.LoweringTarget(processors.X86, frozenset()),
}


def forced(monkeypatch: pytest.MonkeyPatch, processor: str, plan: mma.Prepared) -> warp.WarpLoop:
    """The loop of a plan as another processor has it, if this machine can run that."""
    from nbtc.compiler.cpu.host import architecture, features

    target = PROCESSORS[processor]
    if architecture() not in target.lowering.row.architectures or not target.lowering.row.needs <= features():
        pytest.skip(f"no {processor} here")
    monkeypatch.setattr(processors, "host", lambda: target)
    assert plan.shape is not None
    return warp.WarpLoop(plan.shape)


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("name", [*FORMS[1:3], FORMS[5], FORMS[7]])
def test_other_processors(name: str, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instructions of plainer ones, on every mix of inputs; only Inf, NaN and ends of ranges are handed over."""
    plan = mma.prepare(row(f"mma.sync.aligned.{name}"), "sm_90")
    loop, count = forced(monkeypatch, processor, plan), 4
    for n, kinds in enumerate(product(KINDS, KINDS, KINDS)):
        rng = np.random.default_rng(n)
        words = [image(rng, o.format, count, o.registers, k) for o, k in zip(plan.operands, kinds, strict=True)]
        flats = [flat(x, 2, (count,)) for x in words]
        want = np.empty(count * 32 * plan.registers[3], np.uint32)
        mma._general(plan, flats, want, 0, count)
        got, needs_fallback = np.empty_like(want), np.empty(count, np.uint8)
        strides = [s for _, s in flats]
        loop((*(x for x, _ in flats), got), (*strides, 32 * plan.registers[3]), 0, count, plan.numbers, needs_fallback)
        good = needs_fallback == 0
        assert good.all() or "near" not in kinds or set(kinds) & {"bits", "huge", "wide"}, kinds
        assert (got.reshape(count, -1)[good] == want.reshape(count, -1)[good]).all(), kinds


FP8 = [
    "m16n8k32.row.col.f32.e4m3.e4m3.f32", "m16n8k32.row.col.f32.e5m2.e4m3.f32", "m16n8k32.row.col.f16.e4m3.e5m2.f16",
    "m16n8k16.row.col.f32.e4m3.e5m2.f32", "m16n8k16.row.col.f16.e4m3.e4m3.f16",
]  # fmt: skip


@pytest.mark.parametrize("name", FP8)
def test_fp8_made_of_f16(name: str) -> None:
    """Where fp8 is emulated: any exponents, subnormals and zeros, NaN in some warps, operands that all warps share."""
    r = row(f"mma.sync.aligned.{name}")
    assert r.a is not None and r.b is not None and r.c is not None
    rng = np.random.default_rng(12)
    for arch, keep, window in product(
        ("sm_90", "sm_100"), (0x8F8F8F8F, 0xBFBFBFBF, 0xF7F7F7F7), ("near", "tiny", "bits")
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            plan = mma.prepare(r, arch)
        a, b = (rng.integers(0, 1 << 32, (9, 32, o.registers), np.uint32) & np.uint32(keep) for o in (r.a, r.b))
        a[3, 5, 0] = 0x7F
        c = image(rng, r.c.format, 9, r.c.registers, window)
        for words in ([a, b, c], [a[:1], b, c], [a, b[3], c], [a, b, c[0, None]]):
            want = np.empty(9 * 32 * plan.registers[3], np.uint32)
            mma._general(plan, [flat(x, 2, (9,)) for x in words], want, 0, 9)
            assert (mma.perform(plan, *words).ravel() == want).all(), (arch, keep, window)
    assert isinstance(plan.shape, Fp8Code) == (processors.host() is not None)


def test_formats_have_vector_code() -> None:
    """Which forms are fast is a property of the row, not of its spelling."""
    slow = mma.prepare(row("mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32"), "sm_90")
    assert slow.shape is None and slow.vector is None
    if processors.host() is None:
        pytest.skip("no vector code for this processor")
    assert mma.prepare(row(f"mma.sync.aligned.{FORMS[0]}"), "sm_90").shape.fmt is FORMATS["f16"]


WMMA = [
    "row.col.m16n16k16.f32.f32", "row.row.m32n8k16.f16.f16", "col.col.m8n32k16.f32.f32", "row.row.m16n16k16.f16.f16",
    "col.row.m8n32k16.f32.bf16.bf16.f32", "row.col.m16n16k8.f32.tf32.tf32.f32", "row.col.m16n16k16.f32.f16",
]  # fmt: skip


@pytest.mark.parametrize("name", WMMA)
def test_wmma_is_made_of_mma(name: str) -> None:
    """Also with fragments that all warps share, and with warps that fall back."""
    r = row(f"wmma.mma.sync.aligned.{name}")
    plan = mma.prepare(r, "sm_90")
    assert r.a is not None and r.b is not None and r.c is not None
    rng = np.random.default_rng(8)
    for kinds in (("near", "near", "near"), ("wide", "near", "tiny"), ("near", "bits", "near")):
        a, b, c = (image(rng, o.format, 5, o.registers, k) for o, k in zip((r.a, r.b, r.c), kinds, strict=True))
        for words in ([a, b, c], [a[:1], b, c], [a, b[3], c], [a, b, c[0, None]]):
            want = np.empty(5 * 32 * plan.registers[3], np.uint32)
            mma._general(plan, [flat(x, 2, (5,)) for x in words], want, 0, 5)
            assert (mma.perform(plan, *words).ravel() == want).all()
