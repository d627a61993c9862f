"""A pytest plugin, found by pytest when nbtc is installed: the fixture `assert_bits_equal`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import nbtc.testing


@pytest.fixture(name="assert_bits_equal")
def bits_fixture() -> Callable[..., None]:
    """`nbtc.testing.assert_bits_equal`: arrays or tensors of one shape and dtype must have the same bits."""
    return nbtc.testing.assert_bits_equal
