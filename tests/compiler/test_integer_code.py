"""Functions of words give what Numba's code of the same source gives, and what they can't say is refused."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc.compiler.integers.integer_code import text_of
from nbtc.compiler.integers.integer_expressions import load, store
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code import native
from nbtc.errors import CompilerError
from nbtc.executor.watch.words import int32_at, octet, put, put_int32, word

PRIMITIVES = {
    word: load(64), put: store(64), int32_at: load(32), put_int32: store(32), octet: load(8, signed=False),
}  # fmt: skip
PLACES = (3, 5, 9)
LIMIT = 1 << 63


@jit
def _pair(x, y):
    if x > y:
        return y, x
    return x, y


@jit
def arithmetic(x, y):
    low, high = _pair(x, y)
    found = (x + y) * 3 - (low ^ high) | (x & ~y)
    found += (x >> 5) + (y << 3) + x // 16 + y % 16 + x // -3 + y % -3
    return found + (min(x, y) if high > 0 and low < 0 else max(x, y))


@jit
def divided(x, y):
    return x // y * 31 + x % y


@jit
def turns(x, y):
    total, n = 0, x & 63
    while n:
        n -= 1
        if n == 40:
            continue
        if n == y & 63:
            break
        total += n
    for k in range(2, -1, -1):
        for place in (x, y + k):
            total = total * 3 + (place & 7)
            if place & 8:
                break
    for k in range(x & 7, y & 31, 3):
        total ^= PLACES[1] << k
    if x & 3 in (1, 2):
        return total
    return -total if not 0 <= y < x else total + 1


@jit
def memory(x, y):
    at = x + 8 * (y & 3)
    put(at, word(at) + y)
    put_int32(x + 32, -5)
    beyond = x == 0 and word(0)  # never loaded
    return int32_at(x + 32) + octet(x + 32) + beyond


@jit
def text(x, y):
    return "x"


@jit
def real(x, y):
    return x / y


@cache
def _loaded(kernel):
    text = text_of(kernel.py_func, "entry", PRIMITIVES)
    return native.load(native.Native(native.compile_text(text), {}))


def _call(kernel, x, y):
    return ctypes.CFUNCTYPE(*[ctypes.c_int64] * 3)(_loaded(kernel).address("entry"))(x, y)


WORDS = st.integers(-LIMIT, LIMIT - 1) | st.integers(-70, 70)


@pytest.mark.parametrize("kernel", [arithmetic, turns], ids=lambda k: k.py_func.__name__)
@settings(max_examples=200, deadline=None)
@given(x=WORDS, y=WORDS)
def test_numbas_code_gives_the_same(kernel, x, y):
    assert _call(kernel, x, y) == int(kernel(np.int64(x), np.int64(y)))


@settings(max_examples=200, deadline=None)
@given(x=st.integers(-LIMIT + 1, LIMIT - 1), y=WORDS)
def test_quotients_round_down_and_a_divisor_of_zero_gives_zero(x, y):
    expected = x // y * 31 + x % y if y else 0
    assert _call(divided, x, y) == (expected + LIMIT) % (2 * LIMIT) - LIMIT


def test_memory_is_read_and_written_and_nothing_past_a_known_truth():
    data = np.arange(5, dtype=np.int64)
    assert _call(memory, data.ctypes.data, 6) == -5 + 251
    assert data[:4].tolist() == [0, 1, 8, 3] and data.view(np.int32)[8] == -5


@pytest.mark.parametrize("kernel", [text, real], ids=lambda k: k.py_func.__name__)
def test_what_is_no_code_of_words_is_refused_by_its_line(kernel):
    with pytest.raises(
        CompilerError, match=f"{kernel.py_func.__name__}, line {kernel.py_func.__code__.co_firstlineno + 2}"
    ):
        text_of(kernel.py_func, "entry", PRIMITIVES)
