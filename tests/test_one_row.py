"""An instruction, a format and an architecture that nbtc does not know, each added as one row while the program runs.

They run in a process of their own: the toy format must be there before kernels are compiled (its code indexes tables
that are compiled in), and must not be found by other tests.
"""

import os
import subprocess
import sys
from pathlib import Path

TOY = r"""
import numpy as np
from nbtc.formats import table
from nbtc.formats.table import FORMATS, Format

# a format: 1 + 3 + 4 bits, carried by ml_dtypes.float8_e3m4
e3m4 = FORMATS["e3m4"] = Format("e3m4", 40, "float", 8, 3, 4, dtype_name="float8_e3m4")

# an architecture with arithmetic of its own
from nbtc.isa.archs import ARCHS, Arch
ARCHS["sm_95"] = Arch("sm_95", 95, "sm_95")
from nbtc.numerics import models
models.register("sm_95", "mma", "fp8", models.Model("toy", models.Kind.FUSED, "recorded", 24, 25, -133, -21))

# an instruction: a shape that is no power of two, on the new architecture alone
from nbtc.isa import mma, parse
(row,) = mma.dense("m16n8k96", e3m4, e3m4, table.f32, "sm_95")
parse.register(row)

import ml_dtypes
from nbtc.instructions import instruction, instructions
i = instruction("mma.sync.row.col.m16n8k96.f32.e3m4.e3m4.f32 {d0,d1,d2,d3}, {a0,a1,a2,a3,a4,a5,a6,a7,a8,a9,a10,a11}, "
                "{b0,b1,b2,b3,b4,b5}, {c0,c1,c2,c3};")
assert i.mnemonic == row.mnemonic and i.a.registers == 12 and i.min_arch == "sm_95"
assert [x.mnemonic for x in instructions(a="e3m4")] == [row.mnemonic] and i in instructions(arch="sm_95")
assert i not in instructions(arch="sm_90")

rng = np.random.default_rng(5)
a = (rng.integers(-12, 13, (3, 16, 96)) / 4).astype(ml_dtypes.float8_e3m4)
b = (rng.integers(-12, 13, (3, 96, 8)) / 4).astype(ml_dtypes.float8_e3m4)
c = rng.integers(-9, 10, (3, 16, 8)).astype(np.float32)
assert (i.unpack_a(i.pack_a(a)) == a).all()
d = i.unpack_d(i(i.pack_a(a), i.pack_b(b), i.pack_c(c), arch="sm_95"))
want = a.astype(np.float64) @ b.astype(np.float64) + c       # small enough to be exact
assert (d == want).all(), (d - want)

from nbtc.errors import ParseError, UnsupportedInstructionError
try:
    i(i.pack_a(a), i.pack_b(b), i.pack_c(c), arch="sm_90")
except UnsupportedInstructionError as error:
    assert "sm_95" in str(error)
else:
    raise SystemExit("sm_90 ran an instruction of sm_95")
try:
    parse.register(row)
except ParseError as error:
    assert "already a row" in str(error)
else:
    raise SystemExit("a row was added twice")
from nbtc import show
assert "T31 a11" in show.text(i) and show.svg(i).startswith("<svg")
parse.unregister(row)
try:
    instruction(row.mnemonic)
except ParseError as error:
    assert "m16n8k" in str(error)
else:
    raise SystemExit("a removed row still parses")
print("toys work")
"""


def test_one_row_each(tmp_path):
    tree = Path(__file__).resolve().parents[1]
    path = os.pathsep.join(p for p in (str(tree), os.environ.get("PYTHONPATH")) if p)
    env = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, "-c", TOY], env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and done.stdout.strip() == "toys work", done.stderr[-3000:]
