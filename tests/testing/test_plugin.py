"""The fixture as a user's tests see it."""

import pytest

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


CALLS = """
import numpy as np, nbtc

def helper(x):
    return nbtc.matmul(x, x)

def test_shapes():
    helper(np.zeros((3, 4), np.float16))

def test_kernel():
    @nbtc.kernel
    def wrong(x):
        x[0] = unknown
    wrong[1, 1](np.zeros(3))
"""


def test_modules_are_imported_as_they_are():
    """The hundreds that nbtc has, without a search for assertions: there is none."""
    import nbtc.verify

    assert type(nbtc.verify.__loader__).__name__ == "SourceFileLoader"


@pytest.mark.parametrize("more", [(), ("--full-trace",)])
def test_failures_end_at_the_users_line(tmp_path, more):
    (tmp_path / "test_calls.py").write_text(CALLS, encoding="utf-8")
    arguments = ["-p", "nbtc.testing.plugin", "--no-header", *more, str(tmp_path / "test_calls.py")]
    out, error = forked(f"import os, pytest; os.chdir({str(tmp_path)!r}); pytest.main({arguments})").communicate(300)
    assert "ShapeError" in out and "unknown is not defined" in out and "2 failed" in out, out + error
    assert ">       wrong[1, 1](np.zeros(3))" in out and ">       return nbtc.matmul(x, x)" in out
    assert ("compile_errors.py" in out) == ("matmul.py" in out or "run.py" in out) == bool(more)
