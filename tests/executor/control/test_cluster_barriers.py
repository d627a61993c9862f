"""Barriers of a cluster with random programs: warps that are slow between arrival and wait, and ones that end early."""

import random
from typing import NamedTuple

import numpy as np
import pytest

import nbtc

BLOCKS, WARPS, PHASES = 2, 2, 4
ALL = [(b, w) for b in range(BLOCKS) for w in range(WARPS)]


class Plan(NamedTuple):
    """What the warps of a cluster do: how many phases each takes part in, and how long it works in each."""

    phases: dict[tuple[int, int], int]
    work: dict[tuple[int, int, int], tuple[int, int]]  # of a warp in a phase: before its arrival, before its wait


def _plan(seed: int) -> Plan:
    rng = random.Random(seed)
    phases = {warp: rng.choice((0, 2, PHASES, PHASES)) for warp in ALL}
    lengths = (0, 0, 1, 40, 400)
    return Plan(phases, {(*warp, k): (rng.choice(lengths), rng.choice(lengths)) for warp in ALL for k in range(PHASES)})


def _present(plan: Plan, phase: int) -> list[tuple[int, int]]:
    return [warp for warp in ALL if plan.phases[warp] > phase]


def _slot(warp: tuple[int, int], phase: int) -> int:
    return 4 * ((warp[0] * WARPS + warp[1]) * PHASES + phase)


def _text(plan: Plan) -> str:
    """Each warp says that it comes to a phase; after it, it adds what all said that take part."""
    body = []
    for n, warp in enumerate(ALL):
        body.append(f"W{n}:")
        for k in range(plan.phases[warp]):
            for step, (what, cycles) in enumerate(zip(("arrive", "wait"), plan.work[*warp, k], strict=True)):
                label = f"L{n}_{k}_{step}"
                body.append(
                    f"mov.u32 v, {cycles}; {label}: setp.eq.u32 q, v, 0; @q bra {label}D; sub.u32 v, v, 1; bra {label};"
                )
                body.append(f"{label}D:")
                if what == "arrive":
                    body.append(f"@one st.global.b32 [said+{_slot(warp, k)}], {n * PHASES + k + 1};")
                body.append(f"barrier.cluster.{what}.aligned;")
            for other in _present(plan, k):
                body.append(f"ld.global.b32 v, [said+{_slot(other, k)}]; mad.lo.u32 sum, sum, 31, v;")
        body.append("st.global.b32 [o], sum; ret;")
    ways = "".join(f"setp.eq.u32 p, w, {n}; @p bra W{n};\n" for n in range(len(ALL)))
    return f""".version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 out, .param .u64 said_) .reqnctapercluster {BLOCKS}, 1, 1 {{
  .reg .b32 t, b, c, w, v, sum; .reg .b64 o, i, said; .reg .pred p, q, one;
  ld.param.u64 o, [out]; ld.param.u64 said, [said_];
  mov.u32 t, %tid.x; mov.u32 b, %cluster_ctarank; mov.u32 c, %ctaid.x;
  mad.lo.u32 v, c, {32 * WARPS}, t; mul.wide.u32 i, v, 4; add.u64 o, o, i;
  div.u32 c, c, {BLOCKS}; mul.wide.u32 i, c, {4 * len(ALL) * PHASES}; add.u64 said, said, i;
  and.b32 v, t, 31; setp.eq.u32 one, v, 0;
  shr.u32 w, t, 5; mad.lo.u32 w, b, {WARPS}, w; shfl.sync.idx.b32 w, w, 0, 31, -1; mov.u32 sum, 0;
{ways}{chr(10).join(body)}
}}"""


def _expected(plan: Plan) -> np.ndarray:
    sums = []
    for warp in ALL:
        total = 0
        for k in range(plan.phases[warp]):
            for other in _present(plan, k):
                total = (31 * total + ALL.index(other) * PHASES + k + 1) % 2**32
        sums.append(total)
    return np.repeat(np.array(sums, np.uint32), 32)


@pytest.mark.parametrize("seed", range(3))
def test_random_programs_see_all_that_others_did_before_they_arrived(seed: int) -> None:
    """Threads that have ended count as arrived (PTX ISA, "barrier.cluster")."""
    plan, clusters = _plan(seed), 2
    kernel = nbtc.load(_text(plan))["k"]
    out, said = np.zeros((clusters, 32 * len(ALL)), np.uint32), np.zeros((clusters, len(ALL) * PHASES), np.uint32)
    kernel.launch(clusters * BLOCKS, 32 * WARPS, [out, said], timeout=20)
    np.testing.assert_array_equal(out, np.tile(_expected(plan), (clusters, 1)))
