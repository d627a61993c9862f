"""Emitted functions by their addresses: arguments, machine code on disk, and processors."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from llvmlite import ir
from numba.core.errors import TypingError

from nbtc.compiler.builder import I32, VectorBuilder
from nbtc.compiler.cpu import lowering
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code import emitted, native
from nbtc.compiler.machine_code.emitted import Emitted, Named, call_emitted, machine_code
from nbtc.compiler.machine_code.made_once import MadeOnce
from nbtc.kernels.warps.warp import WarpLoop
from nbtc.kernels.warps.warp_words import IntegerCode


class Pair(NamedTuple):
    """Two arrays of 32-bit integers."""

    x: Any
    y: Any


class Given(NamedTuple):
    """Arguments of the function under test."""

    pair: Pair
    at: int
    scale: float


def write(v: VectorBuilder, given: Named) -> Any:
    """pair.y[at] = pair.x[at] * scale, which it returns."""
    b, place = v.b, v.b.shl(given["at"], v.int(2))
    pair = given["pair"]
    x = b.sitofp(v.load(v.at(pair["x"], place), I32, 4), ir.DoubleType())
    found = b.fptosi(b.fmul(x, given["scale"]), I32)
    v.store(found, v.at(pair["y"], place), 4)
    return b.sext(found, v.int(0).type)


@jit(cached=False)
def scaled(address, x, y, at, scale):
    return call_emitted(address, Given(Pair(x, y), at, scale))


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    """As in a new process with an empty cache."""
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(emitted, "_LOADED", MadeOnce())


@pytest.fixture
def code(fresh):
    return machine_code({"scaled": Emitted(Given, write)}, "test")


def test_arguments_arrive_as_they_are_named(code):
    x, y = np.arange(6, dtype=np.int32), np.zeros(6, np.int32)
    assert scaled(code.address("scaled"), x, y, 4, 2.5) == 10
    assert y.tolist() == [0, 0, 0, 0, 10, 0]


def test_an_array_in_place_of_a_number_does_not_compile(code):
    x = np.zeros(6, np.int32)
    with pytest.raises(TypingError, match="is annotated as"):
        scaled(code.address("scaled"), x, x, x, 2.5)


def test_machine_code_is_found_on_disk(code, monkeypatch):
    monkeypatch.setattr(native, "compile_text", None)
    monkeypatch.setattr(emitted, "_LOADED", MadeOnce())
    again = machine_code({"scaled": Emitted(Given, write)}, "test")
    x = np.arange(6, dtype=np.int32)
    assert scaled(again.address("scaled"), x, x, 5, -1.0) == -5
    with pytest.raises(TypeError):
        machine_code({"scaled": Emitted(Given, write)}, "another key")


def test_loops_of_two_processors_are_two(fresh, monkeypatch):
    """Whose instructions they are written in belongs to the key of what is kept on disk."""
    if lowering.host() is None:
        pytest.skip("no vector code for this processor")
    texts = []
    monkeypatch.setattr(native, "compile_text", lambda *x, real=native.compile_text: texts.append(x[0]) or real(*x))
    code = IntegerCode(8, 1, 1, 0, 1, 0)
    assert WarpLoop(code).address and WarpLoop(code).address
    assert len(texts) == 1
    plain = lowering.LoweringTarget(lowering.Lowering, frozenset())
    monkeypatch.setattr(lowering, "host", lambda: plain)
    assert WarpLoop(code).address
    assert len(texts) == 2 and texts[0] != texts[1]


class Counted(NamedTuple):
    """Arguments in words: numbers and arrays, some of them inside."""

    first: int
    pair: Pair
    last: int


def test_arguments_in_words_are_numbers_and_addresses_in_order() -> None:
    def body(v: VectorBuilder, given: Named) -> Any:
        """pair.y[last] = pair.x[first]; the sum of the two numbers."""
        x = v.load(given["pair"]["x"], I32, 4, v.b.shl(given["first"], v.int(2)))
        v.store(x, given["pair"]["y"], 4, v.b.shl(given["last"], v.int(2)))
        return v.b.add(given["first"], given["last"])

    code = machine_code({"counted": emitted.in_words(Counted, body)}, "test of arguments in words")
    x, y = np.array([10, 20, 30], np.int32), np.zeros(3, np.int32)
    assert emitted.run_in_words(code.address("counted"), Counted(2, Pair(x, y), 1)) == 3
    assert y.tolist() == [0, 30, 0]
