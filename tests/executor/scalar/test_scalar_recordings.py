"""Scalar rows against what an H200 returned (driver 580.159.04): 32 inputs a form, NaN payloads included."""

import json
from pathlib import Path

import numpy as np
import pytest

from nbtc.testing.scalar_rows import RowCase, Rows, word
from tests.reference import REFERENCE

COUNT = 32
FILE = Path(__file__).resolve().parents[2] / "golden" / "scalar_rows_h200.npz"


def recordings():
    """Every case with its sources and results."""
    with np.load(FILE) as data:
        words = data["words"].reshape(-1, COUNT)
        cases = json.loads(data["cases"].tobytes())
    at = 0
    for text, selectors, constants, given in cases:
        case = RowCase(text, tuple(selectors), tuple((i, x) for i, x in constants), given)
        sources, results = len(case.sources), len(case.form.results)
        yield case, words[at : at + sources], words[at + sources : at + sources + results]
        at += sources + results


@pytest.mark.parametrize("part", range(4))
def test_an_h200_gave_the_same_bits(part):
    recorded = list(recordings())[part::12]  # a third of the forms: a compilation each
    rows = Rows([case for case, _, _ in recorded])
    wrong = []
    for i, (case, sources, expected) in enumerate(recorded):
        results = rows(i, [x.astype(word(kind)) for x, kind in zip(sources, case.sources, strict=True)])
        wrong += [case.text for x, y in zip(results, expected, strict=True) if (x != y.astype(x.dtype)).any()]
    assert wrong == []


@pytest.mark.parametrize(
    "text, quiet", [("cvt.f64.f64", 0), ("cvt.rni.f64.f64", 1 << 51)], ids=["a move", "an integral value"]
)
def test_signalling_nans_of_doubles(text, quiet):
    """As an H200 answered (driver 580.159.04)."""
    nans = [0x7FF0000000000002, 0xFFF0000000000001, 0x7FF8000000000003, 0x7FF4000000000000]
    given = np.resize(np.array(nans, np.uint64), COUNT)
    case = RowCase(text, (), (), 1)
    (found,) = Rows([case])(0, [given])
    np.testing.assert_array_equal(found, given | np.uint64(quiet))
    reference = [REFERENCE["cvt"](case.op, int(x)) for x in given]
    assert reference == [int(x) for x in found]


# of each type: inputs, and what abs and neg of either kind make of them
NANS = {
    "f32": {
        0x7F800001: 0x7FFFFFFF, 0xFF800001: 0x7FFFFFFF, 0x7FC12345: 0x7FFFFFFF, 0xFFC12345: 0x7FFFFFFF,
        0xFF812345: 0x7FFFFFFF, 0xFFFFFFFF: 0x7FFFFFFF,
    },
    "f64": {
        0x7FF0000000000001: 0x7FF8000000000001, 0xFFF0000000000001: 0xFFF8000000000001,
        0x7FF8000000012345: 0x7FF8000000012345, 0xFFF8000012345678: 0xFFF8000012345678,
        0xFFF0000012345678: 0xFFF8000012345678, 0x7FF4000000000000: 0x7FFC000000000000,
        0xFFFFFFFFFFFFFFFF: 0xFFFFFFFFFFFFFFFF,
    },
}  # fmt: skip
SIGNS = ("abs.f32", "neg.f32", "abs.ftz.f32", "neg.ftz.f32", "abs.f64", "neg.f64")


@pytest.mark.parametrize("text", SIGNS)
def test_signs_of_nans(text):
    """As an H200 answered (driver 580.159.04), which gave the same where the result was chosen, compared, negated once
    more, taken apart, added to an integer, or made under a guard."""
    case, nans = RowCase(text), NANS[text[-3:]]
    given = np.resize(np.array(list(nans), word(text[-3:])), COUNT)
    (found,) = Rows([case])(0, [given])
    assert found.tolist() == [nans[x] for x in given.tolist()]
    assert [REFERENCE[case.op.opcode](case.op, x) for x in given.tolist()] == found.tolist()


@pytest.mark.parametrize("text", ["neg.f64", "abs.f64"])
def test_nans_of_sums_keep_the_sign_that_was_turned_before(text):
    """As an H200 answered: its sums take negations and magnitudes in, but not those of a NaN."""
    nans = list(NANS["f64"].items())
    given = np.resize(np.array([x for x, _ in nans], np.uint64), COUNT)
    rows = Rows([RowCase(text), RowCase("add.rn.f64"), RowCase("fma.rn.f64")])
    (turned,), one = rows(0, [given]), np.full(COUNT, 0x3FF0000000000000, np.uint64)
    for found in (rows(1, [turned, one]), rows(2, [turned, one, one]), rows(2, [one, one, turned])):
        assert found[0].tolist() == np.resize(np.array([y for _, y in nans], np.uint64), COUNT).tolist()


OUT_OF_BOUNDS = {
    "fma.rn.oob.f16": [
        (0x7FF7, 0x7FFF, 0x8B13, 0), (0xFFF7, 0xF181, 0x67EE, 0), (0xFC00, 0x7FF7, 0x41E1, 0), (0x3C00, 0xFFF7, 1, 0),
        (0x13, 0x7C00, 0x7FFF, 0x7FFF), (0x3C00, 0x3C00, 0x7FF7, 0x7FFF), (0x35AC, 0xFFFF, 1, 0x7FFF),
    ],
    "fma.rn.oob.relu.bf16": [
        (0x02CE, 0xFFF7, 0x7487, 0), (0x7FF7, 0xBC00, 0x7194, 0), (0xFFF7, 0x7FFF, 0x7615, 0), (0, 0x7FF7, 0x7FFF, 0),
        (0x7FFF, 0x155B, 0xBC00, 0x7FFF), (9, 0xBC00, 0x7FFF, 0x7FFF),
    ],
}  # fmt: skip


@pytest.mark.parametrize("text", OUT_OF_BOUNDS)
def test_factors_from_outside_of_a_tensor(text):
    """Results of an H100 (driver 580.159.04), which agrees with the rule for 65,536 values of each operand."""
    *given, expected = np.array(OUT_OF_BOUNDS[text], np.uint16).T
    (found,) = Rows([RowCase(text)])(0, [np.resize(x, COUNT) for x in given])
    np.testing.assert_array_equal(found, np.resize(expected, COUNT))
