"""Products are planned here, whichever came before: a call made of the third could hide what a test is about."""

from __future__ import annotations

import pytest

from nbtc.gemm import repeated


@pytest.fixture(autouse=True)
def planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No product is remembered (`test_repeated` has those that are)."""
    repeated.cache_clear()
    monkeypatch.setattr(repeated, "MOST", 0)
