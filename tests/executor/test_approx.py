"""Approximate functions against NumPy's doubles: within the error the PTX ISA states, and right at the edges."""

import itertools

import numpy as np
import pytest

from nbtc.executor.approx import FORMS
from nbtc.testing.scalar_inputs import edges
from nbtc.testing.scalar_rows import RowCase, Rows

TEXTS = [".".join((f.opcode, *filter(None, choice))) for f in FORMS for choice in itertools.product(*f.slots)]
SINGLE = [t for t in TEXTS if t.endswith(".f32")]
MATHS = {
    "rcp": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "div": lambda x, y: x / y,
}
RELATIVE = {"rcp": 2**-23, "sqrt": 2**-23, "rsqrt": 2**-22.9, "ex2": 2**-22.5, "tanh": 2**-11, "div": 2**-22}
ABSOLUTE = {"lg2": 2**-22, "sin": 2**-20.5, "cos": 2**-20.5}
LEAST = 2.0**-149


@pytest.fixture(scope="module")
def rows():
    return Rows([RowCase(text) for text in TEXTS])


def inputs(opcode, rng, count=65536):
    """f32 across the range the bound holds for."""
    if opcode in ("sin", "cos"):
        return [rng.uniform(-2 * np.pi, 2 * np.pi, count).astype(np.float32)]
    if opcode == "ex2":
        return [rng.uniform(-160, 130, count).astype(np.float32)]
    x = np.ldexp(rng.uniform(1, 2, count), rng.integers(-140, 126, count)).astype(np.float32)
    if opcode == "tanh":
        x = rng.uniform(-10, 10, count).astype(np.float32) * np.where(rng.random(count) < 0.5, 1e-3, 1).astype(
            np.float32
        )
    if opcode == "div":
        return [x, np.ldexp(rng.uniform(1, 2, count), rng.integers(-126, 126, count)).astype(np.float32)]
    return [x]


def flushed(x):
    return np.where(np.abs(x) < 2.0**-126, np.copysign(0, x), x)


@pytest.mark.parametrize("text", SINGLE)
def test_error_of_f32_functions(rows, text):
    opcode = text.split(".")[0]
    x = inputs(opcode, np.random.default_rng(3))
    result = rows(TEXTS.index(text), [n.view(np.uint32) for n in x])[0].view(np.float32).astype(np.float64)
    ftz = ".ftz" in text
    with np.errstate(all="ignore"):
        exact = MATHS[opcode](*(flushed(n).astype(np.float64) if ftz else n.astype(np.float64) for n in x))
        exact = flushed(exact) if ftz else exact
        seen = np.isfinite(exact) & (np.abs(exact) < 2.0**127)
        error = np.abs(result - exact)
        if opcode in ABSOLUTE:
            bound = np.maximum(ABSOLUTE[opcode], 2**-22 * np.abs(exact) if opcode == "lg2" else 0)
        else:
            bound = RELATIVE[opcode] * np.abs(exact) + (2.0**-126 if ftz else LEAST)
    assert (error[seen] <= np.broadcast_to(bound, error.shape)[seen]).all()
    np.testing.assert_array_equal(np.isfinite(result[seen]), True)


@pytest.mark.parametrize("text", SINGLE)
def test_specials(rows, text):
    opcode = text.split(".")[0]
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1.0, 2.0**-140], np.float32)
    x = np.tile(x, 4)
    operands = [x, np.repeat(x[:8], 4)] if opcode == "div" else [x]
    result = rows(TEXTS.index(text), [n.view(np.uint32) for n in operands])[0].view(np.float32)
    ftz = ".ftz" in text
    with np.errstate(all="ignore"):
        exact = MATHS[opcode](*(flushed(n).astype(np.float64) if ftz else n.astype(np.float64) for n in operands))
        exact = (flushed(exact) if ftz else exact).astype(np.float32)
    for group in (np.isnan, np.isposinf, np.isneginf):
        np.testing.assert_array_equal(group(result), group(exact))
    np.testing.assert_array_equal(result[exact == 0].view(np.uint32), exact[exact == 0].view(np.uint32))
    assert set(result.view(np.uint32)[np.isnan(result)]) <= {0x7FFFFFFF}


def test_exact_powers_of_two(rows):
    n = np.arange(-149, 107, dtype=np.float32)
    assert (rows(TEXTS.index("ex2.approx.f32"), [n.view(np.uint32)])[0].view(np.float32) == np.exp2(n)).all()
    assert (rows(TEXTS.index("lg2.approx.f32"), [np.exp2(n).view(np.uint32)])[0].view(np.float32) == n).all()


F16_BOUNDS = {"ex2": (2**-9.9, 2.0**-24), "tanh": (0, 2**-10.987)}  # relative, absolute


@pytest.mark.parametrize("opcode", ["ex2", "tanh"])
def test_every_f16(rows, opcode):
    x = np.arange(1 << 16, dtype=np.uint16)
    result = rows(TEXTS.index(f"{opcode}.approx.f16"), [x])[0]
    both = rows(TEXTS.index(f"{opcode}.approx.f16x2"), [x | x[::-1].astype(np.uint32) << 16])[0]
    assert (both == result | result[::-1].astype(np.uint32) << 16).all()
    with np.errstate(all="ignore"):
        exact = MATHS[opcode](x.view(np.float16).astype(np.float64))
        relative, absolute = F16_BOUNDS[opcode]
        error = np.abs(result.view(np.float16).astype(np.float64) - exact)
        seen = np.isfinite(exact) & (np.abs(exact) < 65504)
    assert (error[seen] <= (relative * np.abs(exact) + absolute)[seen]).all()
    assert set(result[np.isnan(exact)]) == {0x7FFF}


@pytest.mark.parametrize("opcode", ["rcp", "rsqrt"])
def test_upper_words_of_doubles(rows, opcode):
    rng = np.random.default_rng(4)
    words = np.concatenate(
        [rng.integers(1, 0x7FF00000, 4096, dtype=np.uint64) << 32, np.array(edges(64)[:2048], np.uint64)]
    )
    words = words[: words.size // 32 * 32]
    result = rows(TEXTS.index(f"{opcode}.approx.ftz.f64"), [words])[0]
    assert (result & np.uint64(0xFFFFFFFF) == 0).all()
    with np.errstate(all="ignore"):
        exact = MATHS[opcode]((words[:4096] & ~np.uint64(0xFFFFFFFF)).view(np.float64))
        seen = (words[:4096] >= 1 << 52) & (np.abs(exact) >= 2.0**-1022)
        error = np.abs(result[:4096].view(np.float64) / exact - 1)
    assert (error[seen] <= 2**-20).all()
