"""Runs the tests of libraries of Triton kernels on the emulated device, and writes docs/libraries.md.

    python scripts/libraries.py [liger-kernel ...] [--sources DIR] [--arch ARCH] [--seconds 120] [--keep FILE]

A library has to be installed, with torch, Triton and pytest.  Its tests come from its source distribution, which pip
unpacks into --sources; of libraries whose distributions have none, scripts/*_calls.py call kernels and compare with
what torch computes.  Of a test's parametrisations the one runs whose numbers have the smallest product, and of a
file the --each tests for which that is smallest; with --drawn N, of each test N parametrisations drawn at random whose
product is at most a million, in rows of the page of their own.  Each library runs in a process of its own, once plain
and once checked; where that dies, another goes on after the test.
--keep: a JSON file that gathers the outcomes of several runs.  The page's rows of libraries that did not run stay.
Triton's and Gluon's tutorials at small sizes, which are in no distribution, have to lie in --sources as
triton_tutorials-VERSION/test_*.py and gluon_tutorials-VERSION/test_*.py.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import itertools
import json
import math
import os
import random
import re
import select
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "libraries.md"
BEGIN, END = "<!-- tests -->", "<!-- end of tests -->"
SHOWN = 150  # characters of a reason
LARGEST = 1e6  # of a drawn parametrisation: the product of its numbers
SILENT = 600  # seconds after which a process is ended
MODES = ("plain", "checked")
COLUMNS = 9  # of outcomes
TUTORIALS_ON = ("sm_80", "sm_90", "sm_100")  # each test skips the GPUs that it is not for
TOLD = os.fdopen(os.dup(1), "w")


class Library(NamedTuple):
    """Which tests of a distribution run: folders or files in its sources, and what of them does not (`pytest -k`)."""

    tests: tuple[str, ...] = ()
    without: str = ""
    calls: str = ""  # tests of library_calls.py with this word in their names
    arches: tuple[str, ...] = ()  # where they have to be others
    of: str = ""  # the distribution whose version is shown, where the library is none


LIBRARIES = {
    "liger-kernel": Library(
        tuple(f"test/{x}" for x in ("transformers", "ops", "chunked_loss", "megatron", "triton", "backends")),
        # whole models of transformers, several GPUs, cuda.h; arrays of 4 GiB and more
        "monkey_patch or trainer or tensor_parallel or distributed or _tp or apply_liger or neighborhood"
        " or large_row_offset or does_not_wrap_int32",
    ),
    "fla-core": Library(calls="test_fla_"),
    "flag-gems": Library(calls="flag_gems"),
    "torchao": Library(calls="torchao"),
    "gemlite": Library(calls="gemlite"),
    "bitsandbytes": Library(calls="bitsandbytes"),
    "unsloth": Library(calls="unsloth"),
    "cut-cross-entropy": Library(calls="cut_cross_entropy"),
    "sageattention": Library(calls="sageattention"),
    "conch-triton-kernels": Library(calls="conch"),
    "tokenspeed-triton-kernels": Library(calls="triton_kernels"),
    "late-interaction-kernels": Library(calls="late_interaction"),
    "adasplash": Library(calls="adasplash"),
    "xformers": Library(calls="xformers"),
    "deepspeed": Library(calls="deepspeed"),
    "flash-attn": Library(calls="flash_attn"),
    "flash-kmeans": Library(calls="flash_kmeans"),
    "helion": Library(calls="helion"),
    "mamba-ssm": Library(calls="mamba"),
    "mlstm-kernels": Library(calls="mlstm"),
    "moe-ops": Library(calls="moe_ops"),
    "native-sparse-attention-pytorch": Library(calls="native_sparse"),
    "sglang": Library(calls="sglang"),
    "torchnorm": Library(calls="torchnorm"),
    "trinix": Library(calls="trinix"),
    "triton-sigmoid": Library(calls="triton_sigmoid"),
    "vllm": Library(calls="vllm"),
    "gluon-tutorials": Library((".",), arches=TUTORIALS_ON, of="triton"),
    "triton-tutorials": Library((".",), arches=TUTORIALS_ON, of="triton"),
    "disentangled-flash": Library(("tests",), "benchmark"),  # which are not in the distribution
    "flash-colsum": Library(("tests/test_core.py",)),
    "flash-sinkhorn": Library(("torch-ext/flash_sinkhorn/testing",)),
    "flash-swiglu-mlp": Library(("tests",)),
    "freesolo-chalk": Library(("test/ops",)),
    "grouped-mm-bf16": Library(("tests",)),
    "ibu-boost": Library(("tests/test_triton_consistency.py",)),
    "jvp-flash-attention": Library(("tests",)),
    "lanczos-triton": Library(("tests",), "test_input_validation"),  # that tensors of the CPU are refused
    "saga-activation": Library(("tests",)),
    "siglip-kernel": Library(("tests",)),
    "torch-fps": Library(("tests",)),
    "triton-csprng": Library(("tests",)),
}


def size(name):
    """The product of a parametrisation's numbers: small ones are small problems."""
    inside = name.partition("[")[2]
    return math.prod(max(1.0, float(x)) for x in re.findall(r"(?<![\w.])\d+(?:\.\d+)?(?![\w.])", inside))


def smallest(names, each):
    """The smallest parametrisation of each test, and of each file so many tests with the smallest."""
    tests, files = {}, {}
    for name in sorted(names, key=size):
        tests.setdefault(name.partition("[")[0], name)
    for name in sorted(tests.values(), key=size):
        files.setdefault(name.partition("::")[0], []).append(name)
    return {name for own in files.values() for name in own[:each]}


def drawn(names, each):
    """So many parametrisations of each test, drawn at random from those that are not too large."""
    tests, draw = {}, random.Random(0)
    for name in names:
        if size(name) <= LARGEST:
            tests.setdefault(name.partition("[")[0], []).append(name)
    return {name for own in tests.values() for name in draw.sample(own, min(each, len(own)))}


class Recorder:
    """pytest's plugin: chooses tests, limits their time, tells of outcomes as they come in."""

    def __init__(self, skip, seconds, each, drawn=0):
        self.skip, self.seconds, self.each, self.drawn = skip, seconds, each, drawn

    @pytest.hookimpl(trylast=True)  # of what `-k` leaves
    def pytest_collection_modifyitems(self, items):
        """The smallest of each test, of these the smallest of each file, without those that have run."""
        names = [i.nodeid for i in items]
        kept = drawn(names, self.drawn) if self.drawn else smallest(names, self.each) if self.each else set(names)
        for name in kept:
            tell(name, "chosen")
        items[:] = [i for i in items if i.nodeid in kept and i.nodeid not in self.skip]

    def pytest_runtest_setup(self, item):
        """Its time begins."""
        tell(item.nodeid, "started")
        signal.signal(signal.SIGPROF, self.late)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)  # of the processor: others may load the machine

    def late(self, *_):
        """Its time is over."""
        raise TimeoutError(f"not done in {self.seconds} s of the processor")

    def pytest_runtest_logreport(self, report):
        """What came of it."""
        if report.when == "teardown":
            signal.setitimer(signal.ITIMER_PROF, 0)
        if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
            reason = ""
            if report.skipped and not hasattr(report, "wasxfail"):
                reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
            elif report.failed:
                crash = getattr(report.longrepr, "reprcrash", None)
                reason = crash.message if crash else str(report.longrepr)[-300:]
            tell(report.nodeid, report.outcome, reason, report.duration)

    def pytest_collectreport(self, report):
        """Files that can't be imported."""
        if report.failed:
            tell(report.nodeid, "failed", str(report.longrepr)[-300:])


def tell(name, outcome, reason="", seconds=0.0):
    """A line for `watched`; pytest captures what is written to the standard output while a test runs."""
    TOLD.write("\n@" + json.dumps([name, outcome, reason, round(seconds, 1)]) + "\n")
    TOLD.flush()


def one(words, arch, seconds, each, many, done):
    """Run tests in this process, which becomes one with a GPU."""
    import nbtc

    with nbtc.triton.emulated(arch, autotune="first", torch_cuda=True):
        skip = set(json.loads(Path(done).read_text(encoding="utf-8")))
        quiet = ["-q", "-p", "no:cacheprovider", "--no-header", "--show-capture=no"]  # nothing told twice
        pytest.main([*quiet, *words], [Recorder(skip, seconds, each, many)])


def outcomes(words, folder, setting, checked, known):
    """{test: (outcome, reason, seconds)} of a library, added to those that are known already."""
    environment = {
        **os.environ,
        "NBTC_QUIET": "1",
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    if checked:
        environment["NBTC_CHECKED"] = "1"
    chosen = set()
    while True:
        with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as done:
            json.dump(list(known), done)
            done.flush()
            options = [*setting, "--done", done.name]
            command = [sys.executable, __file__, *options, "--one", *words]
            with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as said:
                running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, cwd=folder, env=environment)
                died = watched(running, known, chosen)
                said.seek(0)
                why = said.read()
        if not chosen:
            sys.exit(f"no test was found: {died}\n{why[-2000:]}")
        started = [name for name, (outcome, *_) in known.items() if outcome == "started"]
        if not started:
            for name in set(known) - chosen:  # of an earlier run with other choices
                del known[name]
            return
        known[started[0]] = ("failed", died, 0.0)


def watched(running, known, chosen):
    """Read what a process tells until it ends, or tells nothing for too long; how it ended."""
    output, last, buffer = running.stdout.fileno(), time.monotonic(), b""
    while True:
        if select.select([output], [], [], 1)[0]:
            piece = os.read(output, 1 << 16)
            if not piece:
                return f"the process ended with {running.wait()}"
            *lines, buffer = (buffer + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"@"):
                    name, *rest = json.loads(line[1:])
                    chosen.add(name)
                    if rest[0] != "chosen":
                        known[name] = tuple(rest)
                    if rest[0] not in ("chosen", "started"):
                        print(f"{rest[2]:7.1f} s {rest[0]} {name} {' '.join(rest[1].split())[:200]}", flush=True)
                    last = time.monotonic()
        if time.monotonic() - last > SILENT:
            running.kill()
            return f"silent for {SILENT} s"


def unpacked(name, sources):
    """The folder of a distribution's sources."""
    found = sorted(sources.glob(f"{name.replace('-', '_')}-*/"))
    if not found and LIBRARIES[name].of:
        sys.exit(f"{sources} has no {name.replace('-', '_')}-VERSION: see --help")
    if not found:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", name, "-d", str(sources)]
        subprocess.run([*command, f"{name}=={importlib.metadata.version(name)}"], check=True)
        for archive in sources.glob(f"{name.replace('-', '_')}-*.tar.gz"):
            with tarfile.open(archive) as packed:
                packed.extractall(sources, filter="data")
        found = sorted(sources.glob(f"{name.replace('-', '_')}-*/"))
    return found[0]


def words_of(name, sources):
    """(pytest's arguments, the folder it runs in) for a library."""
    library = LIBRARIES[name]
    if library.calls:
        here = ROOT / "scripts"  # not where they run: libraries write files there
        own = ["-c", os.devnull, "--rootdir", str(here)]  # without this project's settings
        files = [str(x) for x in sorted(here.glob("*_calls.py")) if x.stem != "first_calls"]
        return [*own, *files, "-k", library.calls], sources
    folder = unpacked(name, sources)
    return [*library.tests, *(["-k", f"not ({library.without})"] if library.without else [])], folder


def cells(line):
    """A row's cells."""
    return [x.strip() for x in line.strip().strip("|").split("|")]


def kept(page, names):
    """(rows of outcomes, rows of reasons) of the page that are of others than these (library, arch)."""
    rows = [x for x in page.splitlines() if x.startswith("| ") and cells(x)[0] != "library"]
    tests = [x for x in rows if len(cells(x)) == COLUMNS and (cells(x)[0], cells(x)[2]) not in names]
    reasons = [x for x in rows if len(cells(x)) != COLUMNS]
    return tests, [x for x in reasons if (cells(x)[0], cells(x)[1].rpartition(" ")[2]) not in names]


def place(line):
    """Where a row of outcomes stands: by library, GPU and run."""
    name, _, arch, mode, *_ = cells(line)
    return name, int(re.sub(r"\D", "", arch)), MODES.index(mode)


def table(results, page=""):
    """The page's part, from {"library" or "library arch": {mode: outcomes}} and the part as it is."""
    head = [
        "| library | version | on | run | passed | skipped | failed | refused | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines, bad = kept(page, {(key.partition(" ")[0], modes["arch"]) for key, modes in results.items()})
    for key, modes in results.items():
        name = key.partition(" ")[0]
        for mode in MODES:
            found = modes.get(mode)
            if found is None:
                continue
            kinds = [kind(*x[:2]) for x in found.values()]
            counts = " | ".join(str(kinds.count(k)) for k in ("passed", "skipped", "failed", "refused"))
            seconds = sum(x[2] for x in found.values())
            lines.append(f"| {name} | {modes['version']} | {modes['arch']} | {mode} | {counts} | {seconds:,.0f} |")
    lines = [
        *head,
        *sorted(lines, key=lambda x: (cells(x)[0], len(cells(x)[2]), cells(x)[2], MODES.index(cells(x)[3]))),
    ]
    for key, modes in results.items():
        name = key.partition(" ")[0]
        for mode in MODES:
            for test, (outcome, reason, _) in modes.get(mode, {}).items():
                if kind(outcome, reason) in ("failed", "refused"):
                    said = re.sub(r"/[^\s:()]*/", "", " ".join(reason.split()))  # without folders of this machine
                    row = f"| {name} | {mode} on {modes['arch']} | {test.rpartition('/')[2].partition('[')[0]} | "
                    if not any(x.startswith(row) for x in bad):  # one of a test's parametrisations
                        bad.append(f"{row}{said} |")
    if bad:
        lines += ["", "| library | run | test | why it did not pass |", "|---|---|---|---|", *bad]
    return "\n".join(lines)


def kind(outcome, reason):
    """What the table counts an outcome as: nbtc says what it does not do."""
    return (
        "refused" if outcome == "failed" and re.search(r"UnsupportedError|has no row|not emulated", reason) else outcome
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("libraries", nargs="*")
    parser.add_argument("--sources", type=Path, default=ROOT / "build" / "libraries")
    parser.add_argument("--arch", help="sm_90, of the tutorials all of theirs")
    parser.add_argument("--seconds", type=int, default=120)
    parser.add_argument("--each", type=int, default=2)
    parser.add_argument("--drawn", type=int, default=0)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--resume", action="store_true", help="run only what --keep does not hold yet")
    parser.add_argument("--one", nargs=argparse.REMAINDER)
    parser.add_argument("--done")
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.one, chosen.arch, chosen.seconds, chosen.each, chosen.drawn, chosen.done)
        return
    chosen.sources.mkdir(parents=True, exist_ok=True)
    keep = chosen.keep
    results = json.loads(keep.read_text(encoding="utf-8")) if keep and keep.exists() else {}
    for name in chosen.libraries or LIBRARIES:
        words, folder = words_of(name, chosen.sources)
        arches = (chosen.arch,) if chosen.arch else LIBRARIES[name].arches or ("sm_90",)
        for arch, mode in itertools.product(arches, MODES if chosen.mode is None else (chosen.mode,)):
            row = name + ("-drawn" if chosen.drawn else "")
            modes = results.setdefault(f"{row} {arch}" if LIBRARIES[name].arches else row, {})
            modes["version"], modes["arch"] = importlib.metadata.version(LIBRARIES[name].of or name), arch
            known = modes[mode] = modes.get(mode, {}) if chosen.resume else {}
            each = 0 if LIBRARIES[name].calls or LIBRARIES[name].of else chosen.each  # all of one's own
            setting = ["--arch", arch, "--seconds", str(chosen.seconds), "--each", str(each)]
            setting += ["--drawn", str(chosen.drawn)]
            outcomes(words, folder, setting, mode == "checked", known)
            if keep:
                keep.write_text(json.dumps(results), encoding="utf-8")
            report(name, mode, known)
    if keep or not chosen.libraries:
        page = PAGE.read_text(encoding="utf-8")
        before, own, after = (
            page[: page.index(BEGIN)],
            page[page.index(BEGIN) : page.index(END)],
            page[page.index(END) :],
        )
        text = f"{BEGIN}\n{table(dict(sorted(results.items())), own)}\n"
        PAGE.write_text(before + text + after, encoding="utf-8")


def report(name, mode, known):
    """What a run found, on the terminal."""
    bad = {n: r for n, (o, r, _) in known.items() if o not in ("passed", "skipped")}
    passed = sum(o == "passed" for o, *_ in known.values())
    print(f"{name}, {mode}: {len(known)} tests, {passed} pass, {len(bad)} fail", flush=True)
    for test, reason in bad.items():
        print("   ", test, " ".join(reason.split())[:300], flush=True)


if __name__ == "__main__":
    main()
