"""The interpolator's square, of which the least partial products are missing."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from llvmlite import ir

from nbtc.compiler.builder import I8, I32, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import LoweringTarget, host
from nbtc.compiler.cpu.plain_lowering import Lowering
from nbtc.compiler.machine_code import native
from nbtc.kernels.special_functions import SpecialFunctions

LANES, GENERIC = 32, LoweringTarget(Lowering, frozenset())


@pytest.mark.parametrize("target", [GENERIC, host() or GENERIC], ids=["generic", "this processor"])
def test_squares_lack_the_least_partial_products(target):
    """All 2**17 of them: x = 512 h + l, of 2 h l the bits below 2**18 are missing bit by bit of h, of l squared all."""
    module, pointer = ir.Module("squares"), I8.as_pointer()
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [pointer] * 2), "squares")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")), target)
    x = v.load(f.args[0], vector(I32, LANES), 4)
    v.store(SpecialFunctions(v, x).square(x), f.args[1], 4)
    v.b.ret_void()
    loaded = native.load(native.Native(native.compile_text(str(module)), {}))
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 2)(loaded.address("squares"))

    given = np.arange(1 << 17, dtype=np.int32)
    found = np.zeros_like(given)
    for n in range(0, given.size, LANES):
        call(given[n:].ctypes.data, found[n:].ctypes.data)
    high, low = given >> 9, given & 511
    want = (high * high >> 1) + sum((high >> p & 1) * (low << p >> 9) for p in range(1, 8))
    assert (found == want).all()
