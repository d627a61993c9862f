"""What a profiled launch did: a table of the program's places, and its sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import PureWindowsPath
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.code.machine import Site
from nbtc.executor.profile import picture
from nbtc.executor.profile.hooks import COUNTERS
from nbtc.executor.text.names import full_name

LANES, SECTOR = 32, 32  # lanes of a warp, bytes of a sector
SHOWN = 24  # places that printing shows


class Counts(NamedTuple):
    """Counters of a place or of several: see `profile.hooks.COUNTERS`."""

    executed: int = 0
    threads: int = 0
    splits: int = 0
    shared_requests: int = 0
    passes: int = 0
    least_passes: int = 0
    global_requests: int = 0
    sectors: int = 0
    global_bytes: int = 0

    @property
    def active(self) -> float:
        """Lanes that took part in an instruction, on average."""
        return self.threads / self.executed if self.executed else 0.0

    @property
    def conflicts(self) -> int:
        """Passes of shared memory beyond those that the same accesses need without bank conflicts."""
        return self.passes - self.least_passes

    @property
    def sectors_per_request(self) -> float:
        """Sectors of 32 bytes that an access to global memory touched, on average."""
        return self.sectors / self.global_requests if self.global_requests else 0.0

    @property
    def work(self) -> int:
        """Instructions, passes of shared memory and sectors of global memory: what has most of it is printed."""
        return self.executed + self.passes + self.sectors

    @property
    def efficiency(self) -> float:
        """Bytes that lanes moved for each byte of the sectors they touched (lanes at one address count each)."""
        return self.global_bytes / (SECTOR * self.sectors) if self.sectors else 0.0


def _counts(row: NDArray[np.uint64]) -> Counts:
    return Counts(*(int(x) for x in row))


class Place(NamedTuple):
    """An instruction: its function, line of the PTX text, name, source line (0: not known), and what was counted."""

    function: str
    line: int
    mnemonic: str
    file: str
    source_line: int
    counts: Counts

    @property
    def source(self) -> str:
        """File and line of the source, "" where the text has no line information."""
        return f"{PureWindowsPath(self.file).name}:{self.source_line}" if self.source_line else ""  # of both kinds


class Profile:
    """What `k.profile[grid, block](...)` returns; printing it gives a table, notebooks show it as a drawing.

    places: one row for each instruction that was executed, in the order of the text.  total: their sums.  opcodes: warp
    instructions by opcode.
    """

    kernel: str
    places: tuple[Place, ...]
    total: Counts

    def __init__(self, kernel: str, sites: Sequence[Site], counters: NDArray[np.uint64]) -> None:
        self.kernel = full_name(kernel)
        rows: dict[Site, NDArray[np.uint64]] = {}
        for site, row in zip(sites, counters, strict=True):
            if row.any():
                rows[site] = rows.get(site, 0) + row
        found = [Place(*site, _counts(row)) for site, row in rows.items()]
        self.places = tuple(sorted(found, key=lambda p: (p.function != kernel, p.function, p.line)))
        self.total = _counts(np.sum(counters, axis=0, dtype=np.uint64))

    @property
    def opcodes(self) -> dict[str, int]:
        """Executed warp instructions by opcode, the most frequent first."""
        found: Counter[str] = Counter()
        for p in self.places:
            found[p.mnemonic.split(".")[0]] += p.counts.executed
        return dict(found.most_common())

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain data, for JSON."""
        places = [{**p._asdict(), "counts": p.counts._asdict()} for p in self.places]
        return {"kernel": self.kernel, "total": self.total._asdict(), "opcodes": self.opcodes, "places": places}

    def summary(self) -> list[str]:
        """The sums in words."""
        t = self.total
        lines = [f"{t.executed:,} warp instructions, {t.active:.1f} of {LANES} lanes active"]
        if t.splits:
            lines.append(f"{t.splits:,} branches sent lanes two ways")
        if t.shared_requests:
            lines.append(
                f"shared memory: {t.shared_requests:,} requests, {t.conflicts:,} passes lost to bank conflicts"
            )
        if t.global_requests:
            each = f"{t.sectors_per_request:.1f} sectors a request, {100 * t.efficiency:.0f} % of their bytes used"
            lines.append(f"global memory: {t.global_requests:,} requests, {each}")
        return lines

    def __str__(self) -> str:
        head = [f"kernel {self.kernel}", *(f"  {line}" for line in self.summary())]
        opcodes = ", ".join(f"{name} {count:,}" for name, count in self.opcodes.items())
        hottest = sorted(self.places, key=lambda p: -p.counts.work)[:SHOWN]
        chosen = [p for p in self.places if p in hottest]
        left = len(self.places) - len(chosen)
        more = [f"  ... {left} more, none with more work; `places` has all"] if left else []
        sources = [p.source for p in chosen]
        width = max(map(len, sources), default=0)
        rows = [_row(p, source, width) for p, source in zip(chosen, sources, strict=True)]
        return "\n".join([*head, f"  opcodes: {opcodes}", "", _title(width), *rows, *more])

    __repr__ = __str__

    def svg(self) -> str:
        """The drawing as an SVG document: a bar for each instruction, with what its memory accesses cost."""
        bars = [
            picture.Bar(f"{p.line}", p.mnemonic, p.counts.executed, p.counts.active / LANES, note(p.counts))
            for p in self.places
        ]
        return picture.draw(f"kernel {self.kernel}", self.summary(), bars)

    _repr_svg_ = svg


def _title(width: int) -> str:
    """The table's head; width: of the sources' lines, 0 where none is known."""
    source = f"{'source':<{max(width, 6)}}  " if width else ""
    return f"  {'line':>5}  {source}{'instruction':<34}{'executed':>12}{'lanes':>7}  memory"


def note(c: Counts) -> str:
    """What a place's memory accesses and branches cost."""
    parts = []
    if c.splits:
        parts.append(f"{c.splits:,} of them two ways")
    if c.shared_requests:
        conflicts = f", {c.conflicts:,} lost to conflicts" if c.conflicts else ""
        parts.append(f"{c.passes / c.shared_requests:.1f} passes a request{conflicts}")
    if c.global_requests:
        parts.append(f"{c.sectors_per_request:.1f} sectors a request, {100 * c.efficiency:.0f} % used")
    return "; ".join(parts)


def _row(p: Place, source: str, width: int) -> str:
    at = f"{source:<{max(width, 6)}}  " if width else ""
    name = p.mnemonic if len(p.mnemonic) <= 33 else p.mnemonic[:30] + "..."
    return f"  {p.line:>5}  {at}{name:<34}{p.counts.executed:>12,}{p.counts.active:>7.1f}  {note(p.counts)}".rstrip()


def empty(sites: int) -> NDArray[np.uint64]:
    """Counters of so many places."""
    return np.zeros((sites, len(COUNTERS)), np.uint64)
