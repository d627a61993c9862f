"""The vector code of integers, bits and f64, dense and sparse, against the general path."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from nbtc import ptx
from nbtc.compiler.cpu import lowering as processors
from nbtc.instructions import Instruction, instructions
from nbtc.isa.parse import row
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma

Words = NDArray[np.uint32]
VECTOR = runpy.run_path(str(Path(__file__).with_name("test_vector.py")))  # its processors
WARPS = 5
EDGES = np.array(
    [0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80808080, 0x7F7F7F7F, 0x88888888, 0x77777777, 0xFF7F80FF], np.uint32
)


def forms(family: str, *kinds: str) -> list[Instruction]:
    return [i for i in instructions(family=family) if i.executable and i.a.format.name in kinds]


def want_of(plan: mma.Prepared, operands: list[Words], warps: int) -> Words:
    """D by the general path; metadata comes last."""
    flats = [flat(x, 2 if n < 3 else 1, (warps,)) for n, x in enumerate(operands)]
    want = np.empty(warps * 32 * plan.registers[3], np.uint32)
    mma._general(plan, flats, want, 0, warps)
    return want.reshape(warps, 32, -1)


def compare(i: Instruction, arch: str = "sm_90") -> None:
    """Any bits, the ends of all ranges, and C where sums saturate; any metadata, for every selector."""
    for selector in i.row.selectors or (0,):
        plan = mma.prepare(i.row, arch, selector)
        rng = np.random.default_rng(selector)
        host = processors.host()
        assert (plan.vector is not None) == (host is not None and (host.shuffles_bytes or not i.row.sparse))
        for kind in range(3):
            x = [rng.integers(0, 1 << 32, (WARPS, 32, n), np.uint32) for n in plan.registers[:3]]
            if kind == 1:
                x = [rng.choice(EDGES, y.shape) for y in x]
            if kind == 2:
                x[2] = rng.choice(np.array([0x7FFFFF80, 0x80000080], np.uint32), x[2].shape)
            meta = rng.integers(0, 1 << 32, (WARPS, 32), np.uint32) if i.row.sparse else None
            want = want_of(plan, x if meta is None else [*x, meta], WARPS)
            assert (mma.perform(plan, *x, meta, selector) == want).all(), (i.mnemonic, selector, kind)


@pytest.mark.parametrize("kind", ["s8", "u8", "s4", "u4", "b1"])
@pytest.mark.parametrize("family", ["mma", "wmma.mma", "mma.sp"])
def test_integers(family: str, kind: str) -> None:
    found = forms(family, kind)
    assert bool(found) != (family == "mma.sp" and kind == "b1")
    for i in found:
        compare(i)


OTHERS = [
    "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.s8.s32",
    "mma.sync.aligned.m8n8k16.row.col.s32.u8.u8.s32",
    "mma.sync.aligned.m16n8k16.row.col.s32.s8.u8.s32",
    "mma.sync.aligned.m16n8k64.row.col.s32.s4.u4.s32",
    "mma.sync.aligned.m16n8k32.row.col.s32.u4.s4.s32",
    "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.u8.s8.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.tf32.tf32.f32",
]


@pytest.mark.parametrize("processor", VECTOR["PROCESSORS"])
@pytest.mark.parametrize("name", OTHERS)
def test_other_processors(name: str, processor: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each way to multiply small integers, and to choose bytes, on the ends of all ranges and on any bits."""
    plan = mma.prepare(row(name), "sm_90")
    target = VECTOR["PROCESSORS"][processor]
    if plan.row.sparse and not target.shuffles_bytes:
        pytest.skip(f"{processor} has no instruction that chooses bytes")
    loop = VECTOR["forced"](monkeypatch, processor, plan)
    rng = np.random.default_rng(len(name))
    x = [rng.integers(0, 1 << 32, (WARPS, 32, n), np.uint32) for n in plan.registers[:3]]
    if plan.row.a.format.kind == "float":
        x = [y & np.uint32(0xBFFFBFFF) for y in x]
    for n, y in enumerate(x[:2]):
        y[n::2] = rng.choice(EDGES, y[n::2].shape) if plan.row.a.format.kind != "float" else y[n::2]
    x += [rng.integers(0, 1 << 32, (WARPS, 32), np.uint32)] * plan.row.sparse
    flats = [flat(y, 2 if n < 3 else 1, (WARPS,)) for n, y in enumerate(x)]
    got, needs_fallback = np.empty(WARPS * 32 * plan.registers[3], np.uint32), np.ones(WARPS, np.uint8)
    sizes = [*(s for _, s in flats), 32 * plan.registers[3]]
    loop((*(y for y, _ in flats), got), tuple(sizes), 0, WARPS, plan.numbers, needs_fallback)
    assert not needs_fallback.any()
    assert (got.reshape(WARPS, 32, -1) == want_of(plan, x, WARPS)).all()


def test_layout_of_another_architecture() -> None:
    """On sm_75 the 8 x 32 accumulators of integers lie otherwise: no vector code, the right result."""
    name = "wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32"
    plan = mma.prepare(row(name), "sm_75")
    assert plan.vector is None
    x = [np.random.default_rng(n).integers(0, 1 << 32, (WARPS, 32, n), np.uint32) for n in plan.registers[:3]]
    assert (mma.perform(plan, *x) == want_of(plan, x, WARPS)).all()


def test_doubles() -> None:
    """Every rounding; neighbours that cancel, subnormals, Inf, and NaN with payloads."""
    found = [*forms("mma", "f64"), *forms("wmma.mma", "f64")]
    assert len(found) > 16
    rng = np.random.default_rng(3)
    for i in found:
        plan = mma.prepare(i.row, "sm_90")
        host = processors.host()
        assert (plan.vector is not None) == (host is not None and host.lowering.row.fma)
        for low, high in ((1015, 1030), (0, 60), (490, 530), (0, 2047)):
            x = []
            for n in plan.registers[:3]:
                bits = rng.integers(0, 1 << 64, (WARPS, 32, n // 2), np.uint64) & np.uint64(0x800FFFFFFFFFFFFF)
                field = rng.integers(low, high, bits.shape).astype(np.uint64)
                y = np.where(rng.random(bits.shape) < 0.1, bits & np.uint64(1 << 63), bits | field << np.uint64(52))
                if high == 2047:  # a few of each in one warp
                    y[0, :2, 0] = 0x7FF0000000000000, 0xFFF0000000000123
                x.append(y.view(np.uint32))
            assert (mma.perform(plan, *x) == want_of(plan, x, WARPS)).all(), (i.mnemonic, low, high)


def test_inside_compiled_code() -> None:
    """Bytes and doubles, with NaN that take the general path."""

    @njit
    def octets(a, b, c):
        return ptx.mma_sync("mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32", a, b, c)

    @njit
    def doubles(a, b, c):
        return ptx.mma_sync("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64", a, b, c)

    rng = np.random.default_rng(4)
    a, b, c = (rng.integers(0, 1 << 32, (32, n), np.uint32) for n in (4, 2, 4))
    name = "mma.sync.aligned.m16n8k32.row.col.satfinite.s32.s8.u8.s32"
    assert (octets(a, b, c) == ptx.mma_sync(name, a, b, c)).all()
    a, b, c = a[:, :2].copy(), b, c
    c[0, :2] = 5, 0x7FF80000
    name = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64"
    want = want_of(mma.prepare(row(name), "sm_90"), [a[None], b[None], c[None]], 1)[0]
    assert (doubles(a, b, c) == want).all() and want[0, 0] == 5


@pytest.mark.parametrize("batch", range(4))
def test_operands_that_all_warps_share(batch: int) -> None:
    i = forms("mma.sp", "s8")[0]
    plan, rng = mma.prepare(i.row, "sm_90"), np.random.default_rng(5)
    x = [rng.integers(0, 1 << 32, (WARPS, 32, n), np.uint32) for n in plan.registers[:3]]
    x.append(rng.integers(0, 1 << 32, (WARPS, 32), np.uint32))
    given = [y[:1] if n == batch else y for n, y in enumerate(x)]
    x[batch] = np.repeat(x[batch][:1], WARPS, 0)
    assert (mma.perform(plan, *given) == want_of(plan, x, WARPS)).all()


@pytest.mark.parametrize(
    "name",
    [
        "wmma.mma.sync.aligned.row.col.m16n16k16.s32.s8.s8.s32",
        "wmma.mma.sync.aligned.row.col.m8n32k16.s32.u8.u8.s32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.f32.e4m3.e5m2.f32",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.u4.s32",
        "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64",
    ],
)
def test_large_batches_are_many_small_ones(name: str) -> None:
    """More warps than are copied at a time, on two threads, with a warp here and there for the general path."""
    plan, rng = mma.prepare(row(name), "sm_90"), np.random.default_rng(7)
    count = 2 * mma.CHUNK + 3
    x = [rng.integers(0, 1 << 32, (count, 32, n), np.uint32) & np.uint32(0xBFBFBFBF) for n in plan.registers[:3]]
    x[0][::97] |= np.uint32(0x7F7F7F7F)
    sparse = plan.row.sparse
    meta = rng.integers(0, 1 << 32, (count, 32), np.uint32) if sparse else None
    got = mma.perform(plan, *x, meta, threads=2)
    for n in (*range(0, count, 97), count - 1):
        one = [y[n] for y in x]
        assert (got[n] == mma.perform(plan, *one, None if meta is None else meta[n])).all(), n
    few = [y[300:305] for y in x] + ([] if meta is None else [meta[300:305]])
    assert (got[300:305] == want_of(plan, few, 5)).all()
