"""Text that ptxas refuses is refused, text that it takes is not: operand types, names, targets."""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.errors import IllegalProgramError, ParseError, ProgramError

VERDICTS = [
    line.split() for line in (Path(__file__).parent / "ptxas_verdicts.txt").read_text().splitlines() if line[0] in "+-"
]
TEXT = ".version 8.6\n.target %s\n.address_size 64\n.visible .entry k() { %s ret; }\n"


TEXTS = [
    line.split(" ", 3)
    for line in (Path(__file__).parent / "ptxas_texts.txt").read_text().splitlines()
    if line[0] in "+-"
]


SPELLINGS = [
    line.split(" ", 2)
    for line in (Path(__file__).parent / "ptxas_spellings.txt").read_text().splitlines()
    if line[0] in "+-"
]
TYPES = {"r": "b32", "f": "f32", "d": "b64", "p": "pred", "h": "b16", "g": "f64", "q": "b128"}
REGISTERS = "".join(f".reg .{t} {name}<9>; " for name, t in TYPES.items())


def loads(text):
    try:
        nbtc.load(text)
    except IllegalProgramError:
        return False
    return True


def test_texts_as_ptxas_judges_them():
    """Instructions of compiled programs for targets and versions of the PTX ISA, half of them broken by one edit."""
    assert [v[0] for v in TEXTS].count("-") == len(TEXTS) // 2 == 150
    for verdict, target, version, body in TEXTS:
        text = f".version {version}\n.target {target}\n.address_size 64\n{body}\n"
        assert loads(text) == (verdict == "+"), (verdict, target, version, body)


@pytest.mark.parametrize(("verdict", "target", "instruction"), SPELLINGS)
def test_spellings_as_ptxas_judges_them(verdict, target, instruction):
    head = f".version 9.0\n.target {target}\n.address_size 64\n.visible .entry k() {{ .shared .align 16 .b8 s[64]; "
    try:
        good = loads(f"{head}{REGISTERS}{instruction} ret; }}")
    except ParseError:
        good = False
    assert good == (verdict == "+")


@pytest.mark.parametrize(
    ("good", "version", "instruction"),
    [
        (False, "9.0", "ld.volatile.local.u64 r, [x];"),
        (True, "9.1", "ld.volatile.local.u64 r, [x];"),
        (True, "9.1", "st.volatile.local.v2.u32 [x+8], {w, w};"),
        (False, "9.1", "ld.volatile.const.u64 r, [c];"),
        (False, "9.1", "ld.relaxed.cta.local.u64 r, [x];"),
    ],
)
def test_volatile_local_memory(good, version, instruction):
    """As ptxas 13.5 judges it; NVVM 13.5 writes it."""
    head = f".version {version}\n.target sm_90\n.address_size 64\n.const .align 8 .b64 c;\n"
    memory = ".local .align 8 .b8 x[16]; .reg .b64 r; .reg .b32 w;"
    assert loads(f"{head}.visible .entry k() {{ {memory} mov.u32 w, 1; {instruction} ret; }}") == good


@pytest.mark.parametrize(
    ("good", "first", "instruction"),
    [
        (True, "sm_90 9.4", "fence.proxy.alias.acquire.sys;"),
        (False, "sm_90 9.5", "fence.proxy.alias.acquire.gpu;"),
        (True, "sm_90 9.4", "fence.proxy.async::generic.release.sync_restrict::shared::cluster::read.cta;"),
        (False, "sm_90 9.5", "fence.proxy.async::generic.acquire.sync_restrict::shared::cluster::read.cta;"),
        (True, "sm_90 9.4", "prefetch.global.L1::32B.valid_addr [d];"),
        (False, "sm_90 9.5", "prefetch.global.L1.valid_addr [d];"),
        (True, "sm_90 9.5", "cp.async.bulk.wait_group.sync_restrict::proxy::async 0;"),
        (True, "sm_90 9.3", "mbarrier.init.layout::v0.shared.b64 [s], 1;"),
        (True, "sm_90 9.3", "mbarrier.try_wait.parity.phase_type::primary.acquire.cta.shared::cta.b64 p, [s], r;"),
        (True, "sm_90 9.3", "mbarrier.test_wait.phase_type::primary.relaxed.cluster.shared::cta.b64 p, [s], d;"),
        (True, "sm_120a 9.2", "add.sat.u16x2 r, r, r;"),
        (True, "sm_120f 9.2", "min.s8x4.relu r, r, r;"),
        (True, "sm_121a 9.2", "neg.s8x4 r, r;"),
        (False, "sm_120a 9.5", "neg.u8x4 r, r;"),
        (False, "sm_120a 9.5", "sub.u16x2 r, r, r;"),
        (False, "sm_110a 9.5", "add.u8x4 r, r, r;"),
        (True, "sm_103a 8.8", "tcgen05.ld.red.sync.aligned.32x32b.x2.f32.max.NaN.abs {r, t}, u, [r];"),
        (False, "sm_103a 9.5", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.abs.s32 {r, t}, u, [r];"),
        (False, "sm_100a 9.5", "tcgen05.ld.red.sync.aligned.32x32b.x2.min.f32 {r, t}, u, [r];"),
    ],
)
def test_words_of_newer_versions(good, first, instruction):
    """As ptxas 13.5 judges them: taken from a target and version on, and not by the version before."""
    target, version = first.split()
    before = f"{float(version) - 0.1:.1f}"
    body = f".shared .b64 s; .reg .b32 r, t, u; .reg .b64 d; .reg .pred p; {instruction} ret; }}"
    for v, verdict in ((version, good), (before, False)):
        text = f".version {v}\n.target {target}\n.address_size 64\n.visible .entry k() {{ {body}"
        assert nbtc.coverage(text).runs == verdict, v


@pytest.mark.parametrize(
    ("version", "target", "said"),
    [
        ("6.3", "sm_80", r"\.target sm_80 needs \.version 7\.0 or later, but the text says 6\.3"),
        ("8.6", "sm_120a", "8.7 or later"),
    ],
)
def test_a_target_that_the_version_does_not_name(version, target, said):
    with pytest.raises(IllegalProgramError, match=said):
        nbtc.load(f".version {version}\n.target {target}\n.address_size 64\n.visible .entry k() {{ ret; }}")


@pytest.mark.parametrize("body", [".reg .b32 a, a;", ".reg .b32 a<3>; .reg .b64 a1;", ".shared .b32 a; .reg .b32 a;"])
def test_names_are_declared_once_in_a_scope(body):
    with pytest.raises(ParseError, match="declared twice"):
        nbtc.load(TEXT % ("sm_90", body))
    nbtc.load(TEXT % ("sm_90", ".reg .b32 a; { .reg .b32 a; } { .reg .b64 a; }"))


def test_what_no_instruction_set_has_leaves_other_kernels_alone():
    good, bad = ".visible .entry good() { ret; }", ".visible .entry k() { frob.b32; ret; }"
    head = ".version 8.0 .target sm_90 .address_size 64 "
    nbtc.load(head + good + bad)["good"][1, 1]()
    with pytest.raises(IllegalProgramError, match="frob"):
        nbtc.load(head + bad)


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
        (".reg .b16 h; .reg .f32 f; cvt.rn.bf16.f32 h, f;", "sm_70", "needs sm_80 or later"),
        (".reg .b64 q; .shared .b32 s[4]; cp.async.ca.shared.global [s], [q], 4;", "sm_70", "needs sm_80 or later"),
        (".reg .b64 q; .shared .b32 s[4]; cp.async.cg.shared.global [s], [q], 8;", "sm_80", "is 8 and must be 16"),
        ("bra nowhere;", "sm_80", "nowhere is not declared: no label of this function"),
        ("wgmma.fence.sync.aligned;", "sm_80", "needs sm_90a"),
        (".reg .f32 f; tanh.approx.f32 f, f;", "sm_70", "needs sm_75 or later"),
        (".reg .b16 h; ex2.approx.ftz.bf16 h, h;", "sm_80", "needs sm_90 or later"),
    ],
)
def test_refused_with_the_rule(body, target, said):
    (use,) = nbtc.coverage(TEXT % (target, body))["k"].missing
    assert np.char.find(use.refused, use.form) == 0
    with pytest.raises(ProgramError, match=said):
        nbtc.load(TEXT % (target, body))["k"][1, 32]()
