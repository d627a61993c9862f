"""The fixture as a user's tests see it."""

import subprocess
import sys

TESTS = """
import numpy as np

def test_same(assert_bits_equal):
    assert_bits_equal(np.float32([1, np.nan]), np.float32([1, np.nan]))

def test_zero_sign(assert_bits_equal):
    assert_bits_equal(np.float32([0.0]), np.float32([-0.0]), what="the layer")
"""


def test_the_fixture_compares_bits(tmp_path):
    (tmp_path / "test_bits.py").write_text(TESTS, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "nbtc.testing.plugin", str(tmp_path / "test_bits.py")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
    assert "the layer: 1 of 1 differ in bits: 1 zero sign" in done.stdout
