"""Golden vectors: what hardware returned, replayed through nbtc's public functions and compared bit for bit.

A set of recordings is a folder of `.npz` files with an `index.json`, or the one compact file that ships with nbtc.
`replay` has one generator per kind of recording: arrays in; a form, a call and the words it must give out.
"""

from __future__ import annotations

import io
import json
import lzma
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from nbtc.errors import OptionError
from nbtc.testing import raw_bits
from nbtc.verify.gpu import Gpu
from nbtc.verify.hardware import cases
from nbtc.verify.replay import GENERATORS, Array, Case, Groups, Index, kind_of

SMALL = "golden_small.npz.xz"


@dataclass
class Report:
    """What came of one file (or of one kind of recording in the compact set)."""

    file: str
    forms: int = 0
    outputs: int = 0
    mismatches: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when something was compared and all of it agreed."""
        return self.outputs > 0 and not self.mismatches and not self.failures

    def as_dict(self) -> dict[str, Any]:
        """The fields and `ok`, for JSON."""
        return {**asdict(self), "ok": self.ok}


def verify(golden: str | Path | None = None, only: str | None = None, hardware: bool = False) -> Iterator[Report]:
    """Replay recordings and yield one `Report` a file (a kind, for the compact set), as each is done.

    golden: a folder of recordings, or None for the set that ships with nbtc.  only: a pattern that a file's name must
    contain.  hardware: run the inputs of mma, mma.sp and wgmma on this machine's GPU, and compare with that instead of
    with the recorded results.  Raises OptionError when there is nothing to compare.
    """
    gpu = Gpu() if hardware else None
    found = False
    for name, groups, index in sets(golden):
        if only is None or only in name:
            report = _replay(name, groups, index, gpu)
            if report.outputs or report.failures or gpu is None:
                found = True
                yield report
    if not found:
        where = "the recordings that ship with nbtc" if golden is None else f"{str(golden)!r}"
        raise OptionError(
            f"no recordings named *{only or ''}*.npz in {where}: nbtc verify needs a folder of .npz files with an "
            "index.json beside them, as in nbtc verify --golden DIR, or no --golden at all"
        )


def sets(golden: str | Path | None) -> Iterator[tuple[str, Groups, Index]]:
    """Name, arrays and index of each file of a folder, or of each kind in the set that ships with nbtc."""
    if golden is None:
        packed = (resources.files("nbtc") / "data" / SMALL).read_bytes()
        with np.load(io.BytesIO(lzma.decompress(packed))) as z:
            index = json.loads(str(z["index"]))
            kinds: dict[str, list[str]] = {}
            for key in z.files:
                if key != "index":
                    kinds.setdefault(kind_of(key, index), []).append(key)
            for kind, keys in kinds.items():
                yield kind, _group(z, keys), index
        return
    folder = Path(golden)
    listing = folder / "index.json"
    index = json.loads(listing.read_text()) if listing.is_file() else {}
    for path in sorted(folder.glob("*.npz")):
        with path.open("rb") as file, np.load(file) as z:  # np.load would leave a broken file open
            yield path.name, _group(z, z.files), index


def _group(z: Mapping[str, Array], keys: Iterable[str]) -> Groups:
    """Arrays by what comes before the last `__` of their key."""
    groups: Groups = {}
    for key in keys:
        head, _, part = key.rpartition("__")
        groups.setdefault(head, {})[part] = z[key]
    return groups


def _replay(name: str, groups: Groups, index: Index, gpu: Gpu | None) -> Report:
    report = Report(name)
    kinds: dict[str, Groups] = {}
    for head, parts in groups.items():
        kinds.setdefault(kind_of(head + "__", index), {})[head] = parts
    forms = set()
    for kind, members in kinds.items():
        if kind not in GENERATORS:
            report.failures += [f"{head}: no kind of recording that nbtc knows" for head in members]
            continue
        replayed = GENERATORS[kind](members, index) if gpu is None else cases(kind, members, index, gpu)
        for case in replayed:
            forms.add(case.form)
            _compare(report, case)
    report.forms = len(forms)
    return report


def _compare(report: Report, case: Case) -> None:
    report.outputs += case.want.size
    try:
        got = np.asarray(case.call())
    except Exception as error:  # whatever goes wrong in a replay is a result that was not reproduced
        report.mismatches += case.want.size
        report.failures.append(f"{case.form}: {type(error).__name__}: {error}")
        return
    if got.shape != case.want.shape or got.dtype.itemsize != case.want.dtype.itemsize:
        report.mismatches += case.want.size
        report.failures.append(f"{case.form}: {got.dtype} {got.shape}, recorded {case.want.dtype} {case.want.shape}")
        return
    bad = raw_bits(got) != raw_bits(case.want)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        report.mismatches += int(bad.sum())
        report.failures.append(
            f"{case.form}: {int(bad.sum())} of {bad.size} differ, first at {at}: "
            f"{int(raw_bits(got)[at]):#x}, recorded {int(raw_bits(case.want)[at]):#x}"
        )
