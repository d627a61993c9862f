"""Scalar rows against Python integers: a few names of every row here, all of them in `tests/tools/scalar_soak.py`."""

from itertools import islice

import numpy as np
import pytest

from nbtc.executor.rows import forms
from nbtc.testing.scalar_inputs import cases
from nbtc.testing.scalar_rows import RowCase, Rows
from tests.reference.scalar_check import differences

# those that no text can spell have tests of their own
EXACT = [form for table in forms.TABLES for form in table if not form.evidence and "%" not in form.opcode]


def sample(opcode, rng):
    """At most one name of each row of an opcode, at most forty of them."""
    rows = [form for form in EXACT if form.opcode == opcode]
    found = []
    for form in rng.permutation(np.arange(len(rows)))[:40]:
        names = list(islice(cases(rows[form], rng), 500))
        found.append(names[rng.integers(len(names))])
    return found


@pytest.mark.parametrize("opcode", sorted({form.opcode for form in EXACT}))
def test_rows_give_the_reference_bits(opcode):
    rng = np.random.default_rng(list(opcode.encode()))
    assert [str(d) for d in differences(sample(opcode, rng), rng, 192)] == []


def test_one_scalar_gives_what_a_vector_gives():
    rng = np.random.default_rng(7)
    names = [next(iter(sample(opcode, rng))) for opcode in sorted({form.opcode for form in EXACT})]
    assert [str(d) for d in differences(names, rng, 64, lanes=None)] == []


def test_every_permutation_control_as_a_constant():
    rng = np.random.default_rng(8)
    controls = [int(c) for c in rng.integers(0, 1 << 16, 24)]
    names = [RowCase("prmt.b32", constants=((2, c),)) for c in controls]
    names += [
        RowCase(f"prmt.b32.{m}", constants=((2, c),))
        for m in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
        for c in range(4)
    ]
    assert [str(d) for d in differences(names, rng, 32)] == []


def test_constant_shifts_and_fields():
    rng = np.random.default_rng(9)
    names = [RowCase(f"{op}.b32", constants=((1, n),)) for op in ("shl", "shr") for n in (0, 1, 31, 32, 40)]
    names += [RowCase("shr.s32", constants=((1, n),)) for n in (0, 31, 32, 255)]
    names += [RowCase("bfe.s32", constants=((1, p), (2, n))) for p in (0, 5, 31, 33) for n in (0, 1, 8, 32, 300)]
    names += [RowCase("bfi.b64", constants=((2, p), (3, n))) for p in (0, 5, 63, 70) for n in (0, 1, 8, 64, 300)]
    assert [str(d) for d in differences(names, rng, 64)] == []


@pytest.mark.parametrize("modifiers", ["", ".ftz", ".sat", ".ftz.sat"])
def test_products_by_powers_of_two_are_rounded_once(modifiers):
    rng = np.random.default_rng(10)
    powers = [sign | (0x3F800000 + (k << 23)) for k in (-3, -2, -1, 1, 2, 3) for sign in (0, 1 << 31)]
    names = [RowCase(f"mul%scaled{modifiers}.f32", constants=((2, c),)) for c in powers]
    assert [str(d) for d in differences(names, rng, 192)] == []


def test_arrays_of_other_lengths_are_refused():
    rows = Rows([RowCase("add.u32")])
    with pytest.raises(ValueError, match="multiple of 32"):
        rows(0, [np.zeros(31, np.uint32)] * 2)
    with pytest.raises(LookupError, match="ftz"):
        Rows([RowCase("add.ftz.u32")])
