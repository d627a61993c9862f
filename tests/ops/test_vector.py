"""The vector code of m16n8 floating forms against the general path, on every class of finite input and on others."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nbtc import _host
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.parse import row
from nbtc.ops import mma
from nbtc.ops.images import flat

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
    assert (plan.vector is not None) == _host.has_avx512()
    if plan.vector is None:
        return warps
    got, doubt = np.empty_like(want), np.empty(warps, np.uint8)
    (a, sa), (b, sb), (c, sc) = flats
    sd = 32 * plan.registers[3]
    floor, fraction = int(plan.params[mma.FLOOR]), int(plan.params[mma.FRACTION])
    count = plan.vector(a, b, c, got, sa, sb, sc, sd, 0, warps, fraction, floor, doubt)
    good = doubt == 0
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


def test_formats_have_vector_code() -> None:
    """Which forms are fast is a property of the row, not of its spelling."""
    slow = mma.prepare(row("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32"), "sm_90")
    assert slow.shape is None and slow.vector is None
    if _host.has_avx512():
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


@pytest.mark.parametrize("name", FORMS)
def test_images_by_register(name: str) -> None:
    """[register][lane] words, as programs hold them, give the same bits as [lane][register] images."""
    if not _host.has_avx512():
        return
    from nbtc.ops.mma_vector import kernel

    r = row(f"mma.sync.aligned.{name}")
    plan = mma.prepare(r, "sm_90")
    assert r.a is not None and r.b is not None and r.c is not None
    rng = np.random.default_rng(9)
    operands = [image(rng, o.format, 4, o.registers, "near") for o in (r.a, r.b, r.c)]
    turned = [np.ascontiguousarray(x.transpose(0, 2, 1)) for x in operands]
    d, doubt = np.empty((4, plan.registers[3], 32), np.uint32), np.empty(4, np.uint8)
    sizes = [x[0].size for x in (*turned, d)]
    loop = kernel(*replace(plan.shape, by_register=True).key)
    assert loop(*(x.reshape(-1) for x in (*turned, d)), *sizes, 0, 4, *plan.numbers, doubt) == 0
    assert (d.transpose(0, 2, 1) == mma.perform(plan, *operands)).all()
