"""Completeness: every form an assembler accepts resolves to its row, and every line it rejects raises."""

import json
import lzma
import re
from pathlib import Path

import pytest

from nbtc.errors import NbtcError, OptionError, ParseError, ShapeError, UnsupportedInstructionError
from nbtc.instructions import Instruction, instruction, instructions
from nbtc.isa import lines, parse
from nbtc.isa.archs import ARCHS, arch

FORMS = json.loads(lzma.decompress((Path(__file__).parents[1] / "golden" / "forms.json.xz").read_bytes()))
LEGAL, REJECTED = FORMS["legal"], FORMS["rejected"]
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"


def mnemonic(line):
    return line.split(" ")[0].rstrip(";")


def sizes(example, n):
    """The example itself, or its mnemonic with every legal n."""
    return [mnemonic(example)] if n is None else [re.sub(r"m64n\d+k", f"m64n{v}k", mnemonic(example)) for v in n]


def test_the_list_is_whole():
    assert len(LEGAL) == 908 and len(REJECTED) > 500


@pytest.mark.parametrize("family", sorted({e[0] for e in LEGAL}))
def test_every_legal_form_resolves(family):
    for _, example, registers, target, n, selectors in (e for e in LEGAL if e[0] == family):
        found = instruction(example)
        assert found.row is instruction(mnemonic(example)).row, example
        for name in sizes(example, n):
            i = instruction(name)
            assert i.min_arch == target and i.family == family, name
            assert instruction(i.mnemonic) is i
            assert i.row.selectors == tuple(selectors or ()), name
            check_registers(i, registers)


def check_registers(i, registers):
    for letter, count in registers.items():
        if count == "desc64":
            continue
        operand = getattr(i, "a" if letter == "s" else letter)
        words = i.shape[1] // int(count[2:]) if isinstance(count, str) else count
        assert operand.registers == words * (2 if operand.format.bits == 64 else 1), (i, letter)


def test_nothing_but_the_list_is_there():
    """Rows beyond the list: two roundings of cvt to f16, forms newer than its assembler, and tcgen05."""
    listed = {name for _, example, _, _, n, _ in LEGAL for name in sizes(example, n)}
    extra = {r.mnemonic for r in parse.rows() if ".shared" not in r.mnemonic} - {
        re.sub(r"\.shared", "", x) for x in listed
    }
    extra = {x for x in extra if not x.startswith(("tcgen05.mma", "cvt.rs")) and not parse.row(x).version}
    later = r"cvt\.rn(\.satfinite)?(\.relu)?\.(b?f16x2\.e2m1|bf16x2\.e[2-5]m[23]|e2m1x2\.b?f16|e[23]m[23]x2\.b?f16)x2"
    assert {x for x in extra if not re.fullmatch(later, x)} == {"cvt.rm.f16.f32", "cvt.rp.f16.f32"}


def test_every_rejected_line_raises():
    for line in REJECTED:
        with pytest.raises(ParseError) as error:
            instruction(line)
        assert len(str(error.value)) >= 40


def test_every_row_prints_a_line_that_parses_to_it():
    for row in parse.rows():
        line = lines.example(row).replace("...", ", ".join(f"d{i}" for i in range(1, 400)))
        if "..." not in lines.example(row):
            assert parse.line(line, row.version or "9.0").row is row, line


SPELLINGS = [
    ("mma.sync.row.col.m16n8k16.f32.f16.f16.f32", F16),
    ("mma.sync.m16n8k16.row.col.f32.f16.f16.f32", F16),
    (
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32.satfinite",
        "mma.sync.aligned.m8n8k16.row.col.satfinite.s32.s8.s8.s32",
    ),
    ("mma.sync.aligned.m8n8k4.row.col.rz.f64.f64.f64.f64", "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64.rz"),
    ("wmma.mma.sync.m16n16k16.row.col.f32.f32", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"),
    (
        "wmma.mma.sync.aligned.row.col.m8n8k4.f64.f64.f64.f64.rn",
        "wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64",
    ),
    ("wmma.load.a.sync.aligned.m16n16k16.row.shared::cta.f16", "wmma.load.a.sync.aligned.row.m16n16k16.f16"),
    ("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", "ldmatrix.sync.aligned.m8n8.x4.trans.b16"),
    (
        "wgmma.mma_async.sync.aligned.m64n8k32.satfinite.s32.s8.u8",
        "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.u8.satfinite",
    ),
    ("cvt.rn.satfinite.relu.f16.f32", "cvt.rn.relu.satfinite.f16.f32"),
    ("@!%p1 movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2; // t", "movmatrix.sync.aligned.m8n8.trans.b16"),
    ("shfl.sync.idx.b32 %r1|%p, %r2, 3, 0x1f, -1;", "shfl.sync.idx.b32"),
    ("wmma.load.a.sync.aligned.row.m16n16k16.s8 {%0, %1}, [%rd1+16], 64;", "wmma.load.a.sync.aligned.row.m16n16k16.s8"),
]


@pytest.mark.parametrize(("text", "canonical"), SPELLINGS)
def test_spellings(text, canonical):
    assert instruction(text).mnemonic == canonical


BAD = [
    F16 + " {d0,d1,d2,d3}, {a0,a1,a2,a3}, {b0,b1}",
    F16 + " {d0,d1,d2,d3}, {a0,a1,a2}, {b0,b1}, {c0,c1,c2,c3};",
    F16 + " {d0,d1,d2,d3}, {a0,a1,a2,a3}, {b0,b1}, {c0,c1,c2,c3}, e;",
    F16 + " {d0,d1,d2,d3}, {a0,a1,a2,a3}, {b0,1}, {c0,c1,c2,c3};",
    F16 + ";",
    F16 + " {d0,d1,d2,d3}, , {b0,b1}, {c0,c1,c2,c3};",
    "mma.sync.aligned.m16n8k16.f32.f16.f16.f32.row.col",
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32.f32",
    "mma.sync.aligned.sync.m16n8k16.row.col.f32.f16.f16.f32",
    "sync.mma.m16n8k16.row.col.f32.f16.f16.f32",
    "shfl.sync.aligned.idx.b32",
    "ldmatrix.sync.aligned.m8n8.x4.global.b16",
    "mma",
    "mma.sp",
    "hmma.16816.f32",
    "",
    "   ;",
    "two words without sense",
    "movmatrix.sync.aligned.m8n8.trans.b16 d, a; d, a;",
    "wgmma.wait_group.sync.aligned n;",
    "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {d0,d1,d2,d3}, da, db, 2;",
]


@pytest.mark.parametrize("text", BAD)
def test_bad_text_says_what_would_work(text):
    with pytest.raises(ParseError) as error:
        instruction(text)
    message = str(error.value)
    assert len(message) >= 40
    quoted = re.findall(r"[\"']([a-z][\w.:]+\.[\w.:]+)", message)
    assert any(works(q) for q in quoted), message


def works(text):
    try:
        return parse.mnemonic(text) is not None
    except NbtcError:
        return False


def test_the_nearest_form_is_near():
    cases = {
        "wgmma.mma_async.sync.aligned.m64n184k32.s32.s8.s8": "wgmma.mma_async.sync.aligned.m64n176k32.s32.s8.s8",
        "mma.sync.aligned.m16n8k8.col.row.f32.f16.f16.f32": "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32": "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32",
        "cvt.rn.e4m3x2.f32": "cvt.rn.satfinite.e4m3x2.f32",
    }
    for wrong, near in cases.items():
        with pytest.raises(ParseError, match=re.escape(repr(near))):
            instruction(wrong)


def test_not_text():
    for x in (None, 7, b"mma", ["mma"]):
        with pytest.raises(ParseError, match="is not text"):
            instruction(x)


def test_queries():
    assert {i.family for i in instructions(arch="sm_70")} >= {"mma", "wmma.load", "wmma.mma", "wmma.store", "shfl.sync"}
    assert not instructions(arch="sm_100", family="wgmma.mma_async")
    assert len(instructions(arch="sm_90a", family="wgmma.mma_async")) == 546
    assert [i.mnemonic for i in instructions(a="tf32", shape="m16n8k8", family="mma")] == [
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
    ]
    assert {i.row.op for i in instructions(a="b1", family="mma", op="and")} == {"and"}
    assert {i.executable for i in instructions(a="e2m1", sparse=False)} == {True}
    assert all(not i.executable for i in instructions(a="e2m1", sparse=True))
    assert instructions(shape=(16, 8, 16), a="f16", d="f16", sparse=True, ordered=True, family="mma.sp")
    for wrong in ({"family": "nma"}, {"shape": "16x8"}, {"colour": 3}):
        with pytest.raises(OptionError):
            instructions(**wrong)


def test_an_arch_without_the_form_says_which_have_it():
    with pytest.raises(UnsupportedInstructionError, match=r"sm_75 has no .* it exists on sm_80, .*sm_121"):
        parse.row(F16).on(arch("sm_75"))
    with pytest.raises(UnsupportedInstructionError, match=r"exists on sm_90: pass arch=\"sm_90\""):
        parse.row("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16").on(arch("sm_100"))
    assert parse.row(F16).on(arch("sm_90a")) is instruction(F16).row


def test_sm_7x_fragments_are_known_or_refused():
    plain = parse.row("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    assert plain.on(arch("sm_70")).a.layout != plain.a.layout
    for text in ("wmma.mma.sync.aligned.row.col.m32n8k16.f32.f32", "wmma.load.a.sync.aligned.row.m16n16k16.s8"):
        with pytest.raises(UnsupportedInstructionError, match="is not known"):
            parse.row(text).on(arch("sm_72"))


def test_rows_without_arithmetic_refuse_to_run():
    i = instructions(a="e2m1", family="mma.sp")[0]
    with pytest.raises(UnsupportedInstructionError, match="no recorded arithmetic"):
        i(None, None, None, arch="sm_120")
    with pytest.raises(UnsupportedInstructionError, match=r"use nbtc\.ptx\.ldmatrix"):
        instruction("ldmatrix.sync.aligned.m8n8.x4.b16")(None, None, None)


def test_instructions_are_values():
    import copy
    import pickle

    i = instruction(F16)
    assert pickle.loads(pickle.dumps(i)) is i and copy.copy(i) == i and {i: 1}[instruction(F16)] == 1
    assert instruction(i) is i and isinstance(i, Instruction) and repr(i).endswith(F16 + ">")
    assert i.ptx == F16 + " {d0, d1, d2, d3}, {a0, a1, a2, a3}, {b0, b1}, {c0, c1, c2, c3};"


def test_rows_check_themselves():
    from dataclasses import replace

    row = instruction(F16).row
    with pytest.raises(ShapeError, match="do not fill"):
        replace(row.a, registers=3)
    with pytest.raises(ShapeError, match=r"does not cover|outside of"):
        replace(row.a, layout=row.b.layout.repeated(8))
    with pytest.raises(ShapeError, match="operand a is"):
        replace(row, shape=(16, 8, 8))
    with pytest.raises(ShapeError, match="min_arch"):
        replace(row, min_arch="90")


def test_architecture_names_cover_every_target():
    for _, _, _, target, _, _ in LEGAL:
        assert arch(target).name in ARCHS


def test_a_line_gives_its_operands():
    line = parse.line("@p mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r0, %r1}, {%r2}, %r3, {%r4, %r5};")
    assert line.guard == "p"
    assert line.operands == (("d", "{%r0, %r1}"), ("a", "{%r2}"), ("b", "%r3"), ("c", "{%r4, %r5}"))
