"""Kernels that kernels call: callers take in their IR, and Python may call them all the same."""

import numpy as np
import pytest
from numba import njit

from nbtc.compiler.jit import jit
from nbtc.compiler.library import CalleeLibrary
from tests.processes import forked, output


@jit(cached=False)
def thrice(x):
    return x + x + x


@jit(cached=False)
def plus_thrice(x, y):
    return x + thrice(y)


@jit(cached=False)
def factorial(n):
    return n * factorial(n - 1) if n > 1 else 1


def test_callers_take_what_python_cannot_call():
    assert plus_thrice(1, 2) == 7
    callee = thrice.for_callers.callee
    (compiled,) = callee.overloads.values()
    assert isinstance(compiled.library, CalleeLibrary) and not thrice.overloads
    assert thrice(2) == 6 and len(thrice.overloads) == 1  # machine code of its own, when it is asked for


def test_callers_take_what_python_called_before():
    @jit(cached=False)
    def inner(x):
        return x - 1.0

    @jit(cached=False)
    def outer(x):
        return inner(x) * inner(x)

    assert inner(3.0) == 2.0 and outer(4.0) == 9.0
    assert not inner.for_callers.callee.overloads


def test_a_kernel_may_call_itself():
    @jit(cached=False)
    def twice(n):
        return 2 * factorial(n)

    assert twice(5) == 240 and factorial(4) == 24


def test_functions_of_others_call_kernels():
    @njit
    def outer(x):
        return plus_thrice(x[0], x[1])

    assert outer(np.array([1.0, 2.0])) == 7.0


def test_an_error_of_a_callee_reaches_python():
    @jit(cached=False)
    def checked(n):
        if n < 0:
            raise ValueError("below zero")
        return np.full(n, 2.0)

    @jit(cached=False)
    def outer(n):
        return checked(n).sum()

    assert outer(3) == 6.0
    with pytest.raises(ValueError, match="below zero"):
        outer(-1)


def test_instructions_named_in_text_are_understood_in_every_process():
    """A caller's process may have written none of the text itself; LLVM ends it then, so that a new one must try."""
    script = (
        "import llvmlite.binding as llvm, nbtc.compiler.jit\n"
        "llvm.initialize_native_target(); llvm.initialize_native_asmprinter()\n"
        'text = \'define void @f() { call void asm sideeffect "nop", ""() ret void }\'\n'
        "machine = llvm.Target.from_default_triple().create_target_machine()\n"
        "assert machine.emit_object(llvm.parse_assembly(text))\n"
    )
    assert output(forked(script)) == ""
