"""Rows and their names."""

import itertools

import pytest

from nbtc.executor.emit.form import WIDTHS, Form, slots
from nbtc.executor.rows import forms, uses
from nbtc.executor.rows.spelling import modifiers_of

ROWS = [form for table in forms.TABLES for form in table]


def texts(form: Form) -> list[str]:
    """Every name a row answers to."""
    return [".".join((form.opcode, *filter(None, choice))) for choice in itertools.product(*form.slots)]


def test_each_row_is_found_by_each_of_its_names():
    for form in ROWS:
        for text in texts(form):
            found, op = forms.find(text)
            assert found == form, text
            assert op.text == text


def test_operands_have_types():
    assert all(t in WIDTHS for form in ROWS for t in (*form.sources, *form.results))


@pytest.mark.parametrize("text", ["add.rn.s32", "mul.s32", "add.s32.sat", "add", "mad.wide.s64", "add.sat.sat.s32"])
def test_what_no_row_names_is_refused_by_name(text):
    assert forms.find(text) is None
    assert uses.refusal(text).startswith(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("frob.u32", "no instruction of this name is implemented"),
        ("mull.wide.u32", "is implemented; did you mean mul?"),
        ("ldmatirx.sync", "is implemented; did you mean ldmatrix?"),
        ("sured.b.add.2d.u32.trap", "reductions on surfaces are not emulated"),
        ("atom.global.foo.u32", "atom has no such form"),
        ("wgmma.fence.aligned.sync", "these modifiers in this order; it takes .fence"),
        ("mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32", "'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'"),
    ],
)
def test_a_refusal_names_what_is_near(text, said):
    assert said in uses.refusal(text)


def test_slots():
    assert slots("lo|hi", "sat?", "rn|rz?", "s32") == (("lo", "hi"), ("sat", ""), ("rn", "rz", ""), ("s32",))


@pytest.mark.parametrize(
    "text",
    [
        "cvt.rn.f32.f16",  # nothing to round, and no cvt.rn.f16.f32 with its types exchanged
        "cvt.f16.f32",
        "set.lt.f16.bf16",
        "cvt.sat.u16.u8",  # all values fit
        "cvt.rn.sat.bf16.f32",
        "red.acquire.gpu.global.add.u32",  # what gives no value can't acquire
        "red.global.min.noftz.f16",  # vectors alone
        "atom.global.cas.L2::cache_hint.b32",
        "mov.v4.b64",  # more than 128 bits
        "selp.f16",
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.inc.s64",
    ],
)
def test_what_ptxas_refuses(text):
    opcode, *modifiers = text.split(".")
    assert uses.row_of(".".join((opcode, *modifiers_of(opcode, tuple(modifiers))))) is None
