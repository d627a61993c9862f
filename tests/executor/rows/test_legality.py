"""Text that ptxas refuses is refused, text that it takes is not: operand types, names, targets."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError

VERDICTS = [
    line.split() for line in (Path(__file__).parent / "ptxas_verdicts.txt").read_text().splitlines() if line[0] in "+-"
]
TEXT = ".version 8.6\n.target %s\n.address_size 64\n.visible .entry k() { %s ret; }\n"


def runs(body, target="sm_90"):
    return nbtc.coverage(TEXT % (target, body)).runs


def test_types_of_operands_as_ptxas_judges_them():
    assert [v[0] for v in VERDICTS].count("-") == len(VERDICTS) // 2 == 150
    for verdict, mnemonic, *types in VERDICTS:
        registers = "".join(f".reg .{t} r{n}; " for n, t in enumerate(types))
        names = ", ".join(f"r{n}" for n in range(len(types)))
        assert runs(f"{registers}{mnemonic} {names};") == (verdict == "+"), (verdict, mnemonic, types)


@pytest.mark.parametrize(
    ("body", "target", "said"),
    [
        (".reg .b64 q; .reg .b32 a; add.u32 a, q, 1;", "sm_90", r"q is a .b64 register, of 64 bits; .u32 has 32"),
        (".reg .pred p; .reg .b32 a; add.u32 a, p, 1;", "sm_90", "selp makes a number"),
        (".reg .b32 a; add.u32 a, %f9, 1;", "sm_90", "%f9 is not declared"),
        (".reg .b32 a; add.u32 a, zz, 1;", "sm_90", "zz is not declared"),
        (".reg .b32 a; add.u32 a, a;", "sm_90", "2 operands; this form has 3"),
        (".reg .b16 h; .reg .f32 f; cvt.rn.bf16.f32 h, f;", "sm_70", "from sm_80 on"),
        (".reg .b64 q; .shared .b32 s[4]; cp.async.ca.shared.global [s], [q], 4;", "sm_70", "from sm_80 on"),
        ("wgmma.fence.sync.aligned;", "sm_80", "from sm_90 on"),
        (".reg .f32 f; tanh.approx.f32 f, f;", "sm_70", "from sm_75 on"),
        (".reg .b16 h; ex2.approx.ftz.bf16 h, h;", "sm_80", "from sm_90 on"),
    ],
)
def test_refused_with_the_rule(body, target, said):
    (use,) = nbtc.coverage(TEXT % (target, body))["k"].missing
    assert np.char.find(use.refused, use.form) == 0
    with pytest.raises(ProgramError, match=said):
        nbtc.load(TEXT % (target, body))["k"][1, 32]()
