"""What NVIDIA's compute-sanitizer finds in the programs that the checked mode is tested with, on a GPU.

    python tests/tools/sanitizer.py [memcheck racecheck initcheck synccheck] [--kind malloc ...] [--keep FILE]

Each program runs broken and repaired, under each tool, in a process of its own: compiled by the driver, launched by
`nbtc.driver`.  Programs that wait for ever are left out.  The result is a table: how many of a kind's broken programs
each tool reports, and how many repaired ones.  Needs a GPU of sm_90a, its driver, and compute-sanitizer (in the CUDA
toolkit) on the path.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402

from nbtc.driver import launch, synchronize  # noqa: E402
from nbtc.driver.arrays import Buffer  # noqa: E402
from tests.executor.hazard_programs import WORDS, Hazard, hazards  # noqa: E402

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
OPTIONS = {"memcheck": ["--leak-check", "full"]}
SECONDS = 60  # of a launch under a tool; what takes longer counts as not found
# Frames and sums; and arrays of this process, of which memcheck counts those freed at the end as lost too.
NOT_OF_THE_KERNEL = re.compile(
    r"COMPUTE-SANITIZER|ERROR SUMMARY|LEAK SUMMARY|Saved host|Host Frame|Leaked [\d,]+ bytes at \w+$"
)
FOUND = 86  # the exit code that a tool is to give when it reports something


def one(kind: str, name: str, repaired: bool) -> None:
    """Launch one program in this process."""
    hazard = next(h for h in hazards() if (h.kind, h.name) == (kind, name))
    arrays = [Buffer.of(np.zeros(WORDS, np.int32)) for _ in range(2)]
    launch(hazard.text(repaired), "k", hazard.grid, hazard.block, 0, None, arrays)
    synchronize()
    arrays.clear()  # frees them: what is left is the kernel's own leak


def under(tool: str, hazard: Hazard, repaired: bool) -> tuple[bool, str]:
    """Whether a tool reports something, and the first line of it."""
    own = [sys.executable, __file__, "--one", hazard.kind, hazard.name, "repaired" if repaired else "broken"]
    command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", str(FOUND), *OPTIONS.get(tool, []), *own]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, env=dict(os.environ))
    except subprocess.TimeoutExpired:
        return False, f"no end in {SECONDS} s"
    said = [line.lstrip("= ") for line in run.stdout.splitlines() if re.match(r"=+ +\S", line)]
    said = [line for line in said if not NOT_OF_THE_KERNEL.match(line)]
    return run.returncode == FOUND and bool(said), (said or run.stderr.splitlines()[-1:] or [""])[0]


def table(found: dict[str, dict[str, list[bool]]], tools: list[str]) -> str:
    """Of each kind: reports of broken programs, and after a plus those of repaired ones."""
    lines = ["| hazard | " + " | ".join(tools) + " |", "| --- |" + " --- |" * len(tools)]
    for kind, row in found.items():
        cells = []
        for tool in tools:
            broken, repaired = row[tool][::2], row[tool][1::2]
            cells.append(f"{sum(broken)} of {len(broken)}" + (f" + {sum(repaired)}" if any(repaired) else ""))
        lines.append(f"| {kind.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tools", nargs="*", default=TOOLS)
    parser.add_argument("--kind", nargs="*", default=[])
    parser.add_argument("--keep", help="a file for every verdict, as JSON lines")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        one(given.one[0], given.one[1], given.one[2] == "repaired")
        return
    if shutil.which("compute-sanitizer") is None:
        sys.exit("compute-sanitizer is not on the path: it comes with the CUDA toolkit")
    found: dict[str, dict[str, list[bool]]] = {}
    for hazard in hazards():
        if hazard.says == "waits forever" or (given.kind and hazard.kind not in given.kind):
            continue
        row = found.setdefault(hazard.kind, {tool: [] for tool in given.tools})
        for tool in given.tools:
            for repaired in (False, True):
                yes, said = under(tool, hazard, repaired)
                row[tool].append(yes)
                verdict = [hazard.kind, hazard.name, "repaired" if repaired else "broken", tool, yes, said]
                print(*verdict, flush=True)
                if given.keep:
                    with open(given.keep, "a", encoding="utf-8") as file:
                        file.write(json.dumps(verdict) + "\n")
    print(table(found, list(given.tools)))


if __name__ == "__main__":
    main()
