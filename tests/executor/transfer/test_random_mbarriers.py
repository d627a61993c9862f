"""Random programs of mbarriers against a model: phases used again, waits by parity and by token, bytes owed."""

import random
from typing import NamedTuple

import numpy as np
import pytest

import nbtc

WARPS, USES, BARRIERS = 4, 14, 3
ALL = BARRIERS  # the number of a use in which all meet at the block's own barrier
FORMS = ("arrive", "count", "bytes")


class Use(NamedTuple):
    """One phase: who arrives, in which form, who waits in which form; `phase` counts an mbarrier's phases."""

    number: int
    phase: int
    arrive: tuple[int, ...]
    form: str
    wait: dict[int, str]

    @property
    def warps(self) -> tuple[int, ...]:
        return tuple(range(WARPS)) if self.number == ALL else self.arrive


def _waits(rng: random.Random, waiting: list[int], arrive: tuple[int, ...]) -> dict[int, str]:
    """A token is for those who arrived; the others name the parity."""
    ways = ("test_wait.parity", "try_wait.parity")
    return {w: rng.choice((*ways, "try_wait") if w in arrive else ways) for w in waiting}


def _uses(seed: int) -> tuple[list[int], list[Use]]:
    """(arrivals that each mbarrier expects, phases) that no warp can mix up.

    Who arrives or waits knows that the phase before is over, and those who arrive know together that all who wait for
    that one have seen its end: a parity says no more than that.
    """
    rng = random.Random(seed)
    expected = [rng.randint(1, WARPS - 1) for _ in range(BARRIERS)]
    knows: list[set[object]] = [set() for _ in range(WARPS)]  # ends of phases, and waits for them, that a warp knows of
    phases = [0] * BARRIERS
    due: list[set[object]] = [set() for _ in range(BARRIERS)]  # the waits for an mbarrier's last phase
    uses: list[Use] = []
    while len(uses) < USES:
        number = rng.randrange(BARRIERS)
        phase = phases[number]
        able = [w for w in range(WARPS) if not phase or (number, phase - 1) in knows[w]]
        arrive = tuple(rng.sample(able, expected[number])) if len(able) >= expected[number] else ()
        if not arrive or not due[number] <= set().union(*(knows[w] for w in arrive)):
            everything: set[object] = set().union(*knows)
            knows = [set(everything) for _ in range(WARPS)]
            uses.append(Use(ALL, 0, (), "", {}))
            continue
        waiting = rng.sample(able, rng.randint(1, len(able)))
        known = set().union(*(knows[w] for w in arrive)) | {(number, phase)}
        due[number] = {(number, phase, w) for w in waiting}
        for w in waiting:
            knows[w] |= known | {(number, phase, w)}
        phases[number] += 1
        uses.append(Use(number, phase, arrive, rng.choice(FORMS), _waits(rng, waiting, arrive)))
    return expected, uses


def _arrival(use: Use, w: int) -> str:
    """Bytes are owed by who arrives first by name and brought by the last, perhaps before they are owed."""
    bar = f"[m+{8 * use.number}]"
    if use.form == "bytes" and w == use.arrive[0]:
        paid = f"mbarrier.complete_tx.relaxed.cta.shared.b64 {bar}, 48;" if len(use.arrive) == 1 else ""
        # a phase can't end before: the arrival that owes is its last
        return f"@l mbarrier.expect_tx.relaxed.cta.shared.b64 {bar}, 48; @l {paid or 'mov.b32 v, 0;'}" + (
            f" @l mbarrier.arrive.shared.b64 token, {bar};"
        )
    if use.form == "bytes" and w == use.arrive[-1]:
        return f"@l mbarrier.complete_tx.relaxed.cta.shared.b64 {bar}, 48; @l mbarrier.arrive.shared.b64 token, {bar};"
    count = ", 1" if use.form == "count" else ""
    return f"@l mbarrier.arrive.shared.b64 token, {bar}{count};"


def _text(expected: list[int], uses: list[Use]) -> str:
    """Each warp says in shared memory that it comes to a phase; who waits adds what those that arrived have said."""
    body = []
    for w in range(WARPS):
        body.append(f"W{w}:")
        for k, use in enumerate(uses):
            if w in use.warps:
                body.append(f"st.shared.b32 [s+{4 * (k * WARPS + w)}], {k + w + 1};")
            if use.number == ALL:
                body.append("barrier.sync 1;")
            if w in use.arrive:  # once all lanes have stored
                body.append(f"bar.warp.sync -1; {_arrival(use, w)}")
            if w not in use.wait and use.number != ALL:
                continue
            if w in use.wait:
                way, phase = use.wait[w], f"{use.phase % 2}"
                if way == "try_wait":
                    body.append("mov.b64 {lo, hi}, token; shfl.sync.idx.b32 lo, lo, 0, 31, -1;")
                    body.append("shfl.sync.idx.b32 hi, hi, 0, 31, -1; mov.b64 token, {lo, hi};")
                    phase = "token"
                body.append(f"L{w}_{k}: mbarrier.{way}.shared.b64 p, [m+{8 * use.number}], {phase};")
                body.append(f"@!p bra L{w}_{k};")
            body.append("mov.b32 c, 0;")
            for other in use.warps:
                body.append(f"ld.shared.b32 v, [s+{4 * (k * WARPS + other)}]; add.u32 c, c, v;")
            body.append("mad.lo.u32 sum, sum, 31, c;")
        body.append("st.global.b32 [o], sum; ret;")
    ways = "".join(f"setp.eq.u32 p, w, {w}; @p bra W{w};\n" for w in range(WARPS))
    first = "".join(f"@z mbarrier.init.shared.b64 [m+{8 * n}], {count};\n" for n, count in enumerate(expected))
    return f""".version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 out) {{ .shared .align 4 .b8 s[{4 * WARPS * USES}];
  .shared .align 8 .b8 m[{8 * BARRIERS}];
  .reg .b32 t, w, v, c, sum, lo, hi, lane; .reg .b64 o, i, token; .reg .pred p, l, z; ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mul.wide.u32 i, t, 4; add.u64 o, o, i; shr.u32 w, t, 5; shfl.sync.idx.b32 w, w, 0, 31, -1;
  mov.u32 lane, %laneid; setp.eq.u32 l, lane, 0; setp.eq.u32 z, t, 0; mov.u32 sum, 0; mov.b64 token, 0;
{first}  barrier.sync 0;
{ways}{chr(10).join(body)}
}}"""


def _expected(uses: list[Use]) -> np.ndarray:
    sums = [0] * WARPS
    for k, use in enumerate(uses):
        for w in use.warps if use.number == ALL else use.wait:
            sums[w] = (31 * sums[w] + sum(k + other + 1 for other in use.warps)) % 2**32
    return np.repeat(np.array(sums, np.uint32), 32)


@pytest.mark.parametrize("seed", range(6))
def test_random_phases_of_a_few_mbarriers_are_those_of_a_model(seed: int) -> None:
    expected, uses = _uses(seed)
    kernel = nbtc.load(_text(expected, uses))["k"]
    for checked in (False, True) if seed < 2 else (False,):
        out = np.zeros(32 * WARPS, np.uint32)
        kernel.launch(1, 32 * WARPS, [out], checked=checked, timeout=60)
        np.testing.assert_array_equal(out, _expected(uses))
