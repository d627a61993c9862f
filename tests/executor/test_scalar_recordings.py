"""Scalar rows against what an H200 returned (driver 580.159.04): 32 inputs a form, NaN payloads included."""

import json
from pathlib import Path

import numpy as np
import pytest

from nbtc.testing.reference import REFERENCE
from nbtc.testing.scalar_rows import Case, Rows, word

COUNT = 32
FILE = Path(__file__).resolve().parents[1] / "golden" / "scalar_rows_h200.npz"


def recordings():
    """Every case with its sources and results."""
    with np.load(FILE) as data:
        words = data["words"].reshape(-1, COUNT)
        cases = json.loads(data["cases"].tobytes())
    at = 0
    for text, selectors, constants, given in cases:
        case = Case(text, tuple(selectors), tuple((i, x) for i, x in constants), given)
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
    case = Case(text, (), (), 1)
    (found,) = Rows([case])(0, [given])
    np.testing.assert_array_equal(found, given | np.uint64(quiet))
    reference = [REFERENCE["cvt"](case.op, int(x)) for x in given]
    assert reference == [int(x) for x in found]
