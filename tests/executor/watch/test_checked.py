"""Checked mode: seeded hazards are found, the same programs without them are not reported."""

from __future__ import annotations

import re
from collections import Counter

import numpy as np
import pytest

import nbtc
from nbtc.errors import ProgramError
from nbtc.executor.launch import process_wide
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


def test_a_process_may_check_every_launch(monkeypatch):
    """As NBTC_CHECKED=1 asks for: calls that launch unchecked are watched too; what says "off" is not."""
    monkeypatch.setattr(process_wide, "CHECK_ALL", True)
    kernel = nbtc.load(""".version 8.0 .target sm_80 .address_size 64
        .visible .entry k() { .shared .b32 s[2]; .reg .b32 r; ld.shared.b32 r, [s]; st.shared.b32 [s+4], r; ret; }""")[
        "k"
    ]
    with pytest.raises(ProgramError, match="uninitialised"):
        kernel[1, 32]()
    kernel.launch(1, 32, (), checked="off")
    assert kernel.profile[1, 32]().total.executed
