"""Quotients, reciprocals and products before sums, as an H200 rounded them (golden/contract_quotients.npz).

Each sum was a kernel of its own there, made from FUNCTION and its text here by golden/recorders/make_contract.py.
"""

from pathlib import Path

import numpy as np
import pytest

import nbtc

GOLDEN = Path(__file__).parents[2] / "golden" / "contract_quotients.npz"
FUNCTIONS = {
    "mul": 2, "mul.ftz": 2, "div.full": 2, "div.full.ftz": 2, "div.approx": 2, "div.approx.ftz": 2,
    "rcp.approx": 1, "rcp.approx.ftz": 1, "ex2.approx": 1, "sqrt.approx": 1,
}  # fmt: skip
SUMS = {
    "mulfirst": "mul.f32 t, b, c; add.f32 r, t, q;",
    "mulsecond": "mul.f32 t, b, c; add.f32 r, q, t;",
    "submul": "mul.f32 t, b, c; sub.f32 r, t, q;",
    "predq": "setp.gt.f32 p, c, 0f00000000; @p add.f32 q, q, c; mov.f32 r, q;",
    "notpred": "mov.f32 r, a; setp.gt.f32 p, c, 0f00000000; @!p sub.f32 r, c, q;",
    "predboth": "mov.f32 r, a; setp.gt.f32 p, c, 0f00000000; @p add.f32 r, q, c; @!p sub.f32 r, q, c;",
    "predneg": "mov.f32 r, a; setp.gt.f32 p, c, 0f00000000; neg.f32 t, q; @p add.f32 r, t, c;",
    "add": "add.f32 r, q, c;",
    "add2": "add.f32 r, c, q;",
    "sub": "sub.f32 r, q, c;",
    "rsub": "sub.f32 r, c, q;",
    "addftz": "add.ftz.f32 r, q, c;",
    "addrn": "add.rn.f32 r, q, c;",
    "neg": "neg.f32 t, q; add.f32 r, t, c;",
    "negftz": "neg.ftz.f32 t, q; add.ftz.f32 r, t, c;",
    "mul": "mul.f32 r, q, c;",
    "addsat": "add.sat.f32 r, q, c;",
    "self": "add.f32 r, q, q;",
    "twoftz": "add.ftz.f32 r, q, c; add.ftz.f32 t, q, a; mul.rn.f32 r, r, t;",
    "three": "add.f32 r, q, c; add.f32 t, q, a; mul.rn.f32 r, r, t; add.f32 t, q, b; mul.rn.f32 r, r, t;",
    "addmul": "add.f32 r, q, c; mul.rn.f32 r, r, q;",
    "two": "add.f32 r, q, c; add.f32 t, q, a; mul.rn.f32 r, r, t;",
    "store": "add.f32 r, q, c; st.global.f32 [pa], q;",
    "fma": "fma.rn.f32 r, q, b, c;",
    "sqr": "mul.f32 t, q, b; add.f32 r, t, c;",
    "abs": "abs.f32 t, q; add.f32 r, t, c;",
    "addimm": "add.f32 r, q, 0f3727C5AC;",
    "block": "setp.gt.f32 p, c, 0f00000000; mov.f32 r, q; @p bra L; add.f32 r, q, c; L:",
    "pred": "mov.f32 r, a; setp.gt.f32 p, c, 0f00000000; @p add.f32 r, q, c;",
}


def text(function, sums):
    """A kernel that stores each of the sums in a row of its own."""
    operands = ", ".join("ab"[: FUNCTIONS[function]])
    parts = [
        f"{{ .reg .f32 q, r, t; .reg .pred p; {function}.f32 q, {operands}; {SUMS[name].replace('L', f'L{n}')}\n"
        f" st.global.f32 [po + {4 * 64 * n}], r; }}"
        for n, name in enumerate(sums)
    ]
    loads = "".join(f"ld.param.u64 p{x}, [{x.upper()}]; add.u64 p{x}, p{x}, o; " for x in "abco")
    return f"""
.version 8.4 .target sm_90 .address_size 64
.visible .entry k(.param .u64 A, .param .u64 B, .param .u64 C, .param .u64 O) {{
 .reg .f32 a, b, c; .reg .b32 i; .reg .b64 pa, pb, pc, po, o;
 mov.u32 i, %tid.x; mul.wide.u32 o, i, 4; {loads}
 ld.global.f32 a, [pa]; ld.global.f32 b, [pb]; ld.global.f32 c, [pc];
{chr(10).join(parts)}
 ret; }}"""


def run(function, sums, recorded, **options):
    out = np.zeros((len(sums), 64), np.uint32)
    kernel = nbtc.load(text(function, sums))["k"]
    kernel.launch(1, 64, [*(recorded[x].copy() for x in "abc"), out], **options)
    return out


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN) as found:
        return dict(found)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_sums_as_recorded(function, recorded):
    found = run(function, SUMS, recorded)
    wrong = [name for name, x, y in zip(SUMS, found, recorded[function], strict=True) if (x != y).any()]
    assert not wrong


def test_quotients_do_join_sums(recorded):
    """Without contraction the recording is another one: the test above can fail."""
    plain = run("div.full", ["add", "addrn"], recorded, contract="off")
    np.testing.assert_array_equal(plain[0], plain[1])
    assert (plain[0] != recorded["div.full"][list(SUMS).index("add")]).any()


def test_factors_have_no_text():
    with pytest.raises(nbtc.errors.NbtcError):
        nbtc.load(text("mul", ["add"]).replace("mul.f32", "div%dividend.full.f32"))["k"].launch(1, 1, [None] * 4)
