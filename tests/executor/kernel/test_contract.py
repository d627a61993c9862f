"""Which products and sums fuse, as recorded: read off the instructions that are left."""

import re

import pytest

from nbtc.executor.kernel.contract import contract
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
REGISTERS = ".reg .f32 %f<20>; .reg .f64 %d<9>; .reg .b32 %r<9>; .reg .b64 %a; .reg .pred %p<3>;\n"


def stored(body):
    """Stores of what a body writes and doesn't read afterwards: ptxas drops what nobody needs before it fuses."""
    found = []
    for part in reversed([p for p in body.split(";") if "," in p]):
        at = part.index("%", part.index(".f") if ".f" in part else part.index(".b"))
        target = part[at:].split(",")[0]
        later = body[body.rindex(part) + len(part) :]
        if target not in re.findall(r"%\w+", later):
            guard, value = (f"@{target} ", "%f9") if target[1] == "p" else ("", target)
            found.append(f"{guard}st.global.b{64 if target[1] == 'd' else 32} [%a], {value};")
    return "".join(reversed(found))


def left(body):
    """The instructions of a kernel after contraction, without stores of its results."""
    module = parse(f"{HEAD}{REGISTERS}{body}\n{stored(body)}\nret;\n}}\n")
    function = contract(module.functions["k"])
    assert all(0 <= at <= len(function.body) for at in function.labels.values())
    return [i.mnemonic for i in function.body if i.opcode != "st"][:-1]


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
    "mul.f32 %f1, %f2, %f3; abs.f32 %f2, %f7; add.f32 %f4, %f1, %f5;": ["mov.b32", "abs.f32", "fma.rn.f32"],
    # of a sum with two products, the one that fewer sums read
    "mul.f32 %f1, %f2, %f3; mul.f32 %f4, %f5, %f6; add.f32 %f7, %f1, %f5; add.f32 %f8, %f1, %f4;": [
        "mul.f32",
        "add.f32",
        "fma.rn.f32",
    ],
    # packed, sums take products in their order: the first has fused when the second takes the other product
    "mul.f16x2 %r1, %r2, %r3; mul.f16x2 %r4, %r5, %r6; add.f16x2 %r7, %r1, %r5; add.f16x2 %r8, %r1, %r4;": [
        "mul.f16x2",
        "fma.rn.f16x2",
        "fma.rn.f16x2",
    ],
    # one of two sums takes a product that stays for the other
    "mul.f32 %f1, %f2, %f3; mul.f32 %f4, %f5, %f6; "
    "add.f32 %f7, %f1, %f2; add.f32 %f8, %f4, %f1; add.f32 %f9, %f4, %f2;": [
        "mul.f32",
        "fma.rn.f32",
        "fma.rn.f32",
        "fma.rn.f32",
    ],
    # copies, two negations and products by 1 and -1 are nothing between them, nor is a reader whose result nobody reads
    "mul.f32 %f1, %f2, %f3; mov.b32 %f6, %f1; add.f32 %f4, %f6, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; neg.f32 %f1, %f1; neg.f32 %f1, %f1; add.f32 %f4, %f1, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; mul.f32 %f6, %f1, 0f3F800000; add.f32 %f4, %f6, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; mul.f32 %f6, 0fBF800000, %f1; add.f32 %f4, %f6, %f5;": ["neg.f32", "fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; mul.f32 %f6, %f1, 1.0; add.f32 %f4, %f6, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; selp.f32 %f6, %f1, %f1, %p1; add.f32 %f4, %f6, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; max.f32 %f6, %f1, %f1; add.f32 %f4, %f6, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; mul.f32 %f4, %f1, %f5; add.f32 %f4, %f1, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; bra L; L: add.f32 %f4, %f1, %f5;": ["fma.rn.f32"],
    "mul.f32 %f1, %f2, %f3; @%p1 bra L; neg.f32 %f6, %f5; L: add.f32 %f4, %f1, %f5; mov.f32 %f6, %f4;": [
        "fma.rn.f32",
        "mov.f32",
    ],
    # a negation that flushes subnormals, which alone reads a product
    "mul.ftz.f32 %f1, %f2, %f3; neg.ftz.f32 %f4, %f1; add.ftz.f32 %f6, %f4, %f5; abs.f32 %f7, %f4;": [
        "mul.ftz.f32",
        "neg.ftz.f32",
        "neg.f32",
        "fma.rn.ftz.f32",
        "abs.f32",
    ],
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
    "mul.f32 %f1, %f2, %f3; @%p1 bra L; neg.f32 %f6, %f7; L: add.f32 %f4, %f1, %f5;",
    "@%p1 mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5;",
    "mul.f32 %f1, %f2, %f3; @%p1 mov.f32 %f1, %f7; add.f32 %f4, %f1, %f5;",
    "L: sub.f32 %f6, %f1, %f7; mul.f32 %f1, %f2, %f3; add.f32 %f4, %f1, %f5; @%p1 bra L;",
    "mul.f64 %d1, %d2, %d3; add.rn.f64 %d4, %d1, %d5;",
    "mul.f32 %f1, %f2, %f3; @%p1 add.f32 %f1, %f4, %f5;",
    "mul.f32 %f1, 0f40490FDB, 0f40490FDC; add.f32 %f4, %f1, %f5;",
    "mul.bf16x2 %r1, %r2, %r3; neg.bf16x2 %r4, %r1; add.bf16x2 %r6, %r4, %r5;",
    "mul.f16x2 %r1, %r2, %r3; max.f16x2 %r4, %r1, %r1; add.f16x2 %r6, %r4, %r5;",
)


@pytest.mark.parametrize("body", FUSED)
def test_fused(body):
    assert left(body) == FUSED[body]


def test_a_quotient_by_a_constant_is_a_product_by_its_reciprocal():
    """Rounded to nearest, as ptxas 12.8, 13.0 and 13.5 have it; the special function unit's is one unit more here."""
    assert left("div.full.f32 %f1, %f2, 0f3F3E68ED;") == ["mul.f32"]
    assert left("div.approx.ftz.f32 %f1, %f2, 0f3F3E68ED; add.ftz.f32 %f3, %f1, %f4;") == ["fma.rn.ftz.f32"]
    assert left("div.full.f32 %f1, %f2, 0f7E800001;") == ["div.full.f32"]
    text = f"{HEAD}{REGISTERS}rcp.approx.f32 %f1, 0f3F3E68ED; st.global.f32 [%a], %f1; ret; }}"
    function = contract(parse(text).functions["k"])
    assert function.body[0].operands[1].value == 0x3FAC1788


def test_wgmma_reads_its_results():
    """A product that it adds to is needed."""
    text = "mul.f32 %f1, %f2, %f3; add.f32 %f1, %f1, %f2; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 "
    text += "{%f1, %f4, %f5, %f6}, %d, %d, 1, 1, 1, 0, 0;"
    function = contract(
        parse(f"{HEAD}{REGISTERS}.reg .b64 %d; {text} ret; }}".replace("sm_80", "sm_90a")).functions["k"]
    )
    assert [i.opcode for i in function.body] == ["fma", "wgmma", "ret"]


def test_what_a_load_reads_is_needed():
    """Loads whose results nobody reads stay, for those who watch accesses; the address of one was dropped."""
    text = "mul.f32 %f1, %f2, %f3; add.u64 %a, %a, 8; setp.eq.u64 %p1, %a, 0; @%p1 ld.global.b32 %r1, [%a]; ret; }"
    function = contract(parse(HEAD + REGISTERS + text).functions["k"])
    assert [i.opcode for i in function.body] == ["add", "setp", "ld", "ret"]


def test_f32x2_fuses_and_turns_signs_by_bits():
    """As ptxas 13.4 and 13.5 have it for sm_100a."""
    text = f"{HEAD}.reg .b64 %x<6>; mul.f32x2 %x1, %x2, %x3; sub.f32x2 %x4, %x0, %x1; st.global.b64 [%x5], %x4; ret; }}"
    function = contract(parse(text.replace("sm_80", "sm_100a")).functions["k"])
    assert [i.mnemonic for i in function.body][:2] == ["xor.b64", "fma.rn.f32x2"]


def test_a_product_by_one_is_a_move():
    """A NaN keeps its bits: ptxas 12.8 to 13.5 have no instruction for it."""
    assert left("mul.f32 %f1, %f2, 0f3F800000;") == ["mov.b32"]
    assert left("mul.rn.f32 %f1, %f2, 0f3F800000;") == ["mul.rn.f32"]
    assert left("mul.f16x2 %r1, %r2, 0x3C003C00;") == ["mul.f16x2"]


@pytest.mark.parametrize("body", APART)
def test_kept_apart(body):
    parts = [part.replace("L:", "").split() for part in body.split(";") if "," in part]
    assert [m for m in left(body) if m != "bra"] == [p[1] if p[0].startswith("@") else p[0] for p in parts]
