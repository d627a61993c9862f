"""Patterns of names are what `re` makes of them, whether they are compiled or not."""

from __future__ import annotations

import csv
import re
from importlib.resources import files

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nbtc.executor.rows.patterns import Pattern, PatternTable, literal_part, literal_starts

TABLES = ("introductions", "signatures", "conflicts", "constant_ranges")


def texts() -> list[str]:
    """The patterns of all tables."""
    lines = [files("nbtc").joinpath(f"data/{t}.csv").read_text(encoding="ascii").splitlines() for t in TABLES]
    return [row["pattern"] for table in lines for row in csv.DictReader(x for x in table if not x.startswith("#"))]


OTHERS = (
    r"a*b a\.?b ab{0,2} a+ (ab)?c [ab|c]d a\|b a|b (a|b)c|d (a|b.)+c ((a|b)c|d)e x(a|b)? [a|b]c|d a(b|c)\.d (a|)b|c"
)
PATTERNS = [*texts(), *OTHERS.split(), ""]
ASCII = st.characters(codec="ascii")
TABLE = PatternTable((text, text) for text in PATTERNS)


@settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow]
)  # a pattern's names take a while to be made ready, once each
@given(st.data())
def test_what_a_pattern_matches_begins_with_one_of_its_starts_and_has_its_literal_part(data):
    text = data.draw(st.sampled_from(PATTERNS))
    name = data.draw(st.from_regex(text, fullmatch=True, alphabet=ASCII))
    assert name.startswith(literal_starts(text)) and literal_part(text) in name and Pattern(text).matches(name)
    assert text in TABLE.matching(name)


def test_each_row_matches_the_same_names_as_re():
    names = [re.sub(r"\\(.)", r"\1", text) for text in PATTERNS]
    names += [name.replace(".*", "") for name in names] + ["ld.global.v4.f32", "mbarrier.try_wait.shared::cta.b64"]
    for text in PATTERNS:
        found = [Pattern(text).matches(name) for name in names]
        assert found == [bool(re.fullmatch(text, name)) for name in names], text


def test_a_table_gives_the_rows_that_match_in_their_order():
    names = [name.replace(".*", "") for name in (re.sub(r"\\(.)", r"\1", text) for text in PATTERNS)]
    for name in [*names, "ld.global.v4.f32", "%cluster_ctaid.x", "mma"]:
        assert list(TABLE.matching(name)) == [text for text in PATTERNS if re.fullmatch(text, name)], name
