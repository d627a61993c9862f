"""Checked mode: seeded hazards are found, the same programs without them are not reported."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from tests.executor.hazard_programs import WORDS, hazards

HAZARDS = tuple(hazards())
# kinds whose reports name two accesses, by the line of each
TWO = ("shared_races", "global_races", "cp_async", "bulk_copies", "proxy_fences", "products")


def launch(hazard, repaired):
    kernel = nbtc.load(hazard.text(repaired))["k"]
    arrays = np.zeros(WORDS, np.int32), np.zeros(WORDS, np.int32)
    kernel.launch(hazard.grid, hazard.block, arrays, checked=True, timeout=600)


def test_there_are_five_or_more_of_each_kind():
    kinds = Counter(h.kind for h in HAZARDS)
    assert min(kinds.values()) >= 5
    assert len(kinds) >= 12


@pytest.mark.parametrize("hazard", HAZARDS, ids=lambda h: f"{h.kind} {h.name}")
def test_hazards_are_found_and_repairs_are_not(hazard):
    with pytest.raises(ProgramError, match=re.escape(hazard.says)) as raised:
        launch(hazard, False)
    said = str(raised.value)
    lines = re.findall(r"line (\d+): [a-z]", said)
    assert len(lines) >= (2 if hazard.kind in TWO else 1), said
    text = hazard.text(False).splitlines()
    for number, word in re.findall(r"line (\d+): ([a-z_]+)", said):
        assert word in text[int(number) - 1]
    launch(hazard, True)
