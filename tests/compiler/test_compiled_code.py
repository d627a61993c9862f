"""What functions compiled by Numba hear of nbtc: instructions at their first use, and refusals in one line."""

from __future__ import annotations

import numba
import numpy as np
import pytest

import nbtc
from nbtc.errors import CompilerError
from tests.processes import forked, fresh, output

FORM = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
LOAD = nbtc.instruction("ldmatrix.sync.aligned.m8n8.x1.shared.b16")


def test_the_first_use_of_ptx_may_be_in_a_compiled_function() -> None:
    code = f"""
import numba, numpy as np, nbtc
a, b, c = (np.zeros((32, n), np.uint32) for n in (2, 1, 4))
print(numba.njit(lambda a, b, c: nbtc.ptx.mma_sync({FORM!r}, a, b, c))(a, b, c).shape)
"""
    assert output(fresh(code)) == "(32, 4)"


@pytest.mark.parametrize(
    ("kernel", "word"),
    [
        (lambda x: nbtc.wmma.float_to_tf32(x), "float_to_tf32"),
        (lambda x: nbtc.convert(x, "f16"), "convert"),
        (lambda x: nbtc.instruction(FORM), "instruction"),
        (lambda x: nbtc.ptx.mma_sp(FORM, x, x, x, x), "mma_sp"),
        (lambda x: nbtc.ptx.wmma_load(FORM, x, stride=3), "wmma_load"),
        (lambda x: nbtc.matmul(x, x, threads=1), "matmul"),
        (lambda x: LOAD(x, x, x), "ldmatrix"),
    ],
)
def test_what_works_from_python_alone_says_so(kernel: object, word: str) -> None:
    with pytest.raises(CompilerError, match="works from Python") as caught:
        numba.njit(kernel)(np.zeros((32, 4), np.uint32))
    assert word in str(caught.value) and "\n" not in str(caught.value)


def test_without_assertions_it_says_so_too() -> None:
    """Numba asks for a type in its assertions first, which python -O leaves out."""
    code = """
import numba, numpy as np, nbtc
try:
    numba.njit(lambda x: nbtc.convert(x, "f16"))(np.ones(3))
except nbtc.errors.CompilerError as error:
    print("works from Python" in str(error))
"""
    assert output(fresh(code, PYTHONOPTIMIZE="1")) == "True"


def test_objects_that_compiled_functions_cannot_take_say_so() -> None:
    identity = numba.njit(lambda x: x)
    with pytest.raises(CompilerError, match="works from Python"):
        identity(nbtc.wmma.fragment(nbtc.wmma.accumulator, 16, 16, 16, nbtc.f32))


def test_constants_come_back_as_they_are() -> None:
    identity = numba.njit(lambda x: x)
    for thing in (LOAD, nbtc.f16, nbtc.wmma.matrix_a, nbtc.wmma.bmmaBitOpAND):
        assert identity(thing) == thing


def test_an_interrupt_ends_the_call_and_not_the_compilation() -> None:
    """A compilation that stops half way leaves code that other kernels take for whole."""
    code = """
import os, signal, threading, time
from nbtc.compiler.jit import jit
signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever was inherited

@jit(cached=False)
def kernel(x):
    return x + x

compile = kernel._compiler.compile
def interrupted(*types):
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.5)
    return compile(*types)

kernel._compiler.compile = interrupted
try:
    kernel(1.0)
except KeyboardInterrupt:
    print("interrupted")
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join(60)
print(len(kernel.signatures), kernel(1.0))
"""
    assert output(forked(code)).split() == ["interrupted", "1", "2.0"]


ENTRY = """
import ctypes
from numba import types
from nbtc.compiler.jit import c_function

def made(factor):
    @c_function(types.int64(types.int64))
    def entry(x):
        return factor * x
    return entry

three, five = made(3), made(5)
calls = [ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(f.address)(7) for f in (three, five)]
print(calls, three.cache_hits, five.cache_hits)
"""


def test_c_functions_are_kept_on_disk(tmp_path) -> None:
    (tmp_path / "entry.py").write_text(ENTRY)
    run = f"import sys; sys.path.append({str(tmp_path)!r}); import entry"
    said = [output(forked(run, NUMBA_CACHE_DIR=str(tmp_path / "cache"))) for _ in range(2)]
    assert said == ["[21, 35] 0 0", "[21, 35] 1 1"]
