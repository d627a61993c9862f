"""Recorded inputs through PTX text: a few forms of each kind; NBTC_GOLDEN names a folder of which all are replayed."""

import os
from itertools import islice

import numpy as np
import pytest

from nbtc.errors import OptionError
from nbtc.testing import raw_bits
from nbtc.verify import sets, through_ptx, verify

STEPS = {
    "mma": 33,
    "mma.sp": 60,
    "wgmma": 43,
    "wmma": 30,
    "move": 5,
    "cvt": 13,
    "dpx": 11,
    "warp": 17,
    "descriptors": 4,
}


@pytest.fixture(scope="module")
def recorded():
    return {name: (groups, index) for name, groups, index in sets(None)}


@pytest.mark.parametrize("kind", through_ptx.CALLS)
def test_programs_give_the_recorded_words(kind, recorded):
    groups, index = recorded[kind]
    chosen = {name: groups[name] for name in islice(groups, 1, None, STEPS[kind])}
    if kind == "cvt":
        chosen["in"] = groups["in"]
    replayed = list(through_ptx.cases(kind, chosen, index))
    assert replayed
    for case in replayed:
        np.testing.assert_array_equal(raw_bits(case.call()), raw_bits(case.want), case.form)


@pytest.mark.parametrize("rounding", ["rz", "rm", "rp"])
def test_double_precision_rounds_as_its_form_says(rounding, recorded):
    """The sums of a whole product must not leave the rounding mode that is set around them."""
    groups, index = recorded["mma"]
    (name,) = list(islice((g for g in groups if f"m16n8k16_f64_{rounding}" in g), 1))
    (case,) = through_ptx.cases("mma", {name: groups[name]}, index)
    np.testing.assert_array_equal(raw_bits(case.call()), raw_bits(case.want))


def test_every_kind_of_instruction_is_replayed(recorded):
    assert set(recorded) - set(through_ptx.CALLS) == {"matmul", "wmma maps"}


def test_a_wrong_word_is_found(recorded):
    groups, index = recorded["move"]
    name = "movmatrix"
    changed = {**groups[name], "out": groups[name]["out"] ^ np.uint32(1)}
    (case,) = through_ptx.cases("move", {name: changed}, index)
    assert (case.call() != case.want).all()


def test_wrong_use():
    with pytest.raises(OptionError, match="through"):
        next(verify(None, through="magic"))


@pytest.mark.skipif("NBTC_GOLDEN" not in os.environ, reason="no folder of recordings")
def test_a_folder():
    for report in verify(os.environ["NBTC_GOLDEN"], through="ptx"):
        assert report.ok, report.failures[:3]
