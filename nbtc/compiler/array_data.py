"""Calls with arrays of any dtype, shape and layout, which are passed by the address of their data.

Numba has a type for each dtype, number of axes and layout, and compiles its callers for each.  Here all arrays are of
one, so that what passes them on is compiled once, and a call takes a tenth of a microsecond for each.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.extending import NativeValue, intrinsic, register_model, unbox

from nbtc.compiler.builder import I8, I64
from nbtc.compiler.jit import jit

POINTER = I8.as_pointer()
# Numba's structure of an array: owner, parent, items and size of one, data, then shape and strides (NumPy: 64 axes)
BEFORE_DATA, WORDS = 4, 5 + 2 * 64


class DataType(types.Type):  # type: ignore[misc, unused-ignore]
    """The type of any array that is passed by the address of its data."""

    def __init__(self) -> None:
        super().__init__("nbtc.array_data")


DATA = DataType()
register_model(DataType)(models.OpaqueModel)


@unbox(DataType)  # type: ignore[untyped-decorator, unused-ignore]
def _data(kind: Any, x: Any, c: Any) -> Any:
    """The address; what is no array raises, as Numba's own adaptor finds."""
    b = c.builder
    with b.goto_entry_block():
        place = b.alloca(ir.ArrayType(I64, WORDS))
    adapt = c.pyapi._get_function(ir.FunctionType(ir.IntType(32), [c.pyapi.pyobj, POINTER]), name="numba_adapt_ndarray")
    failed = b.icmp_signed("!=", b.call(adapt, [x, b.bitcast(place, POINTER)]), ir.Constant(ir.IntType(32), 0))
    with b.if_then(failed, likely=False):
        c.pyapi.err_set_string("PyExc_TypeError", "not an array")
    data = b.load(b.gep(place, [ir.Constant(I64, 0), ir.Constant(I64, BEFORE_DATA)]))
    return NativeValue(b.inttoptr(data, c.context.get_value_type(kind)), is_error=failed)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def _call(typing, address, words, a, b, d):
    def codegen(context, builder, sig, args):
        pointers = [builder.bitcast(x, POINTER) for x in args[1:]]
        kind = ir.FunctionType(I64, [POINTER] * len(pointers))
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), pointers)

    return types.int64(types.int64, *[DATA] * 4), codegen


@jit
def _drive(address, words, a, b, d):
    return _call(address, words, a, b, d)


@cache
def drive_arrays() -> Any:
    """What calls the emitted function at an address, of four pointers: (address, words, a, b, d) -> its result.

    The arrays' layouts are for the caller to know.
    """
    return _drive.compile((types.int64, *[DATA] * 4))
