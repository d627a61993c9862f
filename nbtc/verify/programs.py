"""Recorded programs: PTX text, inputs and what a GPU returned, run again and compared.

A folder holds `manifest.json`, `results.npz` and the PTX files that the manifest names; docs/recordings.md describes
an entry.  Every byte of every output must be the recorded one; the architecture is that of the GPU in the manifest.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import nbtc
from nbtc.errors import NbtcError, OptionError, RecordingError
from nbtc.verify import reading
from nbtc.verify.inputs import DTYPES, NUMBERS, Array, Entry, make

SECONDS = 120.0  # that a program may take
ARRAYS = ("in", "out", "inout", "scratch")
INTERLEAVES = {0: "none", 1: "16B", 2: "32B"}
FILLS = {0: "zero", 1: "nan"}
FIRST = 4096  # elements that are kept of an output stored as a digest
Arrays = dict[str, Array]


@dataclass
class ProgramReport:
    """What came of one program."""

    program: str
    family: str
    outputs: int = 0
    mismatches: int = 0
    failures: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """True when it ran and everything agreed."""
        return not self.failures

    def as_dict(self) -> dict[str, Any]:
        """The fields and `ok`, for JSON."""
        return {**asdict(self), "ok": self.ok}


def verify_programs(folder: str | Path, only: str | None = None) -> Iterator[ProgramReport]:
    """Run the programs of a folder and yield a report on each, as it is done.

    only: a text that a program's name must contain.  Raises OptionError when there is nothing to run, RecordingError
    for a damaged folder.
    """
    root = Path(folder)
    if not (root / "manifest.json").is_file():
        raise OptionError(f"{str(folder)!r} holds no manifest.json: pass a folder of recorded programs")
    with reading("manifest.json"):
        manifest = json.loads((root / "manifest.json").read_text(encoding="utf-8"))
        capability = manifest.get("recorded_on", {}).get("compute_capability")  # "9.0": whose bits the results are
        arch = f"sm_{capability.replace('.', '')}" if capability else None
        chosen = [p for p in manifest["programs"] if only is None or only in p["name"]]
    if not chosen:
        raise OptionError(f"no program named *{only}* in {str(folder)!r}")
    with reading("results.npz"), np.load(root / "results.npz") as recorded:
        for program in chosen:
            with reading("manifest.json", program["name"]):
                report = ProgramReport(program["name"], program["family"])
                _replay(root, {**program, "arch": arch}, recorded, report)
            yield report


def _replay(root: Path, program: Entry, recorded: Mapping[str, Array], report: ProgramReport) -> None:
    """Run a program and compare all it leaves."""
    entries = [e for e in (*program["args"], *program.get("buffers", ())) if e["kind"] in ARRAYS]
    arrays = {e["name"]: make(e) for e in entries}
    inputs = {e["name"]: arrays[e["name"]].copy() for e in entries if e["kind"] == "in"}
    try:
        found, printed = _run(root, program, arrays)
    except RecordingError:
        raise
    except NbtcError as error:
        report.failures.append(f"{type(error).__name__}: {error}")
        return
    changed = [name for name, x in inputs.items() if x.tobytes() != arrays[name].tobytes()]
    report.failures += [f"{name}: the program wrote its input" for name in changed]
    outputs = {e["name"]: arrays[e["name"]] for e in entries if e["kind"] in ("out", "inout")}
    for name, x in {**outputs, **found}.items():
        _compare(program, name, x, recorded[f"{program['name']}__{name}"], report)
    if sorted(program.get("printed", "").splitlines()) != sorted(printed.splitlines()):
        report.failures.append("the printed text differs")


def _run(root: Path, program: Entry, arrays: Arrays) -> tuple[Arrays, str]:
    """Launch a program on its arrays; the module variables that it leaves, and what it printed."""
    module = nbtc.load(root / program["ptx"], arch=program["arch"])
    variables = {}
    for entry in program.get("globals", ()):
        x = make(entry)
        place = module.globals[entry["symbol"]][: x.nbytes]
        if entry["kind"] != "out":
            place[:] = np.frombuffer(x.tobytes(), np.uint8)
        if entry["kind"] != "in":
            variables[entry["name"]] = (place, x)
    options = {
        "shared": program["shared"],
        "cluster": program.get("cluster"),
        "cooperative": bool(program.get("cooperative")),
        "memory": list(arrays.values()),
        "timeout": SECONDS,
    }
    args = [_argument(entry, arrays) for entry in program["args"]]
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        for _ in range(program.get("launches", 1)):
            module[program["entry"]].launch(program["grid"], program["block"], args, **options)
    return {name: place.view(x.dtype).reshape(x.shape) for name, (place, x) in variables.items()}, text.getvalue()


def _argument(entry: Entry, arrays: Arrays) -> Any:
    """What a kernel's parameter takes."""
    kind = entry["kind"]
    if kind in ARRAYS:
        return arrays[entry["name"]]
    if kind == "pointer":
        return _address(entry, arrays)
    if kind == "tensormap":
        return _tensor_map(entry, arrays)
    raw = bytearray.fromhex(entry["hex"])
    if kind == "scalar":
        dtype = np.dtype(
            DTYPES[entry["dtype"]] if entry["dtype"] in ("f16", "f32", "f64", *NUMBERS) else f"V{len(raw)}"
        )
        return np.frombuffer(raw, dtype)[0] if dtype.itemsize == len(raw) else bytes(raw)
    for part in entry["fields"]:
        pointer = part["kind"] == "pointer"
        value = _address(part, arrays).to_bytes(8, "little") if pointer else bytes(_tensor_map(part, arrays))
        raw[part["offset"] : part["offset"] + len(value)] = value
    return bytes(raw)


def _address(entry: Entry, arrays: Arrays) -> int:
    return int(arrays[entry["array"]].ctypes.data) + int(entry.get("byte_offset", 0))


def _tensor_map(entry: Entry, arrays: Arrays) -> nbtc.TensorMap:
    """A tensor map over an array's elements, seen with the recorded extents and strides (innermost first)."""
    dtype = np.dtype(DTYPES[entry["dtype"].removesuffix("_ftz")])
    memory = arrays[entry["array"]].reshape(-1).view(np.uint8)[entry.get("byte_offset", 0) :]
    strides = (*reversed(entry["strides"]), dtype.itemsize)
    return nbtc.TensorMap(
        np.ndarray(tuple(reversed(entry["dims"])), dtype, memory, strides=strides),
        tuple(entry["box"]),
        element_strides=tuple(entry["element_strides"]),
        swizzle=entry["swizzle"],
        interleave=INTERLEAVES[entry["interleave"]],
        oob=FILLS[entry["oob_fill"]],
        dtype=entry["dtype"],
    )


def _compare(program: Entry, name: str, x: Array, want: Array, report: ProgramReport) -> None:
    """Count an output's elements that are not as recorded."""
    report.outputs += x.size
    digest = program["outputs"][name].get("sha256")
    first = x.reshape(-1)[: want.size]
    want = want.reshape(-1)
    wrong = first.view(f"<u{x.itemsize}") != want.view(f"<u{x.itemsize}")
    if digest and hashlib.sha256(x.tobytes()).hexdigest() != digest and not wrong.any():
        report.mismatches += 1
        report.failures.append(f"{name}: its digest differs, its first {FIRST:,} elements do not")
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        report.mismatches += int(wrong.sum())
        report.failures.append(
            f"{name}: {int(wrong.sum())} of {wrong.size} differ, first at {at}: {first[at]!r}, recorded {want[at]!r}"
        )
