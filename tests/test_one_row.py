"""docs/adding.md, run from top to bottom: a format, an architecture and an instruction, each added as one row.

It runs in a process of its own: the toy format must be there before kernels are compiled (its code indexes tables that
are compiled in), and must not be found by other tests.
"""

import re
from pathlib import Path

import numpy as np

from nbtc.gemm.engines import engines, scaled_engines
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, PARAMS, Kind
from tests.processes import forked, output

TREE = Path(__file__).resolve().parents[1]
AFTER = r"""
for m, k, n in (64, 96, 64), (128, 192, 80):  # blocks of 24, which panels of 16 products do not hold whole
    x = (rng.integers(-12, 13, (m, k)) / 4).astype(ml_dtypes.float8_e3m4)
    y = (rng.integers(-12, 13, (k, n)) / 4).astype(ml_dtypes.float8_e3m4)
    assert (nbtc.matmul(x, y, arch="sm_130") == x.astype(np.float64) @ y.astype(np.float64)).all(), (m, k, n)
from nbtc.errors import ParseError, UnsupportedInstructionError
try:
    i(*registers, arch="sm_90")
except UnsupportedInstructionError as error:
    assert "sm_130" in str(error)
else:
    raise SystemExit("sm_90 ran an instruction of sm_130")
try:
    parse.register(row)
except ParseError as error:
    assert "already a row" in str(error)
else:
    raise SystemExit("a row was added twice")
parse.unregister(row)
try:
    nbtc.instruction(row.mnemonic)
except ParseError as error:
    assert "m16n8k" in str(error)
else:
    raise SystemExit("a removed row still parses")
print("every step holds")
"""


# a program's machine code and what the process keeps in memory, before and after the row that decides its bits
PROGRAM = r"""
import sys
import numpy as np, nbtc
from nbtc.isa.archs import ARCHS, Arch
from nbtc.numerics import models

TEXT = '''.version 8.0 .target sm_80 .address_size 64
.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 D) {
 .reg .b32 t, a<4>, b<2>; .reg .f32 d<4>, z; .reg .b64 p, q, r, o;
 mov.u32 t, %tid.x; ld.param.u64 p, [A]; ld.param.u64 q, [B]; ld.param.u64 r, [D]; mov.f32 z, 0f00000000;
 mul.wide.u32 o, t, 16; add.u64 p, p, o; add.u64 r, r, o; mul.wide.u32 o, t, 8; add.u64 q, q, o;
 ld.global.v4.u32 {a0, a1, a2, a3}, [p]; ld.global.v2.u32 {b0, b1}, [q];
 mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}, {z, z, z, z};
 st.global.v4.f32 [r], {d0, d1, d2, d3}; ret; }'''
ARCHS["sm_130"] = Arch("sm_130", 130, "sm_130")
rng = np.random.default_rng(0)
i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
a = i.pack_a(rng.standard_normal((16, 16)).astype(np.float16))
b = i.pack_b(rng.standard_normal((16, 8)).astype(np.float16))
module, zero = nbtc.load(TEXT), np.zeros((32, 4), np.uint32)
for block, fraction in (16, int(sys.argv[1])), (8, 12):
    row = models.Model("toy", models.Kind.FUSED, "recorded", block, fraction, -133, -21)
    models.register("sm_130", "mma", "f16", row)
    d = zero.copy()
    module["k"].on("sm_130")[1, 32](a, b, d)
    assert (d == i(a, b, zero, arch="sm_130")).all(), (block, fraction)
print(d.ravel()[:2])
"""


def test_programs_know_a_row_that_was_added():
    """Also where another process, with another row of that name, left its code on disk."""
    said = {output(forked(f"import sys; sys.argv = ['', '{fraction}']\n" + PROGRAM)) for fraction in (25, 10)}
    assert len(said) == 1


def test_engines_refuse_rows_they_do_not_have():
    """Constants of a model inside of kernels serve that model alone."""
    fused = np.zeros(PARAMS, np.int64)
    fused[[KIND, BLOCK, FRACTION, FLOOR]] = Kind.FUSED, 16, 25, -133
    panel = engines.PanelEngine()
    for at, number in (BLOCK, 24), (BLOCK, 12), (FRACTION, 26), (FRACTION, 10):
        other = fused.copy()
        other[at] = number
        assert not panel.serves(other), (at, number)
    for engine, row in (
        (scaled_engines.ScaledRowsEngine(), (Kind.SCALED, 32, 25, -133)),
        (scaled_engines.ScaledBlocksEngine(), (Kind.GROUPED, 16, 35, -139)),
    ):
        mine = np.zeros(PARAMS, np.int64)
        mine[[KIND, BLOCK, FRACTION, FLOOR]] = row
        assert engine.serves(mine)
        for at in BLOCK, FRACTION, FLOOR:
            other = mine.copy()
            other[at] += 1
            assert not engine.serves(other), (engine.name, at)


def test_the_page_on_adding_runs():
    text = (TREE / "docs" / "adding.md").read_text(encoding="utf-8")
    steps = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(steps) > 6
    code = "\n".join(["import warnings; warnings.simplefilter('ignore')", *steps, AFTER])
    assert output(forked(code)) == "every step holds"
