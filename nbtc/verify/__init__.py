"""Golden vectors: what hardware returned, replayed through nbtc's public functions and compared bit for bit.

A set of recordings is a folder of `.npz` files with an `index.json`, or the one compact file that ships with nbtc.
`replay` has one generator per kind of recording: arrays in; a form, a call and the words it must give out.
"""

from __future__ import annotations

import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from nbtc.errors import NbtcError, OptionError, RecordingError, UnsupportedInstructionError
from nbtc.testing import raw_bits
from nbtc.verify import through_ptx
from nbtc.verify.hardware.trial import Gpu, Machine
from nbtc.verify.recorded import cases
from nbtc.verify.replay import GENERATORS, Array, Groups, Index, Recorded, kind_of

SMALL = "golden_small.npz.xz"
# what reading damaged files raises: of NumPy, zipfile, zlib, json, and of arrays and entries that are not there
DAMAGE = (
    ValueError, TypeError, LookupError, AttributeError, ArithmeticError, EOFError, MemoryError, RecursionError,
    NotImplementedError, zlib.error, lzma.LZMAError, zipfile.BadZipFile,
)  # fmt: skip


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


def verify(
    golden: str | Path | None = None, only: str | None = None, hardware: bool = False, through: str = "functions"
) -> Iterator[Report]:
    """Replay recordings and yield one `Report` a file (a kind, for the compact set), as each is done.

    golden: a folder of recordings, or None for the set that ships with nbtc.  only: a pattern that a file's name must
    contain.  hardware: run the inputs of mma, mma.sp and wgmma on this machine's GPU, and compare with that instead of
    with the recorded results.  through: "functions" of nbtc, or "ptx": each form as a PTX program of a few lines (whole
    products and fragment maps, which are no single instructions, are left out).  Raises OptionError when there
    is nothing to compare, RecordingError for damaged files.
    """
    if through not in WAYS or (hardware and through != "functions"):
        raise OptionError(f'through={through!r}: pass one of {", ".join(WAYS)}, and "functions" with hardware')
    gpu = Gpu() if hardware else None
    found = False
    for name, groups, index in sets(golden):
        if only is None or only in name:
            report = _replay(name, groups, index, gpu, through)
            if report.outputs or report.failures or (gpu is None and through == "functions"):
                found = True
                yield report
    if not found:
        where = "the recordings that ship with nbtc" if golden is None else f"{str(golden)!r}"
        raise OptionError(
            f"no recordings named *{only or ''}*.npz in {where}: nbtc verify needs a folder of .npz files with an "
            "index.json beside them, as in nbtc verify --golden DIR, or no --golden at all"
        )


def sets(golden: str | Path | None) -> Iterator[tuple[str, Groups, Index]]:
    """Name, arrays and index of each file of a folder, or of each kind in the set that ships with nbtc.

    Raises RecordingError, with file, key and reason, for a file that is no set of arrays.
    """
    if golden is None:
        packed = (resources.files("nbtc") / "data" / SMALL).read_bytes()
        with np.load(io.BytesIO(lzma.decompress(packed))) as z:
            index = json.loads(str(z["index"]))
            kinds: dict[str, list[str]] = {}
            for key in z.files:
                if key != "index":
                    kinds.setdefault(kind_of(key, index), []).append(key)
            for kind, keys in kinds.items():
                yield kind, _group(kind, z, keys), index
        return
    folder = Path(golden)
    index = _index(folder / "index.json")
    for path in sorted(folder.glob("*.npz")):
        with reading(path.name):
            if not path.is_file():  # a pipe would be waited for
                raise RecordingError("it is not a regular file")
            with path.open("rb") as file, np.load(file) as z:  # np.load would leave a broken file open
                groups = _group(path.name, z, z.files)
        yield path.name, groups, index


def _index(path: Path) -> Index:
    """What `index.json` says of each form; nothing where there is no such file."""
    if not path.exists():
        return {}
    with reading(path.name):
        if not path.is_file():
            raise RecordingError("it is not a regular file")
        found = json.loads(path.read_bytes())
        if not isinstance(found, dict) or not all(isinstance(entry, dict) for entry in found.values()):
            raise RecordingError("it must be an object of objects: form -> {kind, op, ...}")
    return found


def _group(file: str, z: Mapping[str, Array], keys: Iterable[str]) -> Groups:
    """Arrays by what comes before the last `__` of their key."""
    groups = Watched()
    for key in keys:
        head, _, part = key.rpartition("__")
        with reading(file, key):
            groups.setdefault(head, {})[part] = z[key]
    return groups


class Watched(dict[str, dict[str, Array]]):
    """Groups that know which of them is being looked at."""

    current: str = ""

    def items(self) -> Any:
        """As of any dict, one after the other."""
        for key, value in super().items():
            self.current = key
            yield key, value


@contextmanager
def reading(file: str, key: str = "", groups: Watched | None = None) -> Iterator[None]:
    """Turn whatever damaged recordings raise into a RecordingError with file, key and reason."""
    try:
        yield
    except DAMAGE as error:
        where = ": ".join(part for part in (file, key or (groups.current if groups is not None else "")) if part)
        reason = str(error) if isinstance(error, NbtcError) else f"{type(error).__name__}: {error}"
        raise RecordingError(
            f"{where}: {reason[:300]}. The recording is damaged, or not of the kind that docs/recordings.md describes"
        ) from error


def _replay(name: str, groups: Groups, index: Index, gpu: Machine | None, through: str) -> Report:
    report = Report(name)
    kinds: dict[str, Watched] = {}
    for head, parts in groups.items():
        with reading(name, head):
            kinds.setdefault(kind_of(head + "__", index), Watched())[head] = parts
    forms = set()
    for kind, members in kinds.items():
        if kind not in GENERATORS:
            report.failures += [f"{head}: no kind of recording that nbtc knows" for head in members]
            continue
        with reading(name, groups=members):
            way = WAYS[through] if gpu is None else partial(cases, machine=gpu)
            replayed = way(kind, members, index)
            for case in replayed:
                forms.add(case.form)
                _compare(report, case)
    report.forms = len(forms)
    return report


def _functions(kind: str, groups: Groups, index: Index) -> Iterator[Recorded]:
    return GENERATORS[kind](groups, index)


WAYS = {"functions": _functions, "ptx": through_ptx.cases}


def _compare(report: Report, case: Recorded) -> None:
    if case.want.dtype.kind not in "biufV":
        raise RecordingError(f"{case.form}: recorded results are {case.want.dtype}, not numbers or words")
    report.outputs += case.want.size
    try:
        got = np.asarray(case.call())
    except NbtcError as error:
        if not isinstance(error, UnsupportedInstructionError):
            raise  # operands that no instruction takes
        report.mismatches += case.want.size
        report.failures.append(f"{case.form}: {error}")
        return
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
