"""Emitted functions: optimised apart from their callers, and joined to whatever becomes machine code."""

import llvmlite.binding as llvm
import pytest
from llvmlite import ir
from numba import njit
from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.jit import jit
from nbtc.compiler.library import EMITTED, emitted_function

I64 = ir.IntType(64)
NAME = "test_library_tripled"


@intrinsic
def tripled(typing, x):
    """3 * x by a function of its own."""

    def codegen(context, builder, sig, args):
        module = builder.module
        function = module.globals.get(EMITTED + NAME)
        if function is None:
            function = emitted_function(module, ir.FunctionType(I64, [I64]), NAME)
            inner = ir.IRBuilder(function.append_basic_block("entry"))
            inner.ret(inner.mul(function.args[0], I64(3)))
        return builder.call(function, args)

    return types.int64(types.int64), codegen


@jit(cached=False)
def inner(x):
    return tripled(x) + 1


@jit(cached=False)
def outer(x):
    return inner(x) + tripled(x)


def defined(code):
    return [f.name for f in code.functions if not f.is_declaration]


def test_callees_declare_what_is_emitted():
    assert outer(5) == 31
    (compiled,) = inner.for_callers.callee.overloads.values()
    library = compiled.library
    assert EMITTED + NAME not in defined(library.written_module())
    (code,) = library.emitted.values()
    assert defined(llvm.parse_bitcode(code)) == [EMITTED + NAME]


def test_machine_code_has_what_is_emitted():
    assert inner(7) == 22
    (compiled,) = inner.overloads.values()
    assert EMITTED + NAME in defined(compiled.library._final_module)


@pytest.mark.parametrize("called", [False, True], ids=["IR", "called from Python before"])
def test_functions_of_others_take_in_all(called):
    @jit(cached=False)
    def kernel(x):
        return tripled(x) - 1

    @njit
    def others(x):
        return kernel(x) + 1

    if called:
        assert kernel(1) == 2
    assert others(4) == 12
