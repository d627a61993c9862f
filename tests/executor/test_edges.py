"""What atomics make of zeros, what an mbarrier answers when nobody is expected, and how tensor maps round to tf32.

golden/edges.npz is what an H200 made of the same texts (golden/recorders/make_edges.py).
"""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from tests.executor.edges import LOADED, PAIRS, TF32_LOAD, reductions, tf32_words, waits

GOLDEN = Path(__file__).parents[1] / "golden" / "edges.npz"

# of min and max by the order of values: a number beats a NaN, +0 is more than -0 (PTX ISA, "min", "max")
_REDUCTIONS = {name: (text, arrays) for name, text, arrays in reductions()}
_WAITS = {name: (text, arrays) for name, text, arrays in waits()}


def ordered(op, kind, x, y):
    """min or max of the bits of one 16-bit float each."""
    infinity = 0x7C00 if kind.startswith("f16") else 0x7F80
    numbers = [bits for bits in (x, y) if bits & 0x7FFF <= infinity]
    keys = {bits: (-(bits & 0x7FFF) - 1 if bits >> 15 else bits) for bits in numbers}
    return {"min": min, "max": max}[op](numbers, key=keys.get) if numbers else 0x7FFF


@pytest.fixture(scope="module")
def recorded():
    with np.load(GOLDEN) as found:
        return dict(found)


@pytest.mark.parametrize("name", _REDUCTIONS)
def test_reductions_order_zeros(name, recorded):
    text, arrays = _REDUCTIONS[name]
    x, y = (a.copy() for a in arrays)
    nbtc.load(text)["k"][1, len(PAIRS)](x, y)
    _, op, _, kind = name.split("_")
    want = [ordered(op, kind, memory & 0xFFFF, value & 0xFFFF) for memory, value in PAIRS]
    assert [hex(v & 0xFFFF) for v in y[:, 0]] == [hex(v) for v in want]
    assert (y[:, 0] >> 16).tolist() == want
    np.testing.assert_array_equal(y, recorded[name])


@pytest.mark.parametrize("name", _WAITS)
def test_a_test_of_an_mbarrier_ends_no_phase(name, recorded):
    """The phase stays complete, however often it is asked."""
    text, (out,) = _WAITS[name]
    found = out.copy()
    nbtc.load(text)["k"][1, 1](found)
    assert found.tolist() == [1] * 8 == recorded[name].tolist()


@pytest.mark.parametrize("dtype", ["tf32", "tf32_ftz"])
def test_tensor_maps_round_to_tf32(dtype, recorded):
    """To nearest even: ties, overflow, NaN and subnormals among 32,768 words."""
    words = tf32_words()
    out = np.zeros_like(words)
    nbtc.load(TF32_LOAD)["k"][len(words), 1](nbtc.TensorMap(words.view(np.float32), (LOADED, 1), dtype=dtype), out)
    np.testing.assert_array_equal(out, recorded[dtype])
