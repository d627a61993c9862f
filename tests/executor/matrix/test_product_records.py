"""Products of a program on decoded operands against the general path, on every class of finite input and on others."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from nbtc.compiler.builder import I8, VectorBuilder
from nbtc.compiler.cpu import lowering as processors
from nbtc.compiler.cpu.float_mode import DOWN, enter, leave
from nbtc.compiler.cpu.host import architecture, features
from nbtc.compiler.jit import jit
from nbtc.compiler.loops import repeated
from nbtc.compiler.machine_code.emitted import Emitted, call_emitted, machine_code
from nbtc.executor.matrix.product_split import Split, place
from nbtc.executor.matrix.products import Records
from nbtc.isa.parse import row
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma
from tests.ops.test_vector import FORMS, KINDS, PROCESSORS, image

WARPS = 4  # of each mix of inputs
MIXES = list(product(KINDS, KINDS, KINDS))


class Batch(NamedTuple):
    """Images of many warps, and where it is noted which of them need the fallback."""

    a: Any
    b: Any
    c: Any
    d: Any
    marks: Any
    warps: int


@jit(cached=False)
def run(address, a, b, c, d, marks, warps):
    return call_emitted(address, Batch(a, b, c, d, marks, warps))


def compiled(plan: mma.Prepared, key: str) -> int:
    """Address of a function of `Batch`: operands decoded into records, then the sums."""
    split = Split(plan.shape, plan.numbers)

    def write(v: VectorBuilder, given: Any) -> None:
        records = Records(place(v, split.size_a), place(v, split.size_b))

        def one(n: Any, left: Any) -> Any:
            a, b, c, d = (
                v.at(given[x], v.b.mul(n, v.int(128 * count))) for x, count in zip("abcd", plan.registers, strict=True)
            )
            split.decode(v, 0, a, records.a)
            split.decode(v, 1, b, records.b)
            old = enter(v, DOWN)
            bad = split.core(v, records, c, d)
            leave(v, old)
            v.store(v.b.zext(bad, I8), v.at(given["marks"], n))
            return left

        repeated(v, v.int(0), given["warps"], 1, {}, one)

    return machine_code({"products": Emitted(Batch, write)}, "test_product_records", key).address("products")


def by_register(x: Any) -> Any:
    """Words as [register][lane], on a cache line."""
    out = np.empty(x.size + 16, np.uint32)
    out = out[-out.ctypes.data % 64 // 4 :][: x.size]
    out[:] = x.transpose(0, 2, 1).ravel()
    return out


def both(plan: mma.Prepared, address: int, words: list[Any]) -> tuple[Any, Any, Any]:
    """D by the compiled function and by the general path, and which warps need no fallback."""
    warps = len(words[0])
    want = np.empty(warps * 32 * plan.registers[3], np.uint32)
    mma._general(plan, [flat(x, 2, (warps,)) for x in words], want, 0, warps)
    want = want.reshape(warps, 32, -1)
    marks, got = np.empty(warps, np.uint8), by_register(np.zeros_like(want))
    run(address, *map(by_register, words), got, marks, warps)
    return got.reshape(warps, -1, 32).transpose(0, 2, 1), want, marks == 0


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing compiled is found on disk, as the key of a test's code does not tell its sources."""
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("processor", [None, *PROCESSORS])
@pytest.mark.parametrize("name", FORMS)
def test_every_mix_of_inputs(name: str, processor: str | None, arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Inf, NaN and ends of ranges are handed over."""
    plan = mma.prepare(row(f"mma.sync.aligned.{name}"), arch)
    if processor is not None:
        target = PROCESSORS[processor]
        if architecture() not in target.lowering.row.architectures or not target.lowering.row.needs <= features():
            pytest.skip(f"no {processor} here")
        monkeypatch.setattr(processors, "host", lambda: target)
    elif processors.host() is None:
        pytest.skip("no vector code for this processor")
    address, rng = compiled(plan, f"{name} {arch} {processor}"), np.random.default_rng(len(name))
    parts = [[image(rng, o.format, WARPS, o.registers, kind) for kind in KINDS] for o in plan.operands]
    chosen = [[KINDS.index(kinds[side]) for kinds in MIXES] for side in range(3)]
    words = [np.concatenate([part[n] for n in at]) for part, at in zip(parts, chosen, strict=True)]
    got, want, good = both(plan, address, words)
    for n, kinds in enumerate(MIXES):
        own = good[WARPS * n : WARPS * (n + 1)]
        tiny = "zeros" in kinds[:2] and kinds[2] in ("tiny", "zeros")  # sums of nothing but zeros and a tiny number
        assert own.all() or tiny or "near" not in kinds or set(kinds) & {"bits", "huge", "wide"}, kinds
        assert (got[WARPS * n :][:WARPS][own] == want[WARPS * n :][:WARPS][own]).all(), kinds
    assert good.sum() > WARPS * 40


@pytest.mark.parametrize("arch", ["sm_90", "sm_80"])
@pytest.mark.parametrize("name", ["m16n8k8.row.col.f32.f16.f16.f32", "m16n8k16.row.col.f32.f16.f16.f32"])
def test_accumulators_of_sums_of_nothing_but_zeros(name: str, arch: str) -> None:
    """From 2**(24 - 127) on, and where they are zeros, the sums themselves give them; smaller ones are handed over."""
    if processors.host() is None:
        pytest.skip("no vector code for this processor")
    plan, rng = mma.prepare(row(f"mma.sync.aligned.{name}"), arch), np.random.default_rng(3)
    fields = np.arange(64, dtype=np.uint32)  # of a warp's accumulators
    a, b, c = (image(rng, o.format, len(fields), o.registers, "near") for o in plan.operands)
    c = c & np.uint32(0x807FFFFF) | fields[:, None, None] << np.uint32(23)
    c[0] &= np.uint32(1 << 31)
    got, want, good = both(plan, compiled(plan, f"zeros {name} {arch}"), [a, b & np.uint32(0x80008000), c])
    assert (got[good] == want[good]).all()
    assert good.tolist() == [n == 0 or n >= 24 for n in fields]
