"""Python's own control flow, tuples and inner functions: what the plain function stores, the kernel stores."""

from collections import namedtuple

import numpy as np
import pytest

import nbtc

Point = namedtuple("Point", "x y")
STEPS, AFTER = (3, 1, 2), (1, 2, 5)


def weighted(x, weight=2):
    return x * weight, x + weight


device = nbtc.device(weighted)


def loops(out):
    for n in range(4):
        for k in range(9, 0, -2):
            if k == 5:
                break
            if n == 1:
                continue
            out[n] += k
    for n in range(3):
        if n == 7:
            break
    else:
        out[4] = n
    left = out.size
    while left > 3:
        left -= 2
    else:
        out[5] = left
    for n, (a, b) in enumerate(zip(STEPS, AFTER), 1):  # noqa: B905
        out[5 + n] += a * 10 + b
    for n, x in enumerate(out):
        out[n] = x * 2 + n
    for i in np.ndindex(2, 2):
        out[9] += i[0] * 2 + i[1]


def values(out):
    (a, b), c = (1, 2.5), STEPS
    point = Point(a, b)
    x, y = point
    scale = x + c[-1]

    def inner(z):
        return z * scale

    pick = lambda z: z if z > 4 else -z  # noqa: E731
    out[0], out[1], out[2] = inner(y), pick(a), pick(7)
    out[3] = 3 in c and not 9 in c and 1 < scale < 4  # noqa: E713
    quotient, rest = divmod(-17, 5)
    out[4], out[5] = quotient, rest
    bits = 5
    bits |= 8
    bits ^= 1
    bits <<= 2
    bits //= 3
    bits **= 2
    out[6], out[7] = bits, sum(c) + len(c) + max(1, 2.5) + min(c) + round(2.6)
    out[8:] = point.y
    if out.size > 4:
        return
    out[0] = 100


@pytest.mark.parametrize("function", [loops, values], ids=lambda f: f.__name__)
def test_a_kernel_stores_what_its_plain_function_does(function):
    out, expected = np.zeros(10), np.zeros(10)
    nbtc.kernel(function)[1, 1](out)
    function(expected)
    assert out.tolist() == expected.tolist()


def test_functions_of_a_device_have_default_and_named_arguments():
    @nbtc.kernel
    def calls(out):
        a, b = device(3)
        c, d = device(3, weight=5)
        out[0], out[1], out[2], out[3] = a, b, c, d

    out = np.zeros(4)
    calls[1, 1](out)
    assert out.tolist() == [*weighted(3), *weighted(3, weight=5)]


def test_elements_of_structured_arrays_have_fields():
    @nbtc.kernel
    def swap(points):
        i = nbtc.grid(1)
        points[i].x, points[i].y = points[i].y, points[i].x

    points = np.array([(1, 2.5), (3, 4.5)], np.dtype([("x", np.float32), ("y", np.float64)], align=True))
    swap[1, 2](points)
    assert points.tolist() == [(2.5, 1.0), (4.5, 3.0)]


def test_copies_take_an_array_as_an_address_and_no_strides():
    @nbtc.kernel
    def copies(x, out):
        s = nbtc.shared(4, nbtc.f32)
        nbtc.ptx.cp_async(s, x, 16)
        nbtc.ptx.cp_async_wait_all()
        for n in range(4):
            out[n] = s[n] * 10 + x[n]

    out = np.zeros(4)
    copies[1, 1](np.arange(16, dtype=np.float32)[::2], out)
    assert out.tolist() == [0, 12, 24, 36]
