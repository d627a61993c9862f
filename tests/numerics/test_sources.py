"""Every row says who decides it."""

from nbtc.numerics.models import _ROWS


def test_rows_without_recordings_name_a_source():
    unnamed = [key for key, row in _ROWS.items() if row.evidence != "recorded" and not row.source]
    assert not unnamed
    published = {row.source for row in _ROWS.values() if row.evidence == "public vectors"}
    assert published and all(source.startswith("arXiv:2512.07004") for source in published)
    assert not [key for key, row in _ROWS.items() if row.evidence == "recorded" and row.source]
