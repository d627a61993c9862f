"""Barriers of a block that are used again: by other warps, with other counts, before those they released have run."""

import random
from typing import NamedTuple

import numpy as np
import pytest

import nbtc

WARPS, USES, NUMBERS = 4, 12, 2


class Use(NamedTuple):
    """One use of a barrier: who arrives and goes on, who waits, and whose predicates are true."""

    number: int
    arrive: tuple[int, ...]
    wait: tuple[int, ...]
    true: frozenset[int]

    @property
    def warps(self) -> tuple[int, ...]:
        return self.arrive + self.wait


def _uses(seed: int) -> list[Use]:
    """Uses that no warp can mix up: whoever comes to a barrier knows that its previous use is over."""
    rng = random.Random(seed)
    knows: list[set[int]] = [set() for _ in range(WARPS)]  # uses that each warp knows to be complete
    last: dict[int, int] = {}
    uses: list[Use] = []
    while len(uses) < USES:
        number = rng.randrange(NUMBERS)
        able = [w for w in range(WARPS) if number not in last or last[number] in knows[w]]
        if not able:  # all meet
            number, able = NUMBERS, list(range(WARPS))
        chosen = rng.sample(able, WARPS if number == NUMBERS else rng.randint(1, len(able)))
        waiting = len(chosen) if number == NUMBERS else rng.randint(1, len(chosen))
        use = Use(number, tuple(chosen[waiting:]), tuple(chosen[:waiting]), frozenset(w for w in chosen if w % 2))
        known = set().union(*(knows[w] for w in use.warps)) | {len(uses)}
        for w in use.wait:
            knows[w] |= known
        if number < NUMBERS:
            last[number] = len(uses)
        uses.append(use)
    return uses


def _text(uses: list[Use], arch: str) -> str:
    """Each warp says in shared memory that it comes to a use; who waits adds what all have said, and the count."""
    body = []
    for w in range(WARPS):
        body.append(f"W{w}:")
        for k, use in enumerate(uses):
            if w not in use.warps:
                continue
            body.append(f"st.shared.b32 [s+{4 * (k * WARPS + w)}], {k + w + 1};")
            count = 32 * len(use.warps)
            if w in use.arrive:
                body.append(f"barrier.arrive {use.number}, {count};")
                continue
            if use.arrive:  # arrivals bring no predicate
                body.append(f"barrier.sync {use.number}, {count}; mov.b32 c, 0;")
            else:
                body.append(
                    f"setp.ne.u32 q, {int(w in use.true)}, 0; barrier.red.popc.u32 c, {use.number}, {count}, q;"
                )
            for other in use.warps:
                body.append(f"ld.shared.b32 v, [s+{4 * (k * WARPS + other)}]; add.u32 c, c, v;")
            body.append("mad.lo.u32 sum, sum, 31, c;")
        body.append("st.global.b32 [o], sum; ret;")
    ways = "".join(f"setp.eq.u32 p, w, {w}; @p bra W{w};\n" for w in range(WARPS))
    return f""".version 8.0 .target {arch} .address_size 64
.visible .entry k(.param .u64 out) {{ .shared .align 4 .b8 s[{4 * WARPS * USES}];
  .reg .b32 t, w, v, c, sum; .reg .b64 o, i; .reg .pred p, q; ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mul.wide.u32 i, t, 4; add.u64 o, o, i; shr.u32 w, t, 5; shfl.sync.idx.b32 w, w, 0, 31, -1;
  mov.u32 sum, 0;
{ways}{chr(10).join(body)}
}}"""


def _expected(uses: list[Use]) -> np.ndarray:
    sums = [0] * WARPS
    for k, use in enumerate(uses):
        found = 0 if use.arrive else 32 * len(use.true)
        found += sum(k + w + 1 for w in use.warps)
        for w in use.wait:
            sums[w] = (31 * sums[w] + found) % 2**32
    return np.repeat(np.array(sums, np.uint32), 32)


@pytest.mark.parametrize("seed", range(4))
def test_random_uses_of_a_few_barriers_are_those_of_a_model(seed: int) -> None:
    uses = _uses(seed)
    kernel = nbtc.load(_text(uses, "sm_90"))["k"]
    for checked in (False, True) if seed == 0 else (False,):
        out = np.zeros(32 * WARPS, np.uint32)
        kernel.launch(1, 32 * WARPS, [out], checked=checked, timeout=20)
        np.testing.assert_array_equal(out, _expected(uses))


REUSED = """.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 out) {
  .reg .b32 t, w, n; .reg .pred p, q; .reg .b64 o, i; ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mul.wide.u32 i, t, 4; add.u64 o, o, i; shr.u32 w, t, 5; shfl.sync.idx.b32 w, w, 0, 31, -1;
  setp.lt.u32 p, w, 1;
  setp.ne.u32 q, t, 0;
  bar.red.popc.u32 n, 0, q;
  @!p bra REST;
  setp.ne.u32 q, t, t;
  bar.red.popc.u32 w, 0, 32, q;
REST:
  st.global.b32 [o], n; barrier.sync 1; ret; }"""


def test_a_warp_is_told_of_the_use_it_waited_for_though_others_have_used_the_barrier_since() -> None:
    out = np.zeros(128, np.uint32)
    nbtc.load(REUSED)["k"].launch(1, 128, [out], timeout=20)
    np.testing.assert_array_equal(out, np.full(128, 127, np.uint32))
