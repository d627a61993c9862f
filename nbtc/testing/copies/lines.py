"""Moves of lines of bytes: by the threads of a warp, by the bulk copy engine, between blocks of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from nbtc.testing.copies.memories import WARP_BARRIER, Memories, Move, reduced, size_of

LANES = 32
# bytes that a thread moves: the registers, and the vector in the instruction's name
WIDTHS = {1: ("%h0", "b8"), 2: ("%h0", "b16"), 4: ("%u0", "b32"), 8: ("{%u0, %u1}", "v2.b32"),
          16: ("{%u0, %u1, %u2, %u3}", "v4.b32")}  # fmt: skip
BULK = "mbarrier::complete_tx::bytes"


def _here(width: int, offset: int, base: str) -> list[str]:
    """Set %x to a lane's place in a line of global memory."""
    return [f"mul.wide.u32 %x, %lane, {width}; add.u64 %x, %x, {base}; add.u64 %x, %x, {offset};"]


def _each(at: int, base: str, width: int) -> str:
    """Set %s to a lane's place in a line of shared memory."""
    return f"mad.lo.u32 %s, %lane, {width}, {at}; add.u32 %s, %s, {base};"


@dataclass(frozen=True)
class ByThreads(Move):
    """Loads and stores of a warp: from global memory, or the peer's shared memory, to shared memory, or the peer's."""

    width: int = 4
    source: int = -1  # in global memory; -1: `read`
    to_peer: bool = False

    def lines(self) -> list[str]:
        """Load and store."""
        registers, kind = WIDTHS[self.width]
        space, base = ("shared::cluster", "%peer") if self.to_peer else ("shared", "%shared")
        if self.source >= 0:
            load = [*_here(self.width, self.source, "%src"), f"ld.global.{kind} {registers}, [%x];"]
        else:  # what is not stored to the peer comes from there
            other, there = ("shared", "%shared") if self.to_peer else ("shared::cluster", "%peer")
            load = [_each(self.read[0], there, self.width), f"ld.{other}.{kind} {registers}, [%s];"]
        return [*load, _each(self.written[0], base, self.width), f"st.{space}.{kind} [%s], {registers};"]

    def apply(self, m: Memories) -> None:
        """A line."""
        before, (at, size) = m.shared.copy(), self.written
        for block, peer, _ in m.blocks():
            other = block if self.to_peer else peer
            line = m.read(block, self.source, size) if self.source >= 0 else before[other, self.read[0] :][:size]
            m.shared[peer if self.to_peer else block, at : at + size] = line


@dataclass(frozen=True)
class Async(Move):
    """cp.async of a warp.  sizes: "all", "some" of a lane's bytes, or the source is "ignored" by every third lane."""

    width: int = 16
    source: int = 0
    sizes: str = "all"
    groups: ClassVar[str] = "async"

    def _sizes(self) -> Any:
        lanes = np.arange(LANES)
        if self.sizes == "all":
            return np.full(LANES, self.width)
        return lanes * 5 % (self.width + 1) if self.sizes == "some" else self.width * (lanes % 3 != 0)

    def lines(self) -> list[str]:
        """The copy; groups are committed by the program."""
        found, more = [*_here(self.width, self.source, "%src"), _each(self.written[0], "%shared", self.width)], ""
        if self.sizes == "some":
            found.append(f"mul.lo.u32 %i, %lane, 5; rem.u32 %i, %i, {self.width + 1};")
            more = ", %i"
        elif self.sizes == "ignored":
            found.append("rem.u32 %i, %lane, 3; setp.eq.u32 %q, %i, 0;")
            more = ", %q"
        cache = "cg" if self.width == 16 and self.source % 3 else "ca"
        found.append(f"cp.async.{cache}.shared.global [%s], [%x], {self.width}{more};")
        if self.barrier == WARP_BARRIER:
            found.append(f"{self.mbarrier()} cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];")
        return found

    def apply(self, m: Memories) -> None:
        """Lines with zeros after each lane's bytes."""
        at, size = self.written
        kept = (np.arange(self.width)[None, :] < self._sizes()[:, None]).reshape(-1)
        for block, _, _ in m.blocks():
            m.shared[block, at : at + size] = np.where(kept, m.read(block, self.source, size), 0)


@dataclass(frozen=True)
class BulkLoad(Move):
    """cp.async.bulk from global memory; cast: "one" block, "first" of the cluster to all, "both" to all in turn."""

    source: int = 0
    cast: str = "one"
    one_thread: ClassVar[bool] = True

    @property
    def told(self) -> int:
        """Bytes."""
        return self.written[1]

    def lines(self) -> list[str]:
        """One copy of the block."""
        at, size = self.written
        part = size // 2 if self.cast == "both" else size
        found = [self.at("%s", at), self.mbarrier(), f"add.u64 %x, %src, {self.source};"]
        if self.cast == "one":
            return [*found, f"cp.async.bulk.shared::cluster.global.{BULK} [%s], [%x], {part}, [%bar];"]
        found.append("mov.b16 %h0, 3; setp.eq.u32 %q, %rank, 0;")
        if self.cast == "both":
            found.append(f"mad.lo.u32 %s, %rank, {part}, %s; setp.eq.u32 %q, 0, 0;")
        return [*found, f"@%q cp.async.bulk.shared::cluster.global.{BULK}.multicast::cluster [%s], [%x], {part}, "
                "[%bar], %h0;"]  # fmt: skip

    def apply(self, m: Memories) -> None:
        """To one block or to both."""
        at, size = self.written
        for block, peer, _ in m.blocks():
            if self.cast == "one":
                m.shared[block, at : at + size] = m.read(block, self.source, size)
            elif self.cast == "both" or block % 2 == 0:
                part = size // 2 if self.cast == "both" else size
                start = at + (block % 2) * part
                m.shared[[block, peer], start : start + part] = m.read(block, self.source, part)


@dataclass(frozen=True)
class BulkToPeer(Move):
    """cp.async.bulk, or a reduction, from a block's shared memory to its peer's, whose mbarrier counts the bytes."""

    operation: str = ""
    type: str = "b32"
    one_thread: ClassVar[bool] = True

    @property
    def told(self) -> int:
        """Bytes."""
        return self.written[1]

    def lines(self) -> list[str]:
        """One copy."""
        name = f"cp.{'reduce.' if self.operation else ''}async.bulk.shared::cluster.shared::cta.{BULK}"
        name += f".{self.operation}.{self.type}" if self.operation else ""
        places = [self.at("%s", self.written[0], "%peer"), self.at("%i", self.read[0]), self.mbarrier("%peer")]
        return [*places, f"{name} [%s], [%i], {self.written[1]}, [%bar];"]

    def apply(self, m: Memories) -> None:
        """A line."""
        before, (at, size) = m.shared.copy(), self.written
        for block, peer, _ in m.blocks():
            line = before[block, self.read[0] :][:size]
            there = before[peer, at : at + size]
            m.shared[peer, at : at + size] = reduced(self.operation, self.type, there, line) if self.operation else line


@dataclass(frozen=True)
class StoreAsync(Move):
    """st.async of a warp's lanes to the peer."""

    kind: str = "b32"  # with the vector before it
    source: int = 0

    @property
    def told(self) -> int:
        """Bytes."""
        return self.written[1]

    def lines(self) -> list[str]:
        """Load and store."""
        width = self.written[1] // LANES
        count = int(self.kind[1]) if self.kind[0] == "v" else 1
        letter = "l" if "64" in self.kind else "u"
        names = ", ".join(f"%{letter}{n}" for n in range(count))
        names = f"{{{names}}}" if count > 1 else names
        return [
            *_here(width, self.source, "%src"), f"ld.global.{self.kind} {names}, [%x];",
            _each(self.written[0], "%peer", width), self.mbarrier("%peer"),
            f"st.async.weak.shared::cluster.{BULK}.{self.kind} [%s], {names}, [%bar];",
        ]  # fmt: skip

    def apply(self, m: Memories) -> None:
        """A line."""
        at, size = self.written
        for block, peer, _ in m.blocks():
            m.shared[peer, at : at + size] = m.read(block, self.source, size)


@dataclass(frozen=True)
class ReduceAsync(Move):
    """red.async of a warp's lanes at the peer; `written` may be shorter than a warp: lanes then share words."""

    operation: str = "add"
    type: str = "u32"
    source: int = 0

    @property
    def told(self) -> int:
        """Bytes of all lanes."""
        return LANES * size_of(self.type)

    def lines(self) -> list[str]:
        """Load and reduce."""
        width = size_of(self.type)
        register, load = ("%l0", "b64") if width == 8 else ("%u0", "b32")
        return [
            *_here(width, self.source, "%src"), f"ld.global.{load} {register}, [%x];",
            f"rem.u32 %i, %lane, {self.written[1] // width}; mad.lo.u32 %s, %i, {width}, {self.written[0]};",
            "add.u32 %s, %s, %peer;", self.mbarrier("%peer"),
            f"red.async.relaxed.cluster.shared::cluster.{BULK}.{self.operation}.{self.type} [%s], {register}, [%bar];",
        ]  # fmt: skip

    def apply(self, m: Memories) -> None:
        """Lane by lane: the order of those that share a word does not matter."""
        (at, size), width = self.written, size_of(self.type)
        for block, peer, _ in m.blocks():
            line = m.read(block, self.source, LANES * width)
            for lane in range(LANES):
                to = at + lane * width % size
                m.shared[peer, to : to + width] = reduced(
                    self.operation, self.type, m.shared[peer, to : to + width].copy(),
                    line[lane * width : (lane + 1) * width].copy(),
                )  # fmt: skip


@dataclass(frozen=True)
class BulkStore(Move):
    """cp.async.bulk, or a reduction, from shared to global memory."""

    target: int = 0
    operation: str = ""
    type: str = "b32"
    one_thread: ClassVar[bool] = True
    groups: ClassVar[str] = "bulk"

    def lines(self) -> list[str]:
        """One copy."""
        name = f"cp.{'reduce.' if self.operation else ''}async.bulk.global.shared::cta.bulk_group"
        name += f".{self.operation}.{self.type}" if self.operation else ""
        return [self.at("%s", self.read[0]), f"add.u64 %x, %mem, {self.target};", f"{name} [%x], [%s], {self.read[1]};"]

    def apply(self, m: Memories) -> None:
        """A line."""
        at, size = self.read
        for block, _, _ in m.blocks():
            line, there = m.shared[block, at : at + size].copy(), m.memory[block, m.turn, self.target :][:size]
            there[:] = reduced(self.operation, self.type, there.copy(), line) if self.operation else line


@dataclass(frozen=True)
class Matrices(Move):
    """stmatrix of registers from global memory, or ldmatrix and stores of its registers.  step: between rows."""

    count: int = 4
    transposed: bool = False
    source: int = -1  # in global memory: stmatrix; -1: `read`, ldmatrix
    step: int = 16

    def lines(self) -> list[str]:
        """A lane's words are 4 * count bytes of a line; the address of row n of all matrices is n * step on."""
        names = ", ".join(f"%u{n}" for n in range(self.count))
        which = f"sync.aligned.m8n8.x{self.count}{'.trans' if self.transposed else ''}.shared.b16"
        found = []
        if self.source >= 0:
            found += _here(4 * self.count, self.source, "%src")
            found += [f"ld.global.b32 %u{n}, [%x+{4 * n}];" for n in range(self.count)]
            place = self.written[0]
        else:
            place = self.read[0]
        found.append(f"rem.u32 %i, %lane, {8 * self.count}; mad.lo.u32 %s, %i, {self.step}, {place};")
        found.append("add.u32 %s, %s, %shared;")
        if self.source >= 0:
            return [*found, f"stmatrix.{which} [%s], {{{names}}};"]
        found += [f"ldmatrix.{which} {{{names}}}, [%s];", _each(self.written[0], "%shared", 4 * self.count)]
        return [*found, *(f"st.shared.b32 [%s+{4 * n}], %u{n};" for n in range(self.count))]

    def apply(self, m: Memories) -> None:
        """Row lane // 4 of a matrix, columns 2 * (lane % 4) and the next; transposed: of its transpose."""
        lane = np.arange(LANES)
        low, high = lane // 4, 2 * (lane % 4)
        for block, _, _ in m.blocks():
            place = self.written[0] if self.source >= 0 else self.read[0]
            at = place + self.step * np.arange(8 * self.count)[:, None] + np.arange(16)
            if self.source >= 0:
                words = m.read(block, self.source, 4 * self.count * LANES).view(np.uint16).reshape(LANES, self.count, 2)
                for n in range(self.count):
                    matrix = np.zeros((8, 8), np.uint16)
                    for e in range(2):
                        matrix[(high + e, low) if self.transposed else (low, high + e)] = words[:, n, e]
                    m.shared[block, at[8 * n : 8 * n + 8]] = matrix.view(np.uint8)
            else:
                rows = m.shared[block, at].view(np.uint16)
                words = np.zeros((LANES, self.count, 2), np.uint16)
                for n in range(self.count):
                    matrix = rows[8 * n : 8 * n + 8]
                    for e in range(2):
                        words[:, n, e] = matrix[(high + e, low) if self.transposed else (low, high + e)]
                m.shared[block, self.written[0] :][: words.nbytes] = words.reshape(-1).view(np.uint8)
