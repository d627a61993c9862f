"""What the first call of each kind costs with empty caches, in seconds of a processor (user and system time).

    python scripts/first_calls.py [NAME ...]

Each is a process of its own with caches of its own; "first" has the start of Python and all imports, "then" is another
format, layout or size in the same process, "next process" the first call again with the caches that the first left.
Processor time, not the clock's: on a loaded machine that says nothing.  Python's bytecode is written before, as pip
does when it installs a package; without it the imports take 0.45 s more.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

START = """
import resource
def seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
import numpy as np, nbtc
from nbtc.formats.arrays import as_format
from nbtc.report import random_operand
def operand(fmt, m=256, k=256):
    return random_operand(np.random.default_rng(0), (m, k), as_format(fmt))
def product(fmt, **options):
    return nbtc.matmul(operand(fmt), operand(fmt), a_format=fmt, b_format=fmt, **options)
def scaled(fmt):
    x = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    (a, scale_a), (b, scale_b) = nbtc.mx.quantize(x, fmt)[:2], nbtc.mx.quantize(x.T, fmt)[:2]
    return nbtc.matmul(a, b.T, scale_a=scale_a, scale_b=scale_b.T, arch="sm_120")
def launch(checked):
    from nbtc.warmup import PROGRAM
    program = nbtc.load(PROGRAM)["reverse"]
    (program.checked if checked else program)[1, 64](np.zeros(64, np.int32))
@nbtc.kernel
def add(x, y, out):
    i = nbtc.grid(1)
    if i < out.size:
        out[i] = x[i] + y[i]
def kernel(dtype):
    x = np.ones(100, dtype)
    add[4, 32](x, x, x)
"""


class First(NamedTuple):
    """A call, another one of its kind, and the seconds that the first may take."""

    name: str
    call: str
    then: str
    most: float


CALLS = (
    First("f16 product", 'product("f16")', 'product("bf16", arch="sm_80")', 1.5),
    First("f16 product, small", 'nbtc.matmul(*[operand("f16", 64, 64)] * 2)', 'product("f16", acc="f16")', 1.5),
    First("e4m3 product", 'product("e4m3")', 'product("e5m2")', 1.5),
    First("s8 product", 'product("s8")', 'product("u8")', 1),
    First("s4 product", 'product("s4", arch="sm_80")', 'product("u4", arch="sm_80")', 1),
    First("f64 product", 'product("f64")', 'nbtc.matmul(operand("f64").T, operand("f64"))', 1),
    First("mxfp4 product", 'scaled("mxfp4")', 'scaled("mxfp8")', 1.2),
    First("program", "launch(False)", "launch(False)", 1),
    First("kernel in Python", "kernel(np.float32)", "kernel(np.int32)", 1.2),
    First("checked program", "launch(True)", "launch(True)", 2),
)


def measured(one: First, folder: Path) -> list[float]:
    """Seconds of the first call, of the other one, and of the first one in the next process."""
    script = folder / "first_call.py"
    script.write_text(
        f"{START}t = [seconds()]\n{one.call}\nt.append(seconds())\n{one.then}\nt.append(seconds())\nprint(*t)\n"
    )
    env = os.environ | {
        "NUMBA_CACHE_DIR": str(folder / "numba"), "NBTC_CACHE_DIR": str(folder / "nbtc"), "NBTC_QUIET": "1",
    }  # fmt: skip
    runs = []
    for _ in range(2):
        run = subprocess.run([sys.executable, str(script)], env=env, check=True, capture_output=True, text=True)
        runs.append([float(x) for x in run.stdout.split()])
    return [runs[0][1], runs[0][2] - runs[0][1], runs[1][1]]


def main() -> None:
    names = sys.argv[1:]
    compileall.compile_dir(Path(__file__).resolve().parents[1] / "nbtc", quiet=2)
    print(f"{'':22}{'first':>8}{'at most':>9}{'then':>8}{'next process':>14}")
    for one in CALLS:
        if not names or one.name in names:
            with tempfile.TemporaryDirectory() as folder:
                first, then, again = measured(one, Path(folder))
            print(f"{one.name:22}{first:8.2f}{one.most:9.1f}{then:8.2f}{again:14.2f}", flush=True)


if __name__ == "__main__":
    main()
