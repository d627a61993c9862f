"""Patterns of names are what `re` makes of them, whether they are compiled or not."""

from __future__ import annotations

import csv
import re
from importlib.resources import files

from hypothesis import given
from hypothesis import strategies as st

from nbtc.executor.rows.patterns import Pattern, literal_start

TABLES = ("introductions", "signatures", "conflicts", "constant_ranges")


def texts() -> list[str]:
    """The patterns of all tables."""
    lines = [files("nbtc").joinpath(f"data/{t}.csv").read_text(encoding="ascii").splitlines() for t in TABLES]
    return [row["pattern"] for table in lines for row in csv.DictReader(x for x in table if not x.startswith("#"))]


PATTERNS = [*texts(), "a*b", r"a\.?b", "ab{0,2}", "a+", "(ab)?c", "[ab|c]d", r"a\|b", "a|b", "(a|b)c|d", ""]


@given(st.data())
def test_what_a_pattern_matches_begins_with_its_literal_start(data):
    text = data.draw(st.sampled_from(PATTERNS))
    name = data.draw(st.from_regex(text, fullmatch=True))
    assert name.startswith(literal_start(text)) and Pattern(text).fullmatch(name)


def test_each_row_matches_the_same_names_as_re():
    names = [re.sub(r"\\(.)", r"\1", text) for text in PATTERNS]
    names += [name.replace(".*", "") for name in names] + ["ld.global.v4.f32", "mbarrier.try_wait.shared::cta.b64"]
    for text in PATTERNS:
        found = [bool(Pattern(text).fullmatch(name)) for name in names]
        assert found == [bool(re.fullmatch(text, name)) for name in names], text
