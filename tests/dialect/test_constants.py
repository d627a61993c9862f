"""Constants of kernels: what they determine is a constant too; arguments with named fields; messages about names."""

import dataclasses
from collections import namedtuple

import numpy as np
import pytest

import nbtc
from nbtc import errors

TILE = 8
SIZES = (2, 3)


@dataclasses.dataclass(frozen=True)
class Config:
    tile: int = 4
    scale: float = 0.5


CONFIG = Config()
Pair = namedtuple("Pair", "low high")
PAIR = Pair(3, 5)


def helper(x):
    return x + 1


def launched(function, *args, block=1):
    nbtc.kernel(function)[1, block](*args)
    return args[0]


def test_arithmetic_of_constants_is_a_shape():
    def kernel(out):
        n = 4
        a = nbtc.shared((TILE, TILE + 1), nbtc.f32)
        b = nbtc.local(n * 2 - min(n, 3), nbtc.s32)
        c = nbtc.local((CONFIG.tile, SIZES[1], PAIR.high << 1, len(SIZES)), nbtc.s8)
        d = nbtc.local(-(-n // 3), nbtc.s8)
        out[0], out[1], out[2] = a.shape[0], a.shape[1], b.shape[0]
        for i in range(4):
            out[3 + i] = c.shape[i]
        out[7] = d.shape[0]
        out[8] = CONFIG.scale * 4

    out = launched(kernel, np.zeros(9))
    assert out.tolist() == [8, 9, 5, 4, 3, 10, 2, 2, 2]


def test_a_name_that_changes_is_no_constant():
    def kernel(out):
        n = 4
        for _ in range(2):
            n = n + 1
        out[0] = n * 2

    assert launched(kernel, np.zeros(1))[0] == 12

    def shape(out, k):
        a = nbtc.local((k + 1, 2), nbtc.s32)
        out[0] = a[0, 0]

    with pytest.raises(
        errors.KernelError, match=r"the shape is \(\?, 2\), where \? is known only when the kernel runs"
    ):
        launched(shape, np.zeros(1), 3)


def test_beyond_a_word_arithmetic_stays_the_kernels():
    def kernel(out):
        out[0] = (TILE << 60) + 1
        out[1] = TILE // (TILE - 8 + 2)

    assert launched(kernel, np.zeros(2, np.int64)).tolist() == [-(2**63) + 1, 4]


def test_records_are_arguments():
    def kernel(out, p, c):
        out[0], out[1], out[2] = p.high - p.low, c.tile, c.scale

    k = nbtc.kernel(kernel)
    out = np.zeros(3)
    k[1, 1](out, Pair(1, 5), Config(7, 0.25))
    assert out.tolist() == [4, 7, 0.25]
    k[1, 1](out, namedtuple("Pair", "high low")(1, 5), Config(7, 0.25))  # same types, other names
    assert out[0] == -4


def test_arrays_in_records_are_named_in_errors():
    def kernel(p):
        p.high[100] = 1

    with pytest.raises(errors.ProgramError, match=r"p\.high"):
        launched(kernel, Pair(np.zeros(2), np.zeros(3)))


def test_a_constant_that_changed_makes_another_text():
    def make(config):
        def kernel(out):
            out[0] = nbtc.local(config.tile, nbtc.s8).shape[0]

        return kernel

    assert [launched(make(Config(n)), np.zeros(1))[0] for n in (3, 5)] == [3, 5]


def test_loops_of_python():
    def kernel(out):
        i = 0
        while True:
            i += 1
            if i > 6:
                break
            if i == 2:
                continue
            out[i] += i
        for n, t in enumerate((30, 40)):
            out[n] += t
        for a, b in zip((1, 2), (5, 6)):  # noqa: B905
            out[a] += b

        def inner(x):
            return x * TILE

        out[7] = inner(2)

    assert launched(kernel, np.zeros(8)).tolist() == [30, 46, 6, 3, 4, 5, 6, 16]


def plain(out):
    out[0] = helper(1)


def undefined(out):
    out[0] = nothing_of_this_name(3)  # noqa: F821


def frozen(out):
    out[0] = 1


def makes_a_list(out):
    out[0] = [1, 2][0] + len([out[0]])


def holds_a_dict(out):
    out[0] = TABLE[1]


def tries(out):
    try:
        out[0] = 1
    except Exception:
        out[0] = 2


def makes_a_dict(out):
    table = {}
    out[0] = len(table)


def takes_the_rest(out):
    first, *rest = (1, 2, 3)
    out[0] = first + rest[0]


def names_a_type(out):
    nbtc.shared(4, nbtc.float32)[0] = out[0]


def asks_a_module(out):
    if hasattr(nbtc, "float32"):
        out[0] = 1


def catches(out):
    try:
        out[0] = 1
    except ValueError:
        out[0] = 2


def yields(out):
    yield out[0]


def stores_a_text(out):
    out[0] = "one"


TABLE = {1: 2}


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (plain, r"`out\[0\] = helper\(1\)`: helper is a plain Python function: put @nbtc\.device above"),
        (undefined, "nothing_of_this_name is not defined: define or import it"),
        (frozen, r"written here is read-only: pass one that may be written \(x\.copy\(\)"),
        (makes_a_list, "nothing is allocated in a kernel"),
        (holds_a_dict, "TABLE is a dict, which kernels cannot hold"),
        (tries, "kernels have no `try`"),
        (catches, "kernels have no `try`"),
        (yields, "a kernel yields nothing: store results"),
        (stores_a_text, "an array of float64 holds no text: store a number"),
        (makes_a_dict, "nothing is allocated in a kernel"),
        (takes_the_rest, r"`first, \*rest = \(1, 2, 3\)`: a starred name has no device code"),
        (names_a_type, "nbtc's types of elements have short names"),
        (asks_a_module, r"`if hasattr\(nbtc, "),
    ],
)
def test_messages_say_what_to_do(function, says):
    out = np.zeros(1)
    out.flags.writeable = function is not frozen
    with pytest.raises(errors.KernelError, match=says) as caught:
        launched(function, out)
    assert "numba" not in str(caught.value).lower()


def calls_what_is_pythons(out):
    out[0] = nbtc.convert(out[0], "f16")


def test_functions_for_python_alone_are_refused_with_the_line():
    place = r"^kernel calls_what_is_pythons \(.*test_constants\.py:\d+\): `out\[0\] = nbtc\.convert"
    with pytest.raises(errors.CompilerError, match=rf"{place}.*: .*works from Python"):
        launched(calls_what_is_pythons, np.zeros(1))
