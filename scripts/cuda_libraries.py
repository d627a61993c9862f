"""Builds kernels of CUDA C++ libraries, runs them under `nbtc run`, plain and checked, and writes docs/libraries.md.

    python scripts/cuda_libraries.py [LIBRARY ...] [--sources DIR] [--llmc DIR] [--keep FILE]

scripts/cuda_programs holds a program for each library, which calls its kernels and compares with its reference by its
own bounds; the exit code says what came of it.  The kernels are those of the libraries' source distributions, unpacked
in --sources (`pip download --no-deps --no-binary :all: flash-attn llama-cpp-python`).  --llmc: a folder of programs as
those of llm.c's dev/cuda are, which take the number of a kernel.  --keep: a JSON file that gathers several runs.  The
page's rows of what did not run stay.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import resource
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).with_name("cuda_programs")
PAGE = ROOT / "docs" / "libraries.md"
BEGIN, END = "<!-- programs -->", "<!-- end of programs -->"
NVCC = ["nvcc", "-cudart", "shared", "-std=c++17", "-lineinfo", "-w"]
NONE = "Invalid kernel number"  # what llm.c's programs say after their last kernel
MODES = ("plain", "checked")
SHOWN = 150  # characters of a reason


class Library(NamedTuple):
    """How a program is built from a distribution's sources, and the words that it is run with."""

    folder: str  # of the unpacked distribution, as a pattern; "": headers that come with nvcc
    includes: tuple[str, ...]  # "+" in front: a folder of PROGRAMS
    flags: tuple[str, ...]
    sources: tuple[str, ...]  # of the distribution, or "+" in front
    runs: tuple[str, ...]
    arch: str = "compute_80"


FLASH = ("0 100 150 2 1", "1 128 128 2 2")  # causal, queries, keys, heads, heads of keys
TYPES = (
    "q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs iq3_s iq3_xxs iq2_s mxfp4 nvfp4 q1_0 q2_0".split()  # noqa: SIM905 (one line instead of nineteen)
)
OFF = ("DROPOUT", "ALIBI", "SOFTCAP", "LOCAL", "UNEVEN_K")  # variants that the runs don't reach
PRIMITIVES = (
    *("warp " + x for x in ("reduce", "scan", "merge_sort", "exchange")),
    *("block " + x for x in ("reduce_warps", "reduce_raking", "scan_warps", "scan_raking", "radix_sort", "merge_sort")),
    *("block " + x for x in ("exchange", "discontinuity", "adjacent_difference", "histogram", "shuffle")),
    *("device " + x for x in ("reduce", "scan", "radix_sort", "merge_sort", "select", "partition", "unique")),
    *("device " + x for x in ("run_length", "histogram", "segmented_reduce", "reduce_by_key", "adjacent_difference")),
    *("device " + x for x in ("segmented_sort", "segmented_radix_sort", "top_k", "merge", "transform")),
)
ALGORITHMS = (
    *("sort", "sort_with", "sort_by_key", "reduce", "transform_reduce", "extrema", "scan", "scan_by_key"),
    *("reduce_by_key", "copy_if", "remove_if", "stable_partition", "unique", "merge", "set_operations"),
    *("lower_bound", "gather_scatter", "adjacent_difference"),
)
GROUPS = (*(f"tile_{x}" for x in (4, 16, 32, 128)), "labels", "invoke_one", "grid", "cluster", "memcpy_async")
OPERATIONS = (
    *("softmax", "norm", "rms_norm", "l2_norm", "rope", "argsort", "cumsum", "im2col", "pool_2d"),
    *("sum_rows", "mean", "silu", "gelu_erf"),
)
OF_OPERATIONS = ("softmax", "norm", "rope", "argsort", "cumsum", "im2col", "pool2d", "sumrows", "mean", "unary")
LIBRARIES = {
    "cub": Library("", (), ("--extended-lambda",), (), PRIMITIVES),
    "cooperative-groups": Library(
        "",
        (),
        ("--expt-relaxed-constexpr", "--extended-lambda"),
        (),
        tuple(f"group {x}" for x in GROUPS),
        "compute_90",
    ),
    "thrust": Library("", (), ("--extended-lambda",), (), tuple(f"device {x}" for x in ALGORITHMS)),
    "flash-attn": Library(
        "flash_attn-*/csrc",
        ("+flash_attention", "flash_attn/src", "cutlass/include"),
        (
            "--expt-relaxed-constexpr",
            "--expt-extended-lambda",
            "-DELEMENT=half_t",
            *(f"-DFLASHATTENTION_DISABLE_{x}" for x in OFF),
        ),
        (),
        tuple(f"{way} {sizes}" for way in ("forward", "backward") for sizes in FLASH),
    ),
    "ggml": Library(
        "llama_cpp_python-*/vendor/llama.cpp/ggml",
        ("+cublas", "+ggml", "src/ggml-cuda", "src", "include"),
        (
            "--extended-lambda",
            "-use_fast_math",
            "-DGGML_CUDA_NO_VMM",
            *("-Xcompiler", "-ffunction-sections,-fdata-sections", "-Xlinker", "--gc-sections"),
        ),
        (
            *("src/ggml.c", "src/ggml-quants.c", "src/ggml-threading.cpp", "src/ggml.cpp", "+ggml_operations.cu"),
            *(f"src/ggml-cuda/{x}.cu" for x in OF_OPERATIONS),
        ),
        (
            *(f"operation {x}" for x in OPERATIONS),
            *(f"dequantize {x}" for x in TYPES),
            *(f"mul_mat_q {x} {n}" for x in ("q4_0", "q8_0", "q4_K", "q6_K") for n in (5, 40)),
        ),
    ),
}
NAMES = (*LIBRARIES, "llm.c")


def built(command: list[str], program: Path) -> Path:
    """The program, compiled unless it is newer than its source."""
    if not program.exists():
        subprocess.run([*NVCC, *command, "-o", str(program)], check=True)
    return program


def library(name: str, sources: Path, out: Path) -> Path:
    """A library's program."""
    row = LIBRARIES[name]
    folders = sorted(sources.glob(row.folder)) if row.folder else [sources]
    if not folders:
        sys.exit(f"{sources} has no {row.folder}: see --help")
    folder = folders[-1]

    def place(x: str) -> Path:
        return PROGRAMS / x[1:] if x[0] == "+" else folder / x

    own = PROGRAMS / f"{name.replace('-attn', '_attention').replace('-', '_')}.cu"
    sources = [str(own), *(str(place(x)) for x in row.sources)]
    return built([f"-arch={row.arch}", *row.flags, *(f"-I{place(x)}" for x in row.includes), *sources], out / name)


def _processor_seconds() -> float:
    """What programs that have ended took: unlike a clock it hardly depends on what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run(command: list[str], arch: str, checked: bool, seconds: int) -> tuple[str, str, float]:
    """(passed, failed or none; why; seconds of a processor) of a program."""
    words = [sys.executable, "-m", "nbtc", "run", "--arch", arch, *(["--checked"] if checked else []), *command]
    start = _processor_seconds()
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, errors="replace")
    except subprocess.TimeoutExpired:
        return "failed", f"ran past {seconds} s", float(seconds)
    took = round(_processor_seconds() - start, 1)
    if NONE in done.stdout:
        return "none", "", took
    said = [x for x in done.stderr.splitlines() if "compiling for a first use" not in x]
    why = " ".join((said or done.stdout.splitlines()[-1:] or [""])[0].split())
    why = re.sub(r"/[^\s:()]*/", "", why)  # folders of this machine
    return ("passed", "", took) if done.returncode == 0 else ("failed", why or f"exit code {done.returncode}", took)


def outcomes(command: list[str], chosen: argparse.Namespace) -> Iterator[tuple[str, tuple[str, str, float]]]:
    """What came of a program plain, then checked; nothing where it has no such kernel."""
    for mode in MODES:
        found = run(command, chosen.arch, mode == "checked", chosen.seconds)
        if found[0] == "none":
            return
        yield mode, found


def kept(page: str, groups: Iterable[str]) -> tuple[list[str], list[str]]:
    """(rows of outcomes, rows of reasons) of the page that are of other groups of runs."""
    rows, reasons = [], []
    for line in page.splitlines():
        first, second, *rest = [x.strip() for x in line.strip("|").split("|")] if line.startswith("| ") else ("", "")
        own = first if len(rest) == 1 else f"{first} {second}"
        if first and first not in ("library", "run") and not any(f"{own} ".startswith(f"{g} ") for g in groups):
            (reasons if len(rest) == 1 else rows).append(line)
    return rows, reasons


def table(results: dict[str, dict[str, tuple[str, str, float]]], page: str = "") -> str:
    """The page's part, from {"library run": {mode: (outcome, why, seconds)}} and the part as it is."""
    groups: dict[str, list[str]] = {}
    for key in sorted(results):
        groups.setdefault(" ".join(key.split()[:2]), []).append(key)
    head = [
        "| library | kernels | passed plain | passed checked | CPU s plain | CPU s checked |",
        "|---|---|---|---|---|---|",
    ]
    lines, reasons = kept(page, groups)
    for group, keys in groups.items():
        cells, seconds = [], []
        for mode in MODES:
            found = [results[k][mode] for k in keys if mode in results[k]]
            cells.append(f"{sum(x[0] == 'passed' for x in found)} of {len(found)}")
            seconds.append(f"{sum(x[2] for x in found):,.0f}")
        lines.append(f"| {' | '.join((*group.split(), *cells, *seconds))} |")
    bad = [(k, m, x[m][1]) for k, x in sorted(results.items()) for m in MODES if m in x and x[m][0] == "failed"]
    lines = [*head, *sorted(lines)]
    reasons += [f"| {k} | {m} | {why.replace('|', '/')[:SHOWN]} |" for k, m, why in bad]
    if reasons:
        lines += ["", "| run | | why it did not pass |", "|---|---|---|", *sorted(reasons)]
    return "\n".join(lines)


def batches(name: str, chosen: argparse.Namespace) -> Iterator[Iterable[tuple[str, list[str]]]]:
    """(what a run is called, its command) of a library; a batch ends where its program has no such kernel."""
    if name in LIBRARIES:
        program = str(library(name, chosen.sources, chosen.out))
        yield [(f"{name} {words}", [program, *words.split()]) for words in LIBRARIES[name].runs]
        return
    for source in sorted(chosen.llmc.glob("*.cu")) if chosen.llmc else ():
        program = str(built(["-arch=compute_80", str(source)], chosen.out / source.stem))
        yield ((f"{name} {source.stem} {n}", [program, str(n)]) for n in itertools.count(1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*NAMES, []])
    parser.add_argument("--sources", type=Path, default=ROOT / "build" / "libraries")
    parser.add_argument("--llmc", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "programs", help="where programs are built")
    parser.add_argument("--arch", default="H100")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--only", default="", help="runs that begin so")
    parser.add_argument("--keep", type=Path)
    chosen = parser.parse_args()
    chosen.out.mkdir(parents=True, exist_ok=True)
    results = json.loads(chosen.keep.read_text("utf-8")) if chosen.keep and chosen.keep.exists() else {}
    for name in chosen.names or NAMES:
        for batch in batches(name, chosen):
            for key, command in batch:
                if not key.startswith(chosen.only):
                    continue
                found = False
                for mode, outcome in outcomes(command, chosen):
                    found = True
                    results.setdefault(key, {})[mode] = outcome
                    print(key, mode, *outcome, flush=True)
                    if chosen.keep:
                        chosen.keep.write_text(json.dumps(results), "utf-8")
                if not found:
                    break
    page = PAGE.read_text("utf-8")
    before, own, after = page[: page.index(BEGIN)], page[page.index(BEGIN) : page.index(END)], page[page.index(END) :]
    PAGE.write_text(f"{before}{BEGIN}\n{table(results, own)}\n{after}", "utf-8")


if __name__ == "__main__":
    main()
