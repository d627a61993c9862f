"""Which products and sums fuse, as recorded: read off the instructions that are left."""

import pytest

from nbtc.executor.kernel.contract import contract
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
REGISTERS = ".reg .f32 %f<20>; .reg .f64 %d<9>; .reg .b32 %r<9>; .reg .pred %p<3>;\n"


def left(body):
    """The instructions of a kernel after contraction, without moves' types."""
    module = parse(f"{HEAD}{REGISTERS}{body}\nret;\n}}\n")
    function = contract(module.functions["k"])
    assert all(0 <= at <= len(function.body) for at in function.labels.values())
    return [i.mnemonic for i in function.body][:-1]


FUSED = {
    "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f5, %f1;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; sub.f32 %f4, %f1, %f5;": ["neg.f32", "fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; sub.f32 %f4, %f5, %f1;": ["neg.f32", "fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; neg.f32 %f1, %f1; add.f32 %f4, %f1, %f5;": ["neg.f32", "fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; neg.f32 %f6, %f1; sub.f32 %f4, %f5, %f6;": ["fma.rn.f32"],
    "mul.ftz.f32 %f1, %f2, %f3; add.ftz.f32 %f4, %f1, %f5;": ["fma.rn.ftz.f32"],
    "mul.f32 %f1, %f2, %f3; add.sat.f32 %f4, %f1, %f5;": ["fma.rn.sat.f32"],
    "mul.f32 %f1, %f2, %f3; mul.f32 %f6, %f5, %f5; add.f32 %f4, %f1, %f6;": ["mul.f32", "fma.rn.f32"],
    "mul.f64 %d1, %d2, %d3; add.f64 %d4, %d1, %d5;": ["fma.rn.f64"],
    "mul.f16x2 %r1, %r2, %r3; sub.f16x2 %r4, %r1, %r5;": ["neg.f16x2", "fma.rn.f16x2"],
    "mul.bf16x2 %r1, %r2, %r3; add.bf16x2 %r4, %r1, %r5;": ["fma.rn.bf16x2"],
    "mul.f32 %f1, %f2, %f3; @%p1 add.f32 %f4, %f1, %f5;": ["fma.rn.f32"],
    "div.full.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;": [
        "div%dividend.full.f32",
        "div%reciprocal.full.f32",
        "fma.rn.f32",
    ],
    "rcp.approx.f32 %f1, %f2; add.f32 %f4, %f1, %f5;": ["rcp%scale.approx.f32", "rcp%scaled.approx.f32", "fma.rn.f32"],
    # every reader is a sum: the product is gone
    "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5; sub.f32 %f6, %f5, %f1;": ["fma.rn.f32", "neg.f32", "fma.rn.f32"],
    # the second product has another reader, so the first sum takes the first and the other stays
    "mul.f32 %f1, %f2, %f3; mul.f32 %f6, %f5, %f5; add.f32 %f4, %f1, %f6; add.f32 %f7, %f6, %f2;": [
        "mul.f32",
        "fma.rn.f32",
        "add.f32",
    ],
    # a factor written anew before the sum is kept
    "mul.f32 %f1, %f2, %f3; mov.f32 %f2, %f7; add.f32 %f4, %f1, %f5;": ["mov.b32", "mov.f32", "fma.rn.f32"],
    # the register of a product that was fused is another value afterwards
    "mul.f32 %f1, %f2, %f3; add.f32 %f1, %f1, %f5; add.f32 %f4, %f1, %f1;": ["fma.rn.f32", "add.f32"],
}
APART = (
    "div.rn.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "rcp.approx.ftz.f32 %f1, %f2; add.ftz.f32 %f4, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; @%p1 add.f32 %f1, %f1, %f5;",
    "mul.rn.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; add.rn.f32 %f4, %f1, %f5;",
    "mul.rz.f32 %f1, %f2, %f3; add.rz.f32 %f4, %f1, %f5;",
    "mul.ftz.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "mul.sat.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f1;",
    "mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5; setp.gt.f32 %p1, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; neg.f32 %f6, %f1; add.f32 %f4, %f1, %f6;",
    "mul.f32 %f1, %f2, %f3; bra L; L: add.f32 %f4, %f1, %f5;",
    "@%p1 mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; @%p1 mov.f32 %f1, %f7; add.f32 %f4, %f1, %f5;",
    "L: sub.f32 %f6, %f1, %f7; mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5; @%p1 bra L;",
    "mul.f64 %d1, %d2, %d3; add.rn.f64 %d4, %d1, %d5;",
)


@pytest.mark.parametrize("body", FUSED)
def test_fused(body):
    assert left(body) == FUSED[body]


@pytest.mark.parametrize("body", APART)
def test_kept_apart(body):
    parts = [part.replace("L:", "").split() for part in body.split(";") if "," in part]
    assert [m for m in left(body) if m != "bra"] == [p[1] if p[0].startswith("@") else p[0] for p in parts]
