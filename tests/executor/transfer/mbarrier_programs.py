"""Random programs of mbarriers and a model of them: phases used again, waits by parity and by token, bytes owed.

With several blocks, which form a cluster, warps arrive at the mbarriers of other blocks and read and store there.  A
program may have a hazard: a warp that reads without waiting, that stores after it has arrived, or does not arrive.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np

USES, BARRIERS = 14, 3
ALL = BARRIERS  # the number of a use in which all meet at the block's or the cluster's own barrier
FORMS = ("arrive", "count", "bytes")
HAZARDS = ("no wait", "late store", "no arrival")


@dataclass(frozen=True)
class Use:
    """One phase: who arrives, in which form, who waits in which form; `phase` counts an mbarrier's phases.

    no_wait: who reads what the others have stored without waiting.  late: who stores after the arrival.  absent: who
    does not arrive.
    """

    number: int
    phase: int
    arrive: tuple[int, ...]
    form: str
    wait: dict[int, str] = field(default_factory=dict)
    no_wait: int | None = None
    late: int | None = None
    absent: int | None = None


@dataclass(frozen=True)
class Program:
    """`blocks` of `warps` each; the arrivals that each mbarrier expects; phases in an order that no warp can mix up."""

    blocks: int
    warps: int
    expected: tuple[int, ...]
    uses: tuple[Use, ...]

    @property
    def everyone(self) -> tuple[int, ...]:
        """Numbers of all warps, block after block."""
        return tuple(range(self.blocks * self.warps))

    def storing(self, use: Use) -> tuple[int, ...]:
        """Who stores before a use."""
        return self.everyone if use.number == ALL else use.arrive


def drawn(seed: int, blocks: int = 1, warps: int = 4) -> Program:
    """A right program.

    Who arrives or waits knows that the phase before is over, and those who arrive know together that all who wait for
    that one have seen its end: a parity says no more than that.  An mbarrier is its block's that has its number; only
    this block's warps wait.
    """
    rng = random.Random(seed)
    everyone = range(blocks * warps)
    expected = tuple(rng.randint(1, len(everyone) - 1) for _ in range(BARRIERS))
    knows: list[set[object]] = [set() for _ in everyone]  # ends of phases, and waits for them, that a warp knows of
    phases = [0] * BARRIERS
    due: list[set[object]] = [set() for _ in range(BARRIERS)]  # the waits for an mbarrier's last phase
    uses: list[Use] = []
    while len(uses) < USES:
        number = rng.randrange(BARRIERS)
        phase = phases[number]
        able = [w for w in everyone if not phase or (number, phase - 1) in knows[w]]
        own = [w for w in able if w // warps == number % blocks]
        arrive = tuple(rng.sample(able, expected[number])) if own and len(able) >= expected[number] else ()
        if not arrive or not due[number] <= set().union(*(knows[w] for w in arrive)):
            everything: set[object] = set().union(*knows)
            knows = [set(everything) for _ in everyone]
            uses.append(Use(ALL, 0, (), ""))
            continue
        waiting = rng.sample(own, rng.randint(1, len(own)))
        known = set().union(*(knows[w] for w in arrive)) | {(number, phase)}
        due[number] = {(number, phase, w) for w in waiting}
        for w in waiting:
            knows[w] |= known | {(number, phase, w)}
        phases[number] += 1
        ways = ("test_wait.parity", "try_wait.parity")  # a token is for those who arrived
        wait = {w: rng.choice((*ways, "try_wait") if w in arrive else ways) for w in waiting}
        uses.append(Use(number, phase, arrive, rng.choice(FORMS), wait))
    return Program(blocks, warps, expected, tuple(uses))


def _ends(program: Program, k: int) -> list[set[int]]:
    """The uses, of those before number k, whose end each warp knows."""
    knows: list[set[int]] = [set() for _ in program.everyone]
    for j, use in enumerate(program.uses[:k]):
        known = set().union(*(knows[w] for w in program.storing(use))) | {j}
        for w in program.everyone if use.number == ALL else use.wait:
            knows[w] |= known
    return knows


def _last_wait(program: Program, k: int, w: int) -> int | None:
    """The last use before number k that a warp waited in."""
    waited = [j for j, use in enumerate(program.uses[:k]) if use.number == ALL or w in use.wait]
    return max(waited, default=None)


def _readers(program: Program, k: int, writers: tuple[int, ...]) -> list[int]:
    """Who waits in a use, and so far has waited for nothing whose end one of the others, who store, does not know."""
    knows, found = _ends(program, k), []
    for w in program.uses[k].wait:
        last = _last_wait(program, k, w)
        if any(v != w and (last is None or last in knows[v]) for v in writers):
            found.append(w)
    return found


def hazards(program: Program, what: str) -> list[Program]:
    """Programs with one hazard, which checked mode has to report.

    A warp that waits learns, in checked mode's clock, of everything that happened before (`What is not found` in
    docs/checked.md).  So the warp that stores has to know of the reader's last wait, and of a late store's phase no
    other arrival may come after it.
    """
    found = []
    for k, use in enumerate(program.uses):
        if use.number == ALL:
            continue
        if what == "no wait" and k == len(program.uses) - 1:
            found += [_changed(program, k, replace(use, no_wait=w)) for w in _readers(program, k, use.arrive)]
        elif what == "late store" and len(use.arrive) == 1 and _readers(program, k, use.arrive):
            found.append(_changed(program, k, replace(use, late=use.arrive[0])))
        elif what == "no arrival" and use.wait.get(use.arrive[-1]) != "try_wait":  # which has no token then
            found.append(_changed(program, k, replace(use, absent=use.arrive[-1])))
    return found


def _changed(program: Program, k: int, use: Use) -> Program:
    return replace(program, uses=(*program.uses[:k], use, *program.uses[k + 1 :]))


def expected(program: Program) -> np.ndarray:
    """What every thread stores in the end."""
    sums = [0 for _ in program.everyone]
    for k, use in enumerate(program.uses):
        for w in program.everyone if use.number == ALL else use.wait:
            sums[w] = (31 * sums[w] + sum(k + other + 1 for other in program.storing(use))) % 2**32
    return np.repeat(np.array(sums, np.uint32), 32)


class _Text:
    """A program's PTX."""

    def __init__(self, program: Program) -> None:
        self.program = program
        alone = program.blocks == 1
        self.scope, self.space = ("cta", "shared::cta") if alone else ("cluster", "shared::cluster")
        self.meet = "barrier.sync 1;" if alone else "barrier.cluster.arrive.release; barrier.cluster.wait.acquire;"

    def owner(self, use: Use) -> int:
        """The block whose mbarrier, and whose shared memory, a use is about."""
        return use.number % self.program.blocks

    def barrier(self, use: Use) -> str:
        return f"[m{self.owner(use)}+{8 * use.number}]"

    def slot(self, use: Use, k: int, w: int) -> str:
        """Where a warp says that it comes to a use."""
        return f"[s{self.owner(use)}+{4 * (k * len(self.program.everyone) + w)}]"

    def arrival(self, use: Use, w: int) -> str:
        """Bytes are owed by who arrives first by name and brought by the last, perhaps before they are owed."""
        bar, local = self.barrier(use), w // self.program.warps == self.owner(use)
        space = "shared::cta" if local else self.space
        bytes_ = f"tx.relaxed.{self.scope}.{space}.b64 {bar}, 48;"
        words = [f"@l mbarrier.arrive.release.{self.scope}.{space}.b64 {'token' if local else '_'}, {bar}"]
        words[0] += f"{', 1' if use.form == 'count' else ''};"
        if use.form == "bytes" and w == use.arrive[-1]:
            words.insert(0, f"@l mbarrier.complete_{bytes_}")
        if use.form == "bytes" and w == use.arrive[0]:  # a phase can't end before: the arrival that owes is its last
            words.insert(0, f"@l mbarrier.expect_{bytes_}")
        return " ".join(words)

    def wait(self, use: Use, k: int, w: int) -> list[str]:
        way, phase = use.wait[w], f"{use.phase % 2}"
        words = []
        if way == "try_wait":
            words += ["mov.b64 {lo, hi}, token; shfl.sync.idx.b32 lo, lo, 0, 31, -1;"]
            words += ["shfl.sync.idx.b32 hi, hi, 0, 31, -1; mov.b64 token, {lo, hi};"]
            phase = "token"
        label = f"L{w}_{k}"
        test = f"mbarrier.{way}.acquire.{self.scope}.shared::cta.b64 p, {self.barrier(use)}, {phase};"
        return [*words, f"{label}: {test}", f"@!p bra {label};"]

    def warp(self, w: int) -> list[str]:
        """What a warp does: it says that it comes, arrives, waits, adds what those that arrived have said."""
        body, program = [f"W{w}:"], self.program
        for k, use in enumerate(program.uses):
            store = f"st.{self.space}.b32 {self.slot(use, k, w)}, {k + w + 1};"
            stores = w in program.storing(use)
            if stores and w != use.late:
                body.append(store)
            if use.number == ALL:
                body.append(self.meet)
            if w in use.arrive and w != use.absent:  # once all lanes have stored
                body.append(f"bar.warp.sync -1; {self.arrival(use, w)}")
            if stores and w == use.late:
                body.append(store)
            if w in use.wait and w != use.no_wait:
                body += self.wait(use, k, w)
            if w in use.wait or use.number == ALL:
                body.append("mov.b32 c, 0;")
                for other in program.storing(use):
                    body.append(f"ld.{self.space}.b32 v, {self.slot(use, k, other)}; add.u32 c, c, v;")
                body.append("mad.lo.u32 sum, sum, 31, c;")
        return [*body, "st.global.b32 [o], sum;", f"{self.meet} ret;"]

    def whole(self) -> str:
        """The program's text."""
        program, blocks = self.program, range(self.program.blocks)
        bases = "".join(
            f"mov.u32 {x}0, {x};\n"
            if program.blocks == 1
            else "".join(f"mapa.shared::cluster.u32 {x}{b}, {x}, {b};\n" for b in blocks)
            for x in "sm"
        )
        first = "".join(f"@z mbarrier.init.shared.b64 [m+{8 * n}], {x};\n" for n, x in enumerate(program.expected))
        ways = "".join(f"setp.eq.u32 p, w, {w}; @p bra W{w};\n" for w in program.everyone)
        body = "\n".join(line for w in program.everyone for line in self.warp(w))
        names = ", ".join(f"s{b}, m{b}" for b in blocks)
        return f""".version 8.0 .target sm_90 .address_size 64
.visible .entry k(.param .u64 out) {{ .shared .align 4 .b8 s[{4 * len(program.everyone) * USES}];
  .shared .align 8 .b8 m[{8 * BARRIERS}];
  .reg .b32 t, w, v, c, sum, lo, hi, lane, {names}; .reg .b64 o, i, token; .reg .pred p, l, z; ld.param.u64 o, [out];
  mov.u32 t, %tid.x; mov.u32 v, %ctaid.x; mad.lo.u32 c, v, {32 * program.warps}, t;
  mul.wide.u32 i, c, 4; add.u64 o, o, i; shr.u32 w, c, 5; shfl.sync.idx.b32 w, w, 0, 31, -1;
  mov.u32 lane, %laneid; setp.eq.u32 l, lane, 0; setp.eq.u32 z, t, 0; mov.u32 sum, 0; mov.b64 token, 0;
{bases}{first}  @z fence.mbarrier_init.release.cluster;
  {self.meet}
{ways}{body}
}}"""


def text(program: Program) -> str:
    """A program's PTX, for `.target sm_90`: kernel k(out), an unsigned 32-bit number for each thread."""
    return _Text(program).whole()
