"""Calls from Python of functions by their addresses, without a dispatcher of Numba's."""

from __future__ import annotations

import ctypes
import sys
import threading
import time
import weakref
from typing import Any, NamedTuple

import numpy as np
import pytest
from llvmlite import ir

from nbtc.compiler.builder import F64, I64, VectorBuilder
from nbtc.compiler.cpu.float_mode import DEFAULT, KEEP
from nbtc.compiler.jit import control_word
from nbtc.compiler.machine_code import python_calls
from nbtc.compiler.machine_code.emitted import in_words, machine_code, run_in_words
from nbtc.compiler.machine_code.made_once import MadeOnce
from nbtc.compiler.machine_code.prepared_calls import UNLIKE, PreparedCall
from nbtc.compiler.machine_code.python_calls import caller, prepared

WORDS = 6


class Inner(NamedTuple):
    scale: float
    x: Any


class Outer(NamedTuple):
    n: int
    inner: Inner
    y: Any
    more: int


@pytest.fixture
def noted():
    """The address of a function that notes its words, and gives their first."""
    found: list[list[int]] = []

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    def note(words):
        found.append(words[:5])
        return words[0]

    return ctypes.cast(note, ctypes.c_void_p).value, found, note


def test_arguments_arrive_in_order(noted):
    address, found, _ = noted
    x, y = np.ones((3, 4), np.float16)[::2], np.zeros(2, np.int64)
    for n in (5, np.int32(-7), True, 2**63 + 1, np.uint64(2**64 - 1)):
        for scale in (2.5, np.float32(0.1), np.float64(-1.0), 3):
            got = run_in_words(address, Outer(n, Inner(scale, x), y, -1))
            want = np.uint64(int(n) % 2**64).view(np.int64)
            assert found.pop() == [want, np.float64(scale).view(np.int64), x.ctypes.data, y.ctypes.data, -1]
            assert got == want


class Strange(np.ndarray):
    """A class of arrays."""


def test_classes_of_arrays_are_arrays(noted):
    address, found, _ = noted
    x = np.ones(3).view(Strange)
    assert run_in_words(address, Outer(1, Inner(0.0, x), x, 0)) == 1
    assert found[0][2:4] == [x.ctypes.data] * 2


@pytest.mark.parametrize(
    "given",
    [
        (1, (2.0, np.ones(1)), np.ones(1)),
        (1, (2.0, np.ones(1)), np.ones(1), 3, 4),
        (1, (2.0,), np.ones(1), 3),
        (1, (2.0, np.ones(1), 2), np.ones(1), 3),
        (1, 2.0, np.ones(1), 3),
        (1.0, (2.0, np.ones(1)), np.ones(1), 3),
        (1, (np.ones(2), np.ones(1)), np.ones(1), 3),
        (1, ("2", np.ones(1)), np.ones(1), 3),
        (1, (2.0, 3), np.ones(1), 3),
        (1, (2.0, None), np.ones(1), 3),
        (1, (2.0, np.ones(1)), [1.0], 3),
        [1, (2.0, np.ones(1)), np.ones(1), 3],
        None,
    ],
)
def test_other_arguments_are_refused(noted, given):
    address, found, _ = noted
    call = caller(b"i(fa)ai)")
    before = sys.getrefcount(given)
    for _ in range(100):
        with pytest.raises(TypeError):
            call(address, given)
    assert not found
    assert abs(sys.getrefcount(given) - before) < 50


def test_a_call_names_an_address_and_arguments(noted):
    for given in ((), (noted[0],), (noted[0], (1,), 2), ("1", (1,))):
        with pytest.raises(TypeError):
            caller(b"i)")(*given)


def test_other_threads_run_meanwhile():
    """The function waits for one; it would wait for ever if that could not run."""
    entered, left = threading.Event(), threading.Event()

    @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
    def wait(words):  # ctypes takes the interpreter's lock for it, which the call must have let go
        entered.set()
        return int(left.wait(60))

    def answer() -> None:
        entered.wait(60)
        left.set()

    other = threading.Thread(target=answer)
    other.start()
    assert caller(b"i)")(ctypes.cast(wait, ctypes.c_void_p).value, (1,)) == 1
    other.join()


def test_calls_run_in_the_default_mode_and_leave_the_callers():
    def third(v: VectorBuilder, given: Any) -> Any:
        return v.bits(v.b.fdiv(given["scale"], ir.Constant(F64, 3.0)), I64)

    class Scale(NamedTuple):
        scale: float

    address = machine_code({"third": in_words(Scale, third)}, "test_python_calls").address("third")
    run_in_words(address, Scale(1.0))
    upward = 0x5F80 if sys.platform != "darwin" else DEFAULT
    before = control_word(upward)
    try:
        got, after = run_in_words(address, Scale(1.0)), control_word(KEEP)
    finally:
        control_word(before)
    assert np.int64(got).view(np.float64) == 1 / 3
    assert upward == DEFAULT or after & ~0x3F == upward


def test_a_control_word_is_a_number():
    with pytest.raises(TypeError):
        control_word("default")
    with pytest.raises(OverflowError):
        control_word(2**70)


@ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)
def one(words):
    return 1


def likeness(*objects: object) -> Any:
    """Whether a call without operands is made for arguments that are to be like these."""
    address, words = ctypes.cast(one, ctypes.c_void_p).value, np.zeros(1, np.int64)
    made = prepared(PreparedCall(address, words, (0,), np.dtype(np.int8), (), 1, False, None), (), *objects)
    return lambda *given: int(type(made(*given)) is np.ndarray)


def test_likeness_is_that_of_dtype_shape_and_strides():
    x, name = np.zeros((4, 6), np.float16), object()
    like = likeness(x, name, None)
    assert like(x, name, None) == like(np.ones((4, 6), np.float16), name, None) == 1
    read_only = np.ones((4, 6), np.float16)
    read_only.flags.writeable = False
    assert like(read_only, name, None) == 1
    others = (
        x[:3], x[:, :5], x[::2], x.T, x.reshape(-1), x.reshape(4, 3, 2), np.zeros((8, 6), x.dtype)[::2], x[::-1],
        x.view(np.int16), x.astype(">f2"), x.astype(np.float32), x.view(Strange), x.tolist(), None, 3, x.dtype,
    )  # fmt: skip
    for other in others:
        assert like(other, name, None) == 0
    assert like(x, object(), None) == like(x, name, 0) == like(x, x, None) == 0
    assert likeness(x[:, :5])(x[:, :5]) == 1
    for count in (0, 2, 4):
        with pytest.raises(TypeError):
            like(*[x] * count)


def test_likeness_of_nothing_but_itself():
    """Objects that are no arrays are compared by their identity alone."""
    word = "a name that is made twice"
    like = likeness(word, 1 << 70)
    assert like(word, 1 << 70) == 0 and like("".join(["a name that", " is made twice"]), 0) == 0
    scalar = np.array(3.5)
    assert likeness(scalar)(np.array(4.5)) == 1 and likeness(scalar)(np.array([4.5])) == 0


class Known:
    """A call of a function that notes its words, and gives what it is told to."""

    def __init__(self, **options: Any) -> None:
        self.found: list[list[int]] = []
        self.result, self.during = 1, lambda: None

        @ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.POINTER(ctypes.c_int64))
        def function(words):
            self.found.append(words[:6])
            self.during()
            return self.result

        self.function, self.watched = function, [["row"], []]
        address, words = ctypes.cast(function, ctypes.c_void_p).value, np.array([70, 0, 0, 0, 71, 72])
        self.x, self.y, self.name = np.zeros((4, 6), np.float16), np.zeros(3, np.int8), object()
        known = {"whole": (True, True), "done": 1, "locked": True, "kept": None} | options
        call = PreparedCall(address, words, (2, 5), np.dtype(np.uint16), **known)
        self.call = prepared(call, self.watched, self.x, self.y, self.name)

    def __call__(self) -> Any:
        return self.call(self.x, self.y, self.name)


def test_a_prepared_call_is_told_addresses_and_gives_a_new_array():
    known = Known()
    x, y = np.ones((4, 6), np.float16), np.ones(3, np.int8)
    first, second = known.call(x, y, known.name), known.call(x, y, known.name)
    assert first.shape == (2, 5) and first.dtype == np.uint16 and first.flags.c_contiguous and first.flags.writeable
    assert first.base is None and first.ctypes.data != second.ctypes.data
    for d, words in zip((first, second), known.found, strict=True):
        assert words == [70, x.ctypes.data, y.ctypes.data, d.ctypes.data, 71, 72]


def test_a_prepared_call_is_for_its_arguments_alone():
    known = Known()
    x, y, name = known.x, known.y, known.name
    for other in ((x[:3], y, name), (x, y[::-1], name), (x, y, None), (None, y, name), (x.view("u2"), y, name)):
        assert known.call(*other) == UNLIKE
    for count in (0, 2, 4):
        with pytest.raises(TypeError):
            known.call(*[x] * count)
    assert not known.found and type(known()) is np.ndarray


def test_a_prepared_call_ends_with_what_it_watches():
    for change in (
        lambda lists: lists[0].append("row"), lambda lists: lists[0].clear(), lambda lists: lists[1].append(None),
        lambda lists: lists[0].__setitem__(0, "another"),
    ):  # fmt: skip
        known = Known()
        assert type(known()) is np.ndarray
        change(known.watched)
        assert known() == UNLIKE and len(known.found) == 1


def test_a_prepared_call_gives_the_number_of_what_does_not_stand():
    known = Known()
    for result in (0, 2, -7, 1 << 40):
        known.result = result
        assert known() == result
    known.result = 1
    assert type(known()) is np.ndarray


@pytest.mark.parametrize("locked", [False, True])
def test_memory_of_a_prepared_call_is_one_threads(locked):
    """The function makes the same call again, as another thread might while it runs."""
    known, inner = Known(locked=locked), []

    def again() -> None:
        known.during = lambda: None
        inner.append(known())

    known.during = again
    assert type(known()) is np.ndarray
    assert inner == [UNLIKE] if locked else type(inner[0]) is np.ndarray
    assert type(known()) is np.ndarray


def test_operands_of_a_prepared_call_are_copied_to_c_order():
    known, seen = Known(whole=(False, True)), []

    def look() -> None:
        address = (ctypes.c_uint16 * 24).from_address(known.found[-1][1])
        seen.append(np.array(address).view(np.float16).reshape(4, 6))

    wanted = np.arange(24, dtype=np.float16).reshape(4, 6)
    known.x[...] = wanted
    turned = prepared_for(known, np.asfortranarray(known.x))
    known.during = look
    assert type(turned(np.asfortranarray(wanted), known.y, known.name)) is np.ndarray
    assert (seen[0] == wanted).all() and known.found[0][2] == known.y.ctypes.data


def prepared_for(known: Known, x: Any) -> Any:
    """The call of one whose first operand is like x."""
    address = ctypes.cast(known.function, ctypes.c_void_p).value
    call = PreparedCall(address, np.zeros(6, np.int64), (1,), np.dtype(np.int32), (False, True), 1, True, None)
    return prepared(call, (), x, known.y, known.name)


def test_prepared_calls_keep_no_references():
    known = Known(whole=(False, True))
    dtype, turned = np.dtype(np.uint16), prepared_for(known, known.x.T)
    counted = known.x, known.y, known.name, dtype, np.dtype(np.float16), np.dtype(np.int32)
    before = [sys.getrefcount(x) for x in counted]
    for n in range(300):
        known.result = n % 2
        known()
        known.call(known.x, known.y, None)
        turned(known.x.T, known.y, known.name)
    assert all(abs(sys.getrefcount(x) - n) < 50 for x, n in zip(counted, before, strict=True))
    data = np.ones((4, 6), np.float16)
    kept = weakref.ref(data)
    known.call(data, known.y, known.name)
    del data
    assert kept() is None


def test_threads_that_ask_at_once_get_the_same_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code of its own, which one of them would let go, could still run in another."""
    together, real, found, made = threading.Barrier(4), python_calls._loaded, [], []

    def loaded() -> Any:
        made.append(1)
        time.sleep(0.2)
        return real()

    def ask() -> None:
        together.wait()
        found.append(python_calls.calls.__wrapped__())

    monkeypatch.setattr(python_calls, "_loaded", loaded)
    monkeypatch.setattr(python_calls, "_CALLS", MadeOnce())
    asked = [threading.Thread(target=ask) for _ in range(4)]
    for thread in asked:
        thread.start()
    for thread in asked:
        thread.join()
    assert len(found) == 4 and all(x is found[0] for x in found) and len(made) == 1
