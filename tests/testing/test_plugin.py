"""The fixture as a user's tests see it."""

from tests.processes import forked

TESTS = """
import numpy as np

def test_same(assert_bits_equal):
    assert_bits_equal(np.float32([1, np.nan]), np.float32([1, np.nan]))

def test_zero_sign(assert_bits_equal):
    assert_bits_equal(np.float32([0.0]), np.float32([-0.0]), what="the layer")
"""


def test_the_fixture_compares_bits(tmp_path):
    (tmp_path / "test_bits.py").write_text(TESTS, encoding="utf-8")
    arguments = ["-q", "-p", "nbtc.testing.plugin", str(tmp_path / "test_bits.py")]
    out, error = forked(f"import os, pytest; os.chdir({str(tmp_path)!r}); pytest.main({arguments})").communicate(300)
    assert "1 failed, 1 passed" in out, out + error
    assert "the layer: 1 of 1 differ in bits: 1 zero sign" in out
