"""PTX text to frozen data."""

import pytest

import nbtc
from nbtc.errors import FormatError, ParseError, ProgramError, SourceError
from nbtc.executor.text.data import (
    Address,
    Generic,
    Guard,
    Immediate,
    Masked,
    Not,
    Pair,
    Register,
    Selected,
    Symbol,
    Vector,
)
from nbtc.executor.text.parse import parse

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"


def body(text, params=""):
    return parse(f"{HEAD}.visible .entry k({params}) {{ {text} }}").functions["k"]


def operands(text):
    registers = ".reg .b32 %r<9>; .reg .pred %p<4>; .reg .f32 %f<4>; .reg .v2 .u32 %v; .reg .b64 %rd<4>;"
    return body(registers + text).body[0].operands


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4", Immediate(4)),
        ("-4", Immediate(-4)),
        ("0x1F", Immediate(31)),
        ("017", Immediate(15)),
        ("0b101U", Immediate(5)),
        ("(1 << 4) + 3 * 2", Immediate(22)),
        ("-7 / 2", Immediate(-3)),
        ("0f3F800000", Immediate(0x3F800000, 32)),
        ("-0d3FF0000000000000", Immediate(0xBFF0000000000000, 64)),
        ("--1.5", Immediate(0x3FF8000000000000, 64)),
        ("0d3FF0000000000000", Immediate(0x3FF0000000000000, 64)),
        ("1.5", Immediate(0x3FF8000000000000, 64)),
        ("15.", Immediate(0x402E000000000000, 64)),  # ptxas 13.0 takes numbers without digits on one side
        (".5", Immediate(0x3FE0000000000000, 64)),
        ("-5.E-1", Immediate(0xBFE0000000000000, 64)),
    ],
)
def test_literals(text, value):
    assert operands(f"mov.b32 %r1, {text};")[1] == value


def test_bits_of_a_single_have_their_own_sign():
    with pytest.raises(ParseError, match="have their own sign"):
        operands("mov.b32 %r1, -0f3F800000;")


def test_operands():
    r1, p1, p2 = Register("%r1", "b32"), Register("%p1", "pred"), Register("%p2", "pred")
    assert operands("setp.eq.and.s32 %p1|%p2, %r1, 5, !%p1;") == (Pair(p1, p2), r1, Immediate(5), Not(p1))
    assert operands("mov.b64 %rd1, {%r1, _};")[1].elements[0] == r1
    assert operands("ld.global.u32 %r1, [%rd1+-8];")[1] == Address(Register("%rd1", "b64"), -8)
    assert operands("vadd.s32.s32.s32 %r1, %r2.b1, -%r1;")[1:] == (
        Selected(Register("%r2", "b32"), "b1"),
        Selected(r1, "-"),
    )
    assert operands("mov.u32 %r1, %v.y;")[1] == Register("%v.1", "u32")
    assert isinstance(operands("ld.shared.v2.u32 {%r1, %r2}, [%rd1];")[0], Vector)


def test_guards_lines_and_sources():
    k = body(".reg .pred p; .loc 1 7 3\n@!p ret;").body[0]
    assert k.guard == Guard(Register("p", "pred"), True)
    assert k.source is not None and k.source.line == 7
    assert k.line == 5


def test_inner_scopes_hide_outer_names_and_labels():
    k = body(".reg .b32 x; { .reg .b32 x; L: mov.b32 x, 1; bra L; } { L: bra L; } mov.b32 x, 2; ret;")
    inner, first, second, outer, _ = k.body
    assert inner.operands[0] != outer.operands[0]
    assert k.labels[first.operands[0].name] == 0
    assert k.labels[second.operands[0].name] == 2


def test_module_variables_with_initialisers():
    m = parse(
        HEAD + ".global .align 8 .u64 a[2] = {generic(b)+8, b}; .const .f32 b[] = {1.0, 0f40000000};"
        ".global .u8 c[2] = {0xFF(b), 0xFF00(b)};"
    )
    assert m.variables["a"].initial == (Generic("b", 8), Symbol("b"))
    assert m.variables["b"].length == 2
    assert m.variables["c"].initial[1] == Masked(0xFF00, Symbol("b"))


def test_functions_and_prototypes():
    m = parse(
        HEAD + ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);"
        ".func (.reg .b32 r) f(.reg .b32 x) { mov.b32 r, x; ret; }"
        ".visible .entry k(.param .align 8 .b8 s[24]) .maxntid 32, 2, 1 .minnctapersm 1 { .reg .b64 t; .reg .b32 y;"
        " P: .callprototype (.param .b32 _) _ (.param .b32 _); call (y), f, (y); call t, (y), P; ret; }"
    )
    assert m.functions["vprintf"].body is None
    assert m.functions["k"].directives["maxntid"] == (32, 2, 1)
    assert m.functions["k"].prototype.arguments[0].bytes == 24
    assert "P" in m.functions["k"].prototypes


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("int main() {}", "begins with .version"),
        (HEAD + ".visible .entry k() { mov.b32 %r1 }", "',' or ';' should stand here"),
        ("", "this text is empty, which is not PTX"),
        ("int main() {}", "this text begins with 'int', which is not PTX"),
        (HEAD + ".visible .entry k() { ret;", "never ends"),
        (HEAD + "/* never closed", "never ends"),
        (HEAD + ".global .u32 x = " + "9" * 5000 + ";", "digits"),
        (HEAD + ".visible .entry k() { L: L: ret; }", "stands twice"),
        (".version 8.0 .target sm_80 .address_size 32", "64-bit"),
        (HEAD + ".visible .entry k() { ret; \x01 }", "token"),
    ],
)
def test_broken_text_is_refused_with_its_line(text, said):
    with pytest.raises(ParseError, match=said):
        parse(text)


def test_a_strong_definition_counts_among_weak_ones():
    """As linkers have it: compilers write a function into every module that needs it."""
    weak, other, strong = (f"{word} .func f() {{ {op}; ret; }}\n" for word, op in (
        (".weak", "bar.sync 0"), (".weak", "membar.gl"), (".visible", "membar.cta"),
    ))  # fmt: skip

    def first(*parts):
        return parse(HEAD + "".join(parts)).functions["f"].body[0].opcode

    assert first(weak, other) == "bar" and first(weak, ".extern .func f();\n") == "bar"
    assert parse(HEAD + weak + strong + other).functions["f"].body[0].modifiers[-1] == "cta"
    assert parse(HEAD + strong + weak).functions["f"].body[0].modifiers[-1] == "cta"
    with pytest.raises(ParseError, match="f is defined twice"):
        parse(HEAD + weak + strong + strong)


@pytest.mark.parametrize("source", ["foo", "no/such/file.ptx", "foo\0", "."])
def test_what_is_no_file_is_refused_by_rule(source):
    with pytest.raises(SourceError, match=r"neither PTX, which begins with .version, nor the path of a file") as error:
        nbtc.load(source)
    assert isinstance(error.value, FileNotFoundError)
    with pytest.raises(SourceError):
        nbtc.coverage(source)


def test_what_is_no_text_is_refused():
    with pytest.raises(FormatError, match="pass its text, or the path"):
        nbtc.load(3)


def test_an_unknown_instruction_is_named_at_the_launch_of_a_kernel_that_reaches_it():
    """Before anything runs, with kernel and line; other kernels of the module are not disturbed."""
    module = nbtc.load(f"""{HEAD}.global .u32 seen;
        .visible .entry bad() {{ .reg .b32 r; mov.u32 r, 1; st.global.u32 [seen], r;
        frob.u32 r, r;
        ret; }}
        .visible .entry good() {{ ret; }}""")
    with pytest.raises(ProgramError, match=r"^bad: line 6: frob.u32: no instruction of this name is implemented$"):
        module["bad"][1, 32]()
    assert not module.globals["seen"].any() and "unseen" not in module.globals
    with pytest.raises(KeyError, match="'unseen' is no variable of this module; variables: seen"):
        module.globals["unseen"]
    module["good"][1, 32]()


def test_white_space_before_modifiers():
    """As CUTLASS writes inline assembly for products of fp8 by int4."""
    spaced, close = (
        body(f".reg .b32 %r<4>; {name} %r0, %r1, %r2, %r3, 106;").body[0] for name in ("lop3 .b32", "lop3.b32")
    )
    assert spaced == close
    (load,) = body(".reg .b32 %r<4>; .reg .b64 %a; ld .global\n .v2.u32 {%r0, %r1}, [%a];").body
    assert load.mnemonic == "ld.global.v2.u32"


@pytest.mark.parametrize(
    "contents",
    [
        ".b8 1 // a name\n.b8 2,\n 3\n.b64 $L__x",
        "{ .b8 1 } .b8 2\n\n",  # as no compiler writes it
        '.b8 1 // "}" in a comment, and /* \n.b8 2\n',
        '/* } */ .b8 1 "}"\n\n',
    ],
)
def test_sections_are_left_out_and_lines_counted(contents):
    kernel = ".visible .entry k() {\n ret; }"
    text = f"{HEAD}.section .debug_str\n{{\n{contents}\n}}\n{kernel}\n.section .debug_abbrev {{ }}\n"
    assert parse(text).functions["k"].body[0].line == text[: text.index("ret")].count("\n") + 1


def test_a_section_that_does_not_end():
    with pytest.raises(ParseError):
        parse(f"{HEAD}.section .debug_str {{ .b8 1")
