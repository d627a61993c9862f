"""Every row as PTX text: its line reads back as the row, and ptxas, where it is installed, assembles it."""

from collections import defaultdict

import pytest

from nbtc.instructions import instructions
from nbtc.isa import inline
from nbtc.isa.parse import line
from nbtc.numerics.dpx import ROWS as DPX
from tests.isa.assembler import needs_ptxas, refusal

ROWS = {i.mnemonic: i.row for i in instructions()}
TOGETHER = 100  # instructions of a kernel
VERSION = "9.2"  # of the PTX ISA, the oldest that has every row


def lines(row):
    """The instruction with each of its operand lists that leave nothing out."""
    whole = [i for i, a in enumerate(row.syntax) if not any(b.startswith(f"{a} ") for b in row.syntax)]
    return [(inline.operands(row, i), inline.text(row, syntax=i)) for i in whole]


@pytest.mark.parametrize("family", sorted({r.family for r in ROWS.values()}))
def test_every_line_reads_back(family):
    for row in ROWS.values():
        if row.family == family:
            for registers, text in lines(row):
                assert line(text, row.version or "9.0").row.mnemonic == row.mnemonic
                for r in registers:
                    assert all(name in text for name in r.names), text


def test_registers_of_some_forms():
    def types(mnemonic):
        return {r.name: (r.type, r.count, r.result) for r in inline.operands(ROWS[mnemonic])}

    assert types("cvt.rn.satfinite.e4m3x2.f32") == {
        "d": ("b16", 1, True),
        "a": ("b32", 1, False),
        "b": ("b32", 1, False),
    }
    assert types("match.all.sync.b64") == {
        "d": ("b32", 1, True), "p": ("pred", 1, True), "a": ("b64", 1, False), "mask": ("b32", 1, False),
    }  # fmt: skip
    assert types("wmma.store.d.sync.aligned.row.m8n8k4.f64")["r"] == ("b64", 2, False)


def module(target, texts):
    head = [f".version {VERSION}", f".target {target}", ".address_size 64", ".visible .entry k() {"]
    return "\n".join([*head, *texts, "ret; }"])


def scope(registers, text):
    """An instruction with its registers in a scope of their own."""
    declared = {r.name: r.declaration for r in registers}
    return f"{{ {' '.join(declared.values())} {text} }}"


def by_target():
    """Rows by the oldest target that has them of those that assemblers know (from sm_75), pairs of blocks apart."""
    found = defaultdict(list)
    for row in ROWS.values():
        if not row.family.startswith("wgmma.mma") or row.shape[1] in (
            8,
            24,
            256,
        ):  # of the widths the ends and one more
            target = row.min_arch if row.since >= 75 else "sm_75"
            pair = "cta_group::2" in row.mnemonic  # a kernel works by single blocks or by pairs
            found[target, pair] += [scope(*given) for given in lines(row)]
    return found


@needs_ptxas
def test_ptxas_takes_every_row():
    if "Unsupported .version" in refusal(module("sm_80", []), "sm_80"):
        pytest.skip(f"this ptxas is older than PTX {VERSION}")
    for (target, _), texts in by_target().items():
        for start in range(0, len(texts), TOGETHER):
            some = texts[start : start + TOGETHER]
            assert refusal(module(target, some), target) == "", target


@pytest.mark.parametrize("name", DPX)
def test_dpx_functions_are_lines_of_known_instructions(name):
    text, predicates = inline.dpx_text(name)
    assert (
        text.endswith(";") and text.count("d0") == 1 and predicates == (0 if "vib" not in name else 1 + ("x2" in name))
    )


@needs_ptxas
def test_ptxas_takes_every_kernel_of_the_comparison():
    """One of each family of `nbtc verify --hw`, and of wgmma each kind."""
    from nbtc.isa.archs import target
    from nbtc.verify.hardware.families import FAMILIES, PROGRAMS
    from nbtc.verify.hardware.trial import whole_text

    for family, make in FAMILIES.items():
        trials = list(make(target("sm_90a"))) if family != PROGRAMS else []
        for trial in trials[:: max(1, len(trials) // 12)]:
            assert refusal(whole_text(trial.body, "sm_90a"), "sm_90a") == "", trial.form
