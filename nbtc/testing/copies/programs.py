"""Programs of random moves: phases in which each move has its own place, so that no order of theirs shows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbtc.testing.copies.draw import WARPS, Drawer
from nbtc.testing.copies.memories import BARRIERS, IMAGE, MEMORY, SOURCE, WARP_BARRIER, Memories, Move
from nbtc.testing.copies.products import Multiply
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.warpgroup_programs import FIELD

LANES = 32
THREADS = LANES * WARPS
MOST_TENSORS = 8  # of a program
TURNS = 1 << 16  # that a thread waits for an mbarrier before it ends the program: each may take a millisecond


class CopyProgram(NamedTuple):
    """PTX with one kernel `k`, and the moves of its phases, which it makes in every round.

    The kernel takes pointers to `source` (block, round, SOURCE bytes) and the tensors that are read, then to the shared
    memory of the blocks (block, IMAGE bytes), `memory` (block, round, MEMORY bytes) and the tensors that are written;
    then the maps of all tensors.
    """

    text: str
    cluster: int
    blocks: int
    rounds: int
    tensors: tuple[Tensor, ...]
    phases: tuple[tuple[Move, ...], ...]

    def results(self, inputs: list[Any], before: list[Any]) -> list[Any]:
        """What the arrays that are written become, by NumPy (and the products by `nbtc.ptx.wgmma`)."""
        source, *read = inputs
        shared, memory, *written = (x.copy() for x in before)
        read, tensors = list(read), []
        for t in self.tensors:
            tensors.append((written if t.written else read).pop(0))
        m = Memories(self.cluster, source, shared, memory, tensors)
        for m.turn in range(self.rounds):
            for phase in self.phases:
                for move in phase:
                    move.apply(m)
        return [shared, memory, *(x for x, t in zip(tensors, self.tensors, strict=True) if t.written)]


def _wait(barrier: int, parity: str, label: str, how: str) -> list[str]:
    test = f"mbarrier.{how}.parity.shared.b64 %q, [%shared+{IMAGE + 8 * barrier}], {parity};"
    return [
        f"mov.u32 %i, 0; {label}: {test} @%q bra {label}_DONE;",
        f"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, {TURNS}; @%q bra {label}; trap;", f"{label}_DONE:",
        f"xor.b32 {parity}, {parity}, 1;",
    ]  # fmt: skip


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.cluster = int(self.rng.choice((1, 2, 2)))
        self.blocks = self.cluster * int(self.rng.integers(1, 3))
        short = self.rng.random() < 0.3  # one phase once: what differs there, a single move made
        self.rounds, self.phases = (1, 1) if short else (int(self.rng.integers(1, 4)), int(self.rng.integers(2, 6)))
        self.labels = 0
        self.meet = (
            "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
            if self.cluster == 2 else "bar.sync 0;"
        )  # fmt: skip

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def move(self, move: Move) -> list[str]:
        """A move by the warp or the thread that makes it, and at times the end of its group."""
        if isinstance(move, Multiply):
            return move.lines()
        label, lane = self.label(), int(self.rng.integers(LANES))
        who = f"setp.ne.u32 %p, %t, {LANES * move.warp + lane};" if move.one_thread else (
            f"setp.ne.u32 %p, %warp, {move.warp};")  # fmt: skip
        commit = {"async": "cp.async.commit_group;", "bulk": "cp.async.bulk.commit_group;"}.get(move.groups, "")
        more = [commit] if commit and self.rng.random() < 0.6 else []
        return [f"{who} @%p bra {label};", *move.lines(), *more, f"{label}: bar.warp.sync -1;"]

    def phase(self, moves: tuple[Move, ...]) -> list[str]:
        """All moves, and the end of all of them."""
        body = [self.meet]
        bytes_ = [sum(m.told for m in moves if m.barrier == n) for n in range(BARRIERS)]
        for n, size in enumerate(bytes_):
            if size:
                who = f"setp.eq.u32 %p, %t, {int(self.rng.integers(THREADS))};"
                body.append(f"{who} @%p mbarrier.arrive.expect_tx.shared.b64 _, [%shared+{IMAGE + 8 * n}], {size};")
        for move in moves:
            body += self.move(move)
        if any(m.groups == "async" for m in moves):
            way = self.rng.integers(2)
            body.append("cp.async.wait_all;" if way else "cp.async.commit_group; cp.async.wait_group 0;")
        if any(m.groups == "bulk" for m in moves):
            waits = sorted(set(self.rng.integers(0, 4, 2).tolist()), reverse=True)
            body += ["cp.async.bulk.commit_group;", *(f"cp.async.bulk.wait_group.read {n};" for n in waits),
                     "cp.async.bulk.wait_group 0;"]  # fmt: skip
        used = [n for n, size in enumerate(bytes_) if size]
        used += [WARP_BARRIER] if any(m.barrier == WARP_BARRIER for m in moves) else []
        for n in self.rng.permutation(used).tolist() if used else ():
            body += _wait(n, f"%parity{n}", self.label(), str(self.rng.choice(("try_wait", "test_wait"))))
        return [*body, "fence.proxy.async;"]

    def program(self) -> CopyProgram:
        drawer = Drawer(self.rng, self.cluster == 2, self.blocks * self.rounds)
        phases = []
        for _ in range(self.phases):
            drawer.new_phase()
            moves = (drawer.move(MOST_TENSORS) for _ in range(self.rng.integers(2, 9)))
            phases.append(tuple(m for m in moves if m is not None))
        made = CopyProgram("", self.cluster, self.blocks, self.rounds, tuple(drawer.tensors), tuple(phases))
        return made._replace(text=self.text(made))

    def text(self, program: CopyProgram) -> str:
        reads = sum(not t.written for t in program.tensors)
        pointers = 1 + reads + 2 + len(program.tensors) - reads
        names = [f".param .u64 array{n}" for n in range(pointers)]
        names += [f".param .align 64 .b8 map{n}[128]" for n in range(len(program.tensors))]
        ranks = "mov.u32 %rank, %cluster_ctarank; xor.b32 %i, %rank, 1; mapa.shared::cluster.u32 %peer, %shared, %i;"
        alone = "mov.u32 %rank, 0; mapa.shared::cluster.u32 %peer, %shared, 0;"
        bars = [f"mbarrier.init.shared.b64 [%shared+{IMAGE + 8 * n}], {LANES if n == WARP_BARRIER else 1};"
                for n in range(BARRIERS + 1)]  # fmt: skip
        line, store = "ld.global.v4.b32 {%u0, %u1, %u2, %u3}, [%x];", "st.shared.v4.b32 [%s], {%u0, %u1, %u2, %u3};"
        back = ["ld.shared.v4.b32 {%u0, %u1, %u2, %u3}, [%s];", "st.global.v4.b32 [%x], {%u0, %u1, %u2, %u3};"]
        body: list[Any] = [
            ".version 8.7", ".target sm_90a", ".address_size 64",
            f".visible .entry k({', '.join(names)}) .reqnctapercluster {self.cluster}", "{",
            f".shared .align 1024 .b8 memory[{IMAGE + 8 * (BARRIERS + 1)}];",
            ".reg .b32 %t, %lane, %warp, %rank, %block, %slot, %round, %shared, %peer, %bar, %i, %s, %u<8>;",
            f".reg .b32 %parity<{BARRIERS + 1}>; .reg .b16 %h<4>; .reg .pred %p, %q, %more;",
            ".reg .b64 %src, %mem, %x, %from, %da, %db, %l<2>;",
            "mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5; mov.u32 %block, %ctaid.x;",
            f"mov.u32 %shared, memory; {ranks if self.cluster == 2 else alone}",
            f"mov.u32 %s, %shared; {FIELD} cvt.u64.u32 %from, %s; mov.u32 %round, 0;",
            f"ld.param.u64 %src, [array0]; ld.param.u64 %mem, [array{2 + reads}];",
            f"mul.lo.u32 %slot, %block, {program.rounds};",
            f"mul.wide.u32 %x, %slot, {SOURCE}; add.u64 %src, %src, %x;",
            f"mul.wide.u32 %x, %slot, {MEMORY}; add.u64 %mem, %mem, %x;",
            *(f"mov.u32 %parity{n}, 0;" for n in range(BARRIERS + 1)),
            "setp.ne.u32 %p, %t, 0; @%p bra READY;", *bars, "fence.mbarrier_init.release.cluster;", "READY:",
            *self.image("IN", 1 + reads, [line, store]), "fence.proxy.async;", "ROUND:",
            *(x for phase in program.phases for x in self.phase(phase)),
            f"add.u64 %src, %src, {SOURCE}; add.u64 %mem, %mem, {MEMORY}; add.u32 %slot, %slot, 1;",
            f"add.u32 %round, %round, 1; setp.lt.u32 %p, %round, {program.rounds}; @%p bra ROUND;", self.meet,
            *self.image("OUT", 1 + reads, back), "ret;", "}", "",
        ]  # fmt: skip
        return "\n".join(body)

    def image(self, name: str, array: int, move: list[str]) -> list[str]:
        """A loop over a block's shared memory and its row of an array."""
        return [
            f"mul.lo.u32 %i, %t, 16; {name}: ld.param.u64 %x, [array{array}]; mul.wide.u32 %l0, %block, {IMAGE};",
            "add.u64 %x, %x, %l0; cvt.u64.u32 %l0, %i; add.u64 %x, %x, %l0; add.u32 %s, %shared, %i;", *move,
            f"add.u32 %i, %i, {16 * THREADS}; setp.lt.u32 %p, %i, {IMAGE}; @%p bra {name};",
        ]  # fmt: skip


def random_copy_program(seed: int) -> CopyProgram:
    """A program for sm_90a, the same for the same seed."""
    return _Writer(seed).program()
