"""The vector code of sparse floating-point products against the general path, with legal metadata and with any."""

from __future__ import annotations

import runpy
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nbtc.compiler.cpu import lowering as processors
from nbtc.fragments import sparse
from nbtc.instructions import instructions
from nbtc.isa.parse import row
from nbtc.isa.spec import Row
from nbtc.kernels.warps.warp_fp8 import Fp8Code
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma

VECTOR = runpy.run_path(str(Path(__file__).with_name("test_vector.py")))  # its inputs
KINDS, image = VECTOR["KINDS"], VECTOR["image"]
Words = NDArray[np.uint32]
WARPS = 6


def served() -> bool:
    """Whether this processor has vector code for sparse products."""
    host = processors.host()
    return host is not None and host.shuffles_bytes


FORMS = [i.row for i in instructions(family="mma.sp") if i.executable and i.a.format.name in ("f16", "bf16", "tf32")]
LONGEST = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def metadata(rng: np.random.Generator, r: Row, selector: int, legal: bool) -> Words:
    """Of the lanes that supply it; the others hold any bits."""
    found = rng.integers(0, 1 << 32, (WARPS, 32), np.uint32)
    if legal:
        assert r.meta is not None
        nibbles = rng.choice(np.flatnonzero(sparse.legal_nibbles(r)), (WARPS, r.meta.rows, r.meta.cols))
        count = r.meta.cols // 4
        supplying = (np.arange(32) % 4 >= selector * count) & (np.arange(32) % 4 < (selector + 1) * count)
        found = np.where(supplying, sparse.from_nibbles(r, nibbles.astype(np.uint8), selector), found)
    return found


def both(r: Row, arch: str, selector: int, seed: int, kinds: tuple[str, str, str], legal: bool) -> int:
    """Runs a form both ways; returns how many warps the vector code computed itself."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plan = mma.prepare(r, arch, selector)
    assert r.a is not None and r.b is not None and r.c is not None
    rng = np.random.default_rng(seed)
    x = [image(rng, o.format, WARPS, o.registers, k) for o, k in zip((r.a, r.b, r.c), kinds, strict=True)]
    meta = metadata(rng, r, selector, legal)
    flats = [*(flat(y, 2, (WARPS,)) for y in x), flat(meta, 1, (WARPS,))]
    want = np.empty(WARPS * 32 * plan.registers[3], np.uint32)
    mma._general(plan, flats, want, 0, WARPS)
    assert (mma.perform(plan, *x, meta, selector).ravel() == want).all(), (r.mnemonic, arch, selector, kinds)
    assert (plan.vector is not None) == served()
    if plan.vector is None:
        return WARPS
    got, needs_fallback = np.empty_like(want), np.empty(WARPS, np.uint8)
    mma._vectors(plan, flats, got, 0, WARPS, needs_fallback)
    good = needs_fallback == 0
    assert (got.reshape(WARPS, -1)[good] == want.reshape(WARPS, -1)[good]).all()
    return int(good.sum())


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32"])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_every_mix_of_inputs(arch: str, kind: str) -> None:
    forms = [r for r in FORMS if r.a is not None and r.a.format.name == kind]
    assert len(forms) >= 4
    own = sum(
        both(r, arch, r.selectors[(n + seed) % len(r.selectors)], seed, (x, y, KINDS[(seed + n) % 6]), seed % 2 == 0)
        for n, r in enumerate(forms)
        for seed, (x, y) in enumerate((x, y) for x in KINDS for y in KINDS)
    )
    assert own > 36 * len(forms)  # it did not just hand everything over


@pytest.mark.parametrize("r", FORMS, ids=lambda r: r.mnemonic)
def test_every_selector(r: Row) -> None:
    for selector in r.selectors:
        assert both(r, "sm_90", selector, selector, ("near", "near", "near"), True) == WARPS


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from(FORMS), st.tuples(*[st.sampled_from(KINDS[:5])] * 3), st.booleans())
def test_any_inputs(seed: int, r: Row, kinds: tuple[str, str, str], legal: bool) -> None:
    both(r, "sm_90", 0, seed, kinds, legal)


def test_special_values_that_no_row_meets() -> None:
    """Inf and NaN in elements of B that are not chosen neither count nor cost."""
    r = row(LONGEST)
    plan = mma.prepare(r, "sm_90")
    a = np.full((32, 4), 0x3C003C00, np.uint32)
    b = np.full((32, 4), 0x3C003C00, np.uint32)
    b[::2] = 0x7E003C00  # NaN at k mod 4 == 1
    meta = np.full(32, 0x88888888, np.uint32)  # columns 0 and 2 of each four
    c = np.zeros((32, 4), np.uint32)
    assert (mma.perform(plan, a, b, c, meta).view(np.float32) == 16).all()
    if plan.vector is not None:
        flats = [*(flat(x, 2, ()) for x in (a, b, c)), flat(meta, 1, ())]
        assert not mma._vectors(plan, flats, np.empty(128, np.uint32), 0, 1, np.empty(1, np.uint8))


@pytest.mark.parametrize("shared", range(5))
def test_fp8_made_of_f16(shared: int) -> None:
    """Where fp8 is emulated: subnormals, zeros, any exponents, some NaN, any metadata, operands that warps share."""
    for i in instructions(family="mma.sp"):
        if not i.executable or i.a.format.name not in ("e4m3", "e5m2"):
            continue
        plan, rng = mma.prepare(i.row, "sm_90"), np.random.default_rng(shared)
        assert isinstance(plan.shape, Fp8Code) == served()
        for keep in (0x8F8F8F8F, 0xBFBFBFBF, 0xF7F7F7F7):
            x = [rng.integers(0, 1 << 32, (WARPS, 32, n), np.uint32) & np.uint32(keep) for n in plan.registers[:2]]
            x[0][3, 5, 0] = 0x7F
            x.append(image(rng, i.c.format, WARPS, 4, "near" if keep & 64 else "tiny"))
            x.append(rng.integers(0, 1 << 32, (WARPS, 32), np.uint32))
            given = [y[:1] if n == shared else y for n, y in enumerate(x)]
            flats = [flat(y, 2 if n < 3 else 1, (WARPS,)) for n, y in enumerate(given)]
            want = np.empty(WARPS * 128, np.uint32)
            mma._general(plan, flats, want, 0, WARPS)
            assert (mma.perform(plan, *given).ravel() == want).all(), (i.mnemonic, keep)
