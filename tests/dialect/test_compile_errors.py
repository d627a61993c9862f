"""What a kernel's author reads where Numba has no code for a line: what is wrong in Python's words, with the line."""

from __future__ import annotations

import re

import numpy as np
import pytest

import nbtc
from nbtc import errors


def takes_a_row(x, out):
    i = nbtc.thread_idx.x
    out[i] = x[i]


def compares_a_row(x, out):
    j = nbtc.thread_idx.x
    if x[j] > 0:
        out[j] = 1


def doubles_a_row(x, out):
    i = nbtc.thread_idx.x
    x[i] *= 2


def takes_a_shared_row(x, out):
    tile = nbtc.shared((2, 2, 2), np.float32)
    out[0] = tile[0]


def takes_an_array(x, out):
    out[0] = x + 1


def indexes_too_deep(x, out):
    i = nbtc.thread_idx.x
    out[i, 0] = 1


def reads_too_deep(x, out):
    i = nbtc.thread_idx.x
    out[i] = x[i, 0, 1]


def halves(x, out):
    i = nbtc.thread_idx.x
    out[i / 2] = 1


def reads_a_half(x, out):
    i = nbtc.thread_idx.x
    out[i] = x[i, i / 2]


def indexes_by_all_axes(x, out):
    i = nbtc.thread_idx
    out[i] = 1


def counts_with_all_axes(x, out):
    i = nbtc.block_idx * nbtc.block_dim.x
    out[i] = 1


def names_a_fourth_axis(x, out):
    out[0] = nbtc.thread_idx.w


def stores_a_complex_number(x, out):
    out[0] = 1j * x[0, 0]


@nbtc.device
def factorial(n):
    return 1 if n < 2 else n * factorial(n - 1)


@nbtc.device
def even(n):
    return True if n == 0 else odd(n - 1)


@nbtc.device
def odd(n):
    return False if n == 0 else even(n - 1)


def calls_what_calls_itself(x, out):
    out[0] = factorial(5)


def calls_what_call_each_other(x, out):
    out[0] = even(5)


def makes_zeros(x, out):
    a = np.zeros(4)
    out[0] = a[0]


def makes_an_array(x, out):
    a = np.array([1.0, 2.0])
    out[0] = a[0]


def adds_arrays(x, out):
    y = out + out
    out[0] = y[0]


def shows_a_text(x, out):
    print(f"out is {out[0]}")


def shows_digits(x, out):
    print(f"{out[0]:.3f}")


def multiplies(x, out):
    c = x @ x
    out[0] = c[0, 0]


def multiplies_by_name(x, out):
    c = np.dot(x, x)
    out[0] = c[0, 0]


@nbtc.device
def makes_a_local():
    return nbtc.local(4, np.float32)


def is_given_a_local(x, out):
    out[0] = makes_a_local()[0]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (takes_a_row, "`out[i] = x[i]`: x has 2 dimensions and x[i] is a row: index x[i, j]"),
        (compares_a_row, "`if x[j] > 0:`: x has 2 dimensions and x[j] is a row: index x[j, k]"),
        (doubles_a_row, "`x[i] *= 2`: x has 2 dimensions and x[i] is a row: index x[i, j]"),
        (takes_a_shared_row, "`out[0] = tile[0]`: tile has 3 dimensions and tile[0] is an array: index tile[0, j, k]"),
        (takes_an_array, "`out[0] = x + 1`: an array stands where a number is needed: index it"),
        (indexes_too_deep, "`out[i, 0] = 1`: out has 1 dimension and out[i, 0] names 2: index out[i]"),
        (reads_too_deep, "x has 2 dimensions and x[i, 0, 1] names 3: index x[i, 0]"),
        (halves, "`out[i / 2] = 1`: an index must be a whole number: use //"),
        (reads_a_half, "`out[i] = x[i, i / 2]`: an index must be a whole number: use //"),
        (indexes_by_all_axes, "`out[i] = 1`: thread_idx has .x, .y and .z: write nbtc.thread_idx.x"),
        (counts_with_all_axes, "block_idx has .x, .y and .z: write nbtc.block_idx.x"),
        (names_a_fourth_axis, "thread_idx has .x, .y and .z"),
        (stores_a_complex_number, "an array of float32 holds no complex number: store its .real"),
        (calls_what_calls_itself, "a function that calls itself"),
        (calls_what_call_each_other, "a function that calls itself, or one that calls it"),
        (makes_zeros, "`a = np.zeros(4)`: nothing is allocated in a kernel"),
        (makes_an_array, "nothing is allocated in a kernel"),
        (adds_arrays, "nothing is allocated in a kernel"),
        (shows_a_text, "strings are not made in kernels"),
        (shows_digits, "strings are not made in kernels"),
        (multiplies, "`c = x @ x`: a product of arrays would be a new array"),
        (multiplies_by_name, "a product of arrays would be a new array"),
        (is_given_a_local, "a function that kernels call returns numbers"),
    ],
)
def test_a_line_without_code_says_why(function, says):
    x, out = np.zeros((4, 4), np.float32), np.zeros(4, np.float32)
    with pytest.raises(errors.KernelError, match=re.escape(says)) as caught:
        nbtc.kernel(function)[1, 4](x, out)
    assert "No implementation" not in str(caught.value)


def test_a_list_is_no_array():
    with pytest.raises(errors.FormatError, match=r"not a list: pass an array, such as np\.array\(x\)$"):
        nbtc.kernel(takes_a_row)[1, 4]([[1.0] * 4] * 4, np.zeros(4))


@pytest.mark.parametrize("function", [takes_a_row, halves])
def test_a_number_has_no_elements(function):
    with pytest.raises(errors.KernelError, match="a number is indexed, which has no elements: pass an array"):
        nbtc.kernel(function)[1, 4](3.0, np.float32(1) if function is halves else np.zeros(4, np.float32))


def test_objects_are_no_numbers():
    with pytest.raises(errors.FormatError, match="x has elements of object, which kernels do not know"):
        nbtc.kernel(takes_a_row)[1, 4](np.zeros(4, object), np.zeros(4, np.float32))
