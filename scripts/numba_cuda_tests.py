"""Runs numba-cuda's own tests on nbtc and writes the tables of docs/numba-cuda.md.

    python scripts/numba_cuda_tests.py [test_atomics test_math ...] [--on emulated] [--arch sm_90] [--seconds 600]
                                       [--keep FILE]

Each of its modules runs in a process of its own, inside of `nbtc.cuda.emulated` or, with --on driver, above nbtc's CUDA
driver (`nbtc.cuda.install`).  --keep: a JSON file that gathers the outcomes of several runs; the table shows what it
holds.  Needs `nbtc[cuda]`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PACKAGE = "numba.cuda.tests.cudapy"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "numba-cuda.md"
MARKS = {  # around each table of the page
    "emulated": ("<!-- tests -->", "<!-- end of tests -->"),
    "driver": ("<!-- tests on the driver -->", "<!-- end of tests on the driver -->"),
}
SHOWN = 90  # characters of a reason


class Recorder(unittest.TextTestResult):
    """Outcomes by name, as they come in: a process that dies has told of those before."""

    def startTest(self, test):
        super().startTest(test)
        self.tell(test, "started")

    def addSuccess(self, test):
        self.tell(test, "passed")

    def addSkip(self, test, reason):
        self.tell(test, "skipped", reason)

    def addFailure(self, test, error):
        skipped = error[0].__name__ == "Skipped"  # by pytest's means
        self.tell(test, "skipped" if skipped else "failed", f"{error[0].__name__}: {error[1]}")

    def addExpectedFailure(self, test, error):
        self.tell(test, "passed")

    addError = addFailure  # noqa: N815

    def addSubTest(self, test, subtest, error):
        if error is not None:
            self.addFailure(test, error)

    def tell(self, test, outcome, reason=""):
        print("@" + json.dumps([test.id(), outcome, reason]), file=sys.__stdout__, flush=True)


# Python runs one of these first of all, in processes that tests start too; the context lasts until the process ends.
STARTUP = """
import sys
if not any("pathfinder" in word for word in sys.orig_argv):  # CUDA's search for libraries, which has to be quick
    import nbtc
"""
STARTUPS = {
    "emulated": """
    emulation = nbtc.cuda.emulated({arch!r})
    emulation.__enter__()
    sys.modules["nbtc_emulation"] = emulation
""",
    "driver": """
    nbtc.cuda.install({arch!r})
""",
}


def one(module):
    """Run one module in this process, which its start has made an emulated one."""
    suite = unittest.defaultTestLoader.loadTestsFromName(f"{PACKAGE}.{module}")
    for test in _every(suite):
        print("@" + json.dumps([test.id(), "late", ""]), flush=True)
    unittest.TextTestRunner(resultclass=Recorder, stream=sys.stderr, warnings="ignore").run(suite)


def _every(suite):
    for part in suite:
        yield from _every(part) if isinstance(part, unittest.TestSuite) else [part]


def alone(module, on, arch, seconds):
    """Outcomes of a module, whose failed tests have run again in processes of their own above the driver.

    A kernel's fault is the device's until that is reset, so it fails all tests of the process that come after.
    """
    found = outcomes(module, on, arch, seconds)
    again = [n for n, (o, _) in found.items() if o == "failed" and on == "driver" and n.startswith(PACKAGE)]
    for name in again:
        found |= outcomes(name.removeprefix(f"{PACKAGE}."), on, arch, seconds)
    return found


def outcomes(module, on, arch, seconds):
    """{test: (outcome, reason)} of a module, or of one of its tests, run in a process of its own."""
    command = [sys.executable, __file__, "--one", module]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "sitecustomize.py").write_text(STARTUP + STARTUPS[on].format(arch=arch), encoding="utf-8")
        path = os.pathsep.join([folder, str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
        inside = {**os.environ, "PYTHONPATH": path}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, env=inside)
            said, died = done.stdout, f"the process ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            said = late.stdout.decode() if isinstance(late.stdout, bytes) else late.stdout or ""
            died = f"not reached in {seconds} s"
    found = {}
    for line in said.splitlines():
        if line.startswith("@"):
            name, outcome, reason = json.loads(line[1:])
            if found.get(name, ("late",))[0] in ("late", "started", "passed"):
                found[name] = (outcome, reason)
    left = "late" if died.startswith("not") else "skipped" if died.endswith(" 0") else "failed"
    ended = {n: (o, r) if o not in ("late", "started") else (left, died) for n, (o, r) in found.items()}
    return ended or {module: ("skipped", "no test of unittest's kind") if died.endswith(" 0") else ("failed", died)}


def table(results):
    """The page's part, from {module: outcomes}."""
    lines = ["| tests of | pass | skip | fail | not reached | what fails or is skipped |", "|---|---|---|---|---|---|"]
    sums = dict.fromkeys(("passed", "skipped", "failed", "late"), 0)
    for module, found in results.items():
        counts = {k: sum(o == k for o, _ in found.values()) for k in sums}
        sums = {k: n + counts[k] for k, n in sums.items()}
        reasons = sorted({" ".join(r.split())[:SHOWN].replace("|", "/") for o, r in found.values() if o != "passed"})
        kept = "; ".join(reasons[:2]) + (f"; {len(reasons) - 2} more" if len(reasons) > 2 else "")
        shown = " | ".join(str(counts[k]) for k in sums)
        lines.append(f"| {module.removeprefix('test_')} | {shown} | {kept} |")
    total = " | ".join(f"**{n}**" for n in sums.values())
    return "\n".join([*lines, f"| **all** | {total} | |"])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--on", choices=MARKS, default="emulated")
    parser.add_argument("--arch", default="sm_90")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--keep")
    parser.add_argument("--one")
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.one)
        return
    folder = Path(importlib.import_module(PACKAGE).__file__).parent
    modules = chosen.modules or sorted(p.stem for p in folder.glob("test_*.py"))
    keep = Path(chosen.keep) if chosen.keep else None
    results = json.loads(keep.read_text(encoding="utf-8")) if keep and keep.exists() else {}
    for module in modules:
        results[module] = alone(module, chosen.on, chosen.arch, chosen.seconds)
        if keep:
            keep.write_text(json.dumps(results), encoding="utf-8")
        bad = {n: r for n, (o, r) in results[module].items() if o == "failed"}
        print(module, len(results[module]), "tests,", len(bad), "fail", flush=True)
        for name, reason in bad.items():
            print("   ", name.rpartition(".")[2], " ".join(reason.split())[:200], flush=True)
    if keep or not chosen.modules:
        version = importlib.metadata.version("numba-cuda")
        begin, end = MARKS[chosen.on]
        text = f"{begin}\nnumba-cuda {version} on {chosen.arch}:\n\n{table(dict(sorted(results.items())))}\n{end}"
        page = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page[: page.index(begin)] + text + page[page.index(end) + len(end) :], encoding="utf-8")


if __name__ == "__main__":
    main()
