"""Builds NVIDIA's CUDA samples, runs them under `nbtc run`, and writes docs/samples.md.

    python scripts/samples.py CHECKOUT [vectorAdd scan ...] [--arch H200] [--seconds 300] [--keep FILE]

CHECKOUT: a folder that holds `Common` and `Samples`, as github.com/NVIDIA/cuda-samples does.  A sample is what nvcc
makes of its folder: a program, linked with the driver, NVRTC and nvJitLink where it calls them, and the PTX and fat
binaries that it loads; those that need more, such as another library, are shown as not built.  A sample has passed when
it says so itself, by its exit code.  --keep: a JSON file that gathers several runs.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from nbtc.libcuda.command import environment

PAGE = Path(__file__).resolve().parents[1] / "docs" / "samples.md"
BEGIN, END = "<!-- samples -->", "<!-- end of samples -->"
WAIVED = 2  # the samples' exit code where a device lacks what they show
SHOWN = 100  # characters of a reason


def build(folder: Path, common: Path, out: Path) -> str:
    """Compile a sample; why that failed, or nothing."""
    hosts = "".join(p.read_text("utf-8", "replace") for p in [*sources_in(folder, "cpp"), *sources_in(folder, "cu")])
    loaded = {
        p: form for p in folder.glob("*_kernel*.cu") for form in ("fatbin", "ptx") if f'{p.stem}64.{form}"' in hosts
    }
    read = {p for p in folder.glob("*_kernel*.cu") if f'"{p.name}"' in hosts and folder.name.endswith("_nvrtc")}
    sources = [str(p) for end in ("cu", "cpp") for p in sorted({*sources_in(folder, end)} - {*loaded, *read})]
    flags = ["-arch=compute_80", "-std=c++17", f"-I{common}", f"-I{folder}", f"-I{folder / 'inc'}"]
    if read:
        headers(folder)
    for kernel, form in loaded.items():
        nvcc([*flags, f"-{form}", "-o", str(kernel.with_name(f"{kernel.stem}64.{form}")), str(kernel)])
    libraries = ["-Xlinker", "--as-needed", "-lcuda", "-lnvrtc", "-lnvJitLink"]
    command = [*flags, "-cudart", "shared", "-o", str(out), *sources, *libraries]
    # functions and variables in other files, launches by kernels: objects are linked on the device too
    several = sum(s.endswith(".cu") for s in sources) > 1
    said = [] if several else nvcc(command)
    if several or said:
        again = nvcc(["-rdc=true", *command])
        said = again if several or not again else said
    lines = [x.rpartition(f"{folder}/")[2] for x in said if "error" in x or "undefined" in x]
    return shortened(lines[:1] or ["nvcc failed"]) if said else ""


def sources_in(folder: Path, end: str) -> list[Path]:
    """A sample's sources: they lie in its folder, or in `src` beside `inc`."""
    return [*folder.glob(f"*.{end}"), *folder.glob(f"src/*.{end}")]


def nvcc(flags: list[str]) -> list[str]:
    """What nvcc says, where it fails."""
    done = subprocess.run(["nvcc", *flags], capture_output=True, text=True, env=environment(os.environ))
    return (done.stdout + done.stderr).splitlines() or ["nvcc failed"] if done.returncode else []


def headers(folder: Path) -> None:
    """What a sample's kernels include when NVRTC compiles them: the samples' CMake files copy that beside them."""
    include = Path(str(shutil.which("nvcc"))).resolve().parents[1] / "include"
    for name in ("cooperative_groups.h", "cooperative_groups", "nv", "cuda"):
        found = [p for p in (include / "cccl" / name, include / name) if p.exists()]
        for place in found[:1]:
            (folder / name).symlink_to(place)


def verdict(code: int | None, err: str, seconds: int) -> tuple[str, str]:
    """What became of a run, from its exit code (None: it was ended) and what it said."""
    ours = [x for x in err.splitlines() if x.startswith("nbtc:")]
    if code is None:
        return "late", f"ran past {seconds} s"
    if code == 0:
        return "passed", ""
    if code == WAIVED:
        return "waived", shortened(ours)
    return "refused" if ours else "failed", shortened(ours or err.splitlines()[-1:] or [f"exit code {code}"])


def shortened(lines: list[str]) -> str:
    """The first line, as a cell of a table takes it."""
    text = " ".join(lines[0].split()).removeprefix("nbtc: ") if lines else ""
    return text.replace("|", "/").replace("<", "&lt;")[:SHOWN]


def sample(checkout: Path, folder: Path, arch: str, seconds: int) -> dict[str, object]:
    """Build a sample in a copy of its folder, where its data lies, and run it there."""
    with tempfile.TemporaryDirectory() as scratch:
        copy = Path(scratch) / folder.relative_to(checkout)
        shutil.copytree(folder, copy)
        (Path(scratch) / "Common").symlink_to(checkout / "Common")
        out = copy / folder.name
        why = build(copy, checkout / "Common", out)
        if why:
            return {"outcome": "not built", "seconds": 0.0, "why": why}
        command = [sys.executable, "-m", "nbtc", "run", "--arch", arch, str(out)]
        start = time.perf_counter()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, cwd=copy, errors="replace")
            outcome, why = verdict(done.returncode, done.stderr, seconds)
        except subprocess.TimeoutExpired:
            outcome, why = verdict(None, "", seconds)
        return {"outcome": outcome, "seconds": round(time.perf_counter() - start, 1), "why": why}


def table(results: dict[str, dict[str, object]]) -> str:
    """The page's part."""
    outcomes = [str(r["outcome"]) for r in results.values()]
    counts = ", ".join(f"{outcomes.count(o)} {o}" for o in dict.fromkeys(sorted(outcomes)))
    rows = [f"| {name} | {r['outcome']} | {r['seconds']} | {r['why']} |" for name, r in sorted(results.items())]
    return "\n".join([f"{len(results)} samples: {counts}.", "", "| sample | | s | why |", "|---|---|---|---|", *rows])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkout", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--arch", default="H200")
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    checkout = chosen.checkout.resolve()
    folders = {p.name: p for p in sorted(checkout.glob("Samples/*/*")) if [*sources_in(p, "cu"), *sources_in(p, "cpp")]}
    unknown = sorted(set(chosen.names) - set(folders))
    if unknown or not folders:
        parser.error(f"{checkout} has no sample {', '.join(unknown)}" if unknown else f"{checkout} has no samples")
    results = json.loads(chosen.keep.read_text("utf-8")) if chosen.keep and chosen.keep.exists() else {}
    for name in chosen.names or folders:
        results[name] = sample(checkout, folders[name], chosen.arch, chosen.seconds)
        print(name, *results[name].values(), flush=True)
        if chosen.keep:
            chosen.keep.write_text(json.dumps(results), "utf-8")
    page = PAGE.read_text("utf-8")
    text = f"{BEGIN}\n{table(results)}\n{END}"
    PAGE.write_text(page[: page.index(BEGIN)] + text + page[page.index(END) + len(END) :], "utf-8")


if __name__ == "__main__":
    main()
