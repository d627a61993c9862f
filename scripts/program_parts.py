"""Where the time of recorded programs goes: decoding operands, summing products, fetching fragments, copying tiles.

    python scripts/program_parts.py --programs FOLDER [--only TEXT ...] [--seconds 3] [--into docs/bounds.md]

Needs Linux' perf and nm.  Each program is launched on one thread again and again while perf looks two thousand times a
second which function runs; processor time counts, so other work on the machine hardly matters.  nbtc's functions are
told apart by their names.  Prints a table in Markdown; --into writes it between its marks in a page.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from nbtc.compiler.machine_code import native
from nbtc.testing.program_speed import programs

SIZE = 1024  # of the matrix products, whose multiply-adds attention's two have as well
# By name of a part: the functions whose time it is.  The first that fits counts.
PARTS = {
    "product": r"nbtc_(core|half|slice|product|whole_\w+_sums)",
    "decode": r"nbtc_(decode|whole)_",
    "gather": r"nbtc_(ldmatrix|wgmma)|gather_|resolve_shared_r",
    "copies": r"nbtc_cp_async|resolve_(global_r|shared_w)",
    "functions": r"nbtc_unit_",
    "stores": r"scatter_|resolve_global_w",
    "own code": r"warp(\.resume)?$",
    "watching": r"integer_code_",
}
REST = "rest"  # Python, the system, barriers, which block and warp runs next
OF_PRODUCTS = ("product", "decode", "gather")
PRODUCT = re.compile(r"\b(?:wgmma\.mma_async|mma)\.sync\.aligned\.(?:\w+\.)*?m(\d+)n(\d+)k(\d+)\.")
TEXTS = {  # of the programs that multiply matrices
    "f16 matmul, mma": "triton_matmul_f16_sm80",
    "f16 matmul, wgmma": "triton_matmul_f16_sm90",
    "int8 matmul, mma": "triton_matmul_i8_sm80",
    "int8 matmul, wgmma": "triton_matmul_i8_sm90",
    "e4m3 matmul, wgmma": "triton_matmul_fp8_sm90",
    "attention, x its products alone": "triton_attention_sm80",
}


class Function(NamedTuple):
    """A compiled function: where it is, its bytes, and its part."""

    first: int
    bytes: int
    part: str


class Functions:
    """All functions that nbtc loads from now on."""

    def __init__(self) -> None:
        self.found: list[Function] = []
        self._load = native.load
        native.load = self._loaded

    def _loaded(self, code: native.Native) -> native.Loaded:
        loaded = self._load(code)
        for part in code.objects:
            with tempfile.NamedTemporaryFile(suffix=".o") as file:
                file.write(part)
                file.flush()
                listed = subprocess.run(["nm", "-S", file.name], capture_output=True, text=True, check=True).stdout
            rows = [line.split() for line in listed.splitlines()]
            named = {row[3]: int(row[1], 16) for row in rows if len(row) == 4 and row[2] in "tT"}
            watching = any(name.startswith("integer_code_") for name in named)
            for name, size in named.items():
                own = "watching" if watching else part_of(name)
                self.found.append(Function(loaded.engine.get_function_address(name), size, own))
        return loaded

    def part_at(self, address: int) -> str:
        """The part that an instruction is of."""
        latest_first = reversed(self.found)  # code that is gone left its addresses to others
        return next((f.part for f in latest_first if f.first <= address < f.first + f.bytes), REST)


def part_of(name: str) -> str:
    """The part that a function is of."""
    return next((part for part, names in PARTS.items() if re.match(names, name)), REST)


def sampled(launch: Any, seconds: float, functions: Functions) -> tuple[float, dict[str, float]]:
    """Processor time of a launch in milliseconds, and the share of each part."""
    launch(1)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "perf.data"
        command = ["perf", "record", "-F", "2000", "-e", "cpu-clock", "-o", str(data), "-p", str(os.getpid())]
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as perf:
            time.sleep(0.5)  # until it looks
            count, begin, end = 0, time.process_time(), time.monotonic() + seconds
            while time.monotonic() < end:
                launch(1)
                count += 1
            spent = time.process_time() - begin
            perf.send_signal(signal.SIGINT)
        text = subprocess.run(["perf", "script", "-F", "ip", "-i", str(data)], capture_output=True, text=True).stdout
    seen: Counter[str] = Counter()
    for address, times in Counter(text.split()).items():
        seen[functions.part_at(int(address, 16))] += times
    return 1e3 * spent / count, {part: n / seen.total() for part, n in seen.items()}


def instructions(text: str) -> tuple[str, float]:
    """The product that a program executes, and how many in a product of SIZE^3."""
    found = PRODUCT.search(text)
    if found is None:
        raise ValueError("the program has no products")
    m, n, k = map(int, found.groups())
    return f"m{m}n{n}k{k}", SIZE**3 / (m * n * k)


def row(name: str, folder: Path, milliseconds: float, shares: dict[str, float]) -> str:
    """A line of the table."""
    cells = [f"{100 * shares.get(part, 0):.0f}" for part in (*PARTS, REST)]
    each = ""
    if name in TEXTS:
        shape, count = instructions((folder / "ptx" / f"{TEXTS[name]}.ptx").read_text())
        ns = [f"{1e6 * milliseconds * shares.get(part, 0) / count:,.0f}" for part in OF_PRODUCTS]
        each = f"{shape}: {' + '.join(ns)}"
    return f"| {name} | {milliseconds:.1f} | {' | '.join('' if c == '0' else c for c in cells)} | {each} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=Path, required=True)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--into", type=Path)
    args = parser.parse_args()
    functions = Functions()
    head = ["program", "ms", *PARTS, REST, f"ns an instruction: {' + '.join(OF_PRODUCTS)}"]
    lines = [f"| {' | '.join(head)} |", "| --- " * len(head) + "|"]
    for timed in programs(args.programs, SIZE):
        if not args.only or any(text in timed.name for text in args.only):
            lines.append(row(timed.name, args.programs, *sampled(timed.launch, args.seconds, functions)))
            print(lines[-1], flush=True)
    if args.into:
        page, table = args.into.read_text(encoding="utf-8"), "\n".join(lines)
        marks = "<!-- program_parts -->\n", "\n<!-- end of program_parts -->"
        before, _, rest = page.partition(marks[0])
        args.into.write_text(f"{before}{marks[0]}{table}{marks[1]}{rest.partition(marks[1])[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
