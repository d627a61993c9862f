"""A call of machine code that Python makes as one native call: it compares, makes the result's array, and runs.

Of what is known beforehand nothing is done again in Python.  The newest of the calls that a product may be compares all
arguments, and what it is told to watch; only its own it runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils
from numpy.typing import NDArray

from nbtc.compiler.builder import I1, I32, I64
from nbtc.compiler.cpu.float_mode import enter, leave
from nbtc.compiler.machine_code.python_code import (
    AXES_AT,
    DATA_AT,
    DTYPE_AT,
    NULL,
    POINTER,
    SHAPE_AT,
    STRIDES_AT,
    TYPE_AT,
    PythonCode,
)

UNLIKE = -1  # what a call gives that is not for these arguments, or whose memory another thread uses
# NumPy's functions have places in a table that its releases keep (NumPy, "C API", `__multiarray_api.h`).
NUMPY_API: dict[str, tuple[int, tuple[ir.Type, ...]]] = {
    "PyArray_NewCopy": (85, (POINTER, I32)),
    "PyArray_Empty": (184, (I32, POINTER, POINTER, I32)),
}
C_ORDER = 0
# Of the object that a function is bound to, the places of: the type of arrays, the dtype of the result, the numbers
# below, what is watched, and the first object that an argument is compared with.
ARRAYS, DTYPE, STATE, WATCHED, FIRST = 0, 1, 2, 3, 5
# Places of numbers; the axes of the result, and then the function's words, come after them.
FUNCTION, LOCKED, FREE, DONE, OPERANDS, TO_COPY, AXES, WORDS, HEAD = range(9)
SIZE = 8


class PreparedCall(NamedTuple):
    """What is known of a call.

    address: of a function of words.  words: those that it finds, of which all but the first, the addresses of so many
    operands and of the result, are what they were.  shape, dtype: of the result.  whole: which operands are passed as
    they are; of the others a copy in C order.  done: what the function gives where the result stands.  locked: whether
    the words tell of memory that one thread at a time may use; kept: whatever has to live.
    """

    address: int
    words: NDArray[np.int64]
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    whole: tuple[bool, ...]
    done: int
    locked: bool
    kept: Any


def own_of(call: PreparedCall, watched: Sequence[list[Any]], objects: Sequence[object]) -> tuple[Any, ...]:
    """What the code of a call is bound to."""
    to_copy = sum(1 << n for n, whole in enumerate(call.whole) if not whole)
    state = np.array(
        [call.address, call.locked, 1, call.done, len(call.whole), to_copy, len(call.shape), len(call.words),
         *call.shape, *call.words], np.int64,
    )  # fmt: skip
    seen = tuple(x for one in watched for x in (one, tuple(one)))
    return np.ndarray, np.dtype(call.dtype), state, seen, call.kept, *objects


def numpy_addresses() -> dict[str, int]:
    """The functions of NumPy's that this code calls."""
    capsule: Any = np._core._multiarray_umath._ARRAY_API  # type: ignore[attr-defined]
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)
    table = pointer(("PyCapsule_GetPointer", ctypes.pythonapi))(capsule, None)
    functions = ctypes.cast(table, ctypes.POINTER(ctypes.c_void_p))
    return {name: functions[place] for name, (place, _) in NUMPY_API.items()}


def write_prepared(module: ir.Module) -> None:
    """`prepared(*arguments)`, whose first ones are operands."""
    alike = _write_alike(module)
    for name, (_, arguments) in NUMPY_API.items():
        ir.Function(module, ir.FunctionType(POINTER, arguments), name)
    w = PythonCode(module, "nbtc_prepared", POINTER, POINTER, POINTER, I64)
    _Prepared(w, alike).write()


class _Prepared:
    """Writes its body."""

    def __init__(self, w: PythonCode, alike: Any) -> None:
        self.w, self.b, self.v, self.alike = w, w.b, w.v, alike
        self.own, self.given, self.count = w.function.args
        self.unlike = w.function.append_basic_block("unlike")
        with w.b.goto_block(self.unlike):
            w.b.ret(w.python("PyLong_FromLongLong", self.v.int(UNLIKE)))

    def write(self) -> None:
        w, b, v = self.w, self.b, self.v
        fits = b.icmp_signed("==", b.add(self.count, v.int(FIRST)), w.python("PyTuple_Size", self.own))
        w.refuse_unless(fits)
        self.go_on_if(b.call(self.alike, [self.own, v.int(FIRST), self.given, self.count]))
        self.watch(self.item(self.own, WATCHED))
        self.state = v.load(self.item(self.own, STATE), POINTER, 8, DATA_AT)
        self.operands, copying = self.number(OPERANDS), b.icmp_signed("!=", self.number(TO_COPY), v.int(0))
        free = v.b.bitcast(v.at(self.state, FREE * SIZE), I64.as_pointer())
        locked = b.icmp_signed("!=", self.number(LOCKED), v.int(0))
        with b.if_then(locked):
            mine = b.atomic_rmw("xchg", free, v.int(0), "acquire")
            self.go_on_if(b.icmp_signed("!=", mine, v.int(0)))
        dtype = self.item(self.own, DTYPE)
        w.python("Py_IncRef", dtype)  # the new array takes a reference
        axes = b.trunc(self.number(AXES), I32)
        d = w.python("PyArray_Empty", axes, v.at(self.state, HEAD * SIZE), dtype, v.const(I32, 0))
        copies = b.alloca(POINTER, self.operands)
        made = cgutils.alloca_once_value(b, b.icmp_unsigned("!=", d, NULL))
        with b.if_then(copying, likely=False):
            self.copy(copies, made)
        result = cgutils.alloca_once_value(b, v.int(UNLIKE))
        with b.if_then(b.load(made)):
            b.store(self.run(d, copies, copying), result)
        with b.if_then(copying, likely=False), cgutils.for_range(b, self.operands) as loop:
            self.dispose(b.load(b.gep(copies, [loop.index])))
        with b.if_then(locked):
            b.store_atomic(v.int(1), free, "release", SIZE)
        with b.if_then(b.icmp_signed("==", b.load(result), self.number(DONE))):
            b.ret(d)
        self.dispose(d)
        w.go_on_if(b.load(made))
        b.ret(w.python("PyLong_FromLongLong", b.load(result)))

    def item(self, items: Any, place: int) -> Any:
        return self.w.python("PyTuple_GetItem", items, self.v.int(place))

    def number(self, place: int) -> Any:
        return self.v.load(self.state, I64, SIZE, place * SIZE)

    def go_on_if(self, condition: Any) -> None:
        """Otherwise these arguments are another call's."""
        goes = self.w.function.append_basic_block("goes")
        self.b.cbranch(condition, goes, self.unlike)
        self.b.position_at_end(goes)

    def dispose(self, x: Any) -> None:
        """Let an object go, if it is one."""
        with self.b.if_then(self.b.icmp_unsigned("!=", x, NULL)):
            self.w.python("Py_DecRef", x)

    def watch(self, seen: Any) -> None:
        """Lists, each with a tuple of the items that it had, have the same ones."""
        w, b, v = self.w, self.b, self.v
        with cgutils.for_range_slice(b, v.int(0), w.python("PyTuple_Size", seen), v.int(2), I64) as (n, _):
            now, then = (w.python("PyTuple_GetItem", seen, x) for x in (n, b.add(n, v.int(1))))
            size = w.python("PyTuple_Size", then)
            self.go_on_if(b.icmp_signed("==", size, w.python("PyList_Size", now)))
            with cgutils.for_range(b, size) as loop:
                pair = w.python("PyList_GetItem", now, loop.index), w.python("PyTuple_GetItem", then, loop.index)
                self.go_on_if(b.icmp_unsigned("==", *pair))

    def copy(self, copies: Any, made: Any) -> None:
        """Copies of the operands that are not passed as they are; null for the others."""
        w, b, v = self.w, self.b, self.v
        with cgutils.for_range(b, self.operands) as loop:
            place = b.gep(copies, [loop.index])
            b.store(NULL, place)
            wanted = b.icmp_signed("!=", b.and_(b.lshr(self.number(TO_COPY), loop.index), v.int(1)), v.int(0))
            with b.if_then(b.and_(wanted, b.load(made))):
                x = w.python("PyArray_NewCopy", self.argument(loop.index), v.const(I32, C_ORDER))
                b.store(x, place)
                b.store(b.icmp_unsigned("!=", x, NULL), made)

    def argument(self, index: Any) -> Any:
        v = self.v
        return v.load(v.at(self.given, self.b.mul(index, v.int(SIZE))), POINTER, SIZE)

    def run(self, d: Any, copies: Any, copying: Any) -> Any:
        """What the function gives."""
        w, b, v = self.w, self.b, self.v
        count = self.number(WORDS)
        words, place = b.bitcast(b.alloca(I64, count), POINTER), b.mul(self.number(AXES), v.int(SIZE))
        with cgutils.for_range(b, count) as loop:
            at = b.mul(loop.index, v.int(SIZE))
            v.store(v.load(v.at(self.state, b.add(place, at), HEAD * SIZE), I64, SIZE), v.at(words, at), SIZE)
        with cgutils.for_range(b, self.operands) as loop:
            array = cgutils.alloca_once_value(b, NULL)
            b.store(self.argument(loop.index), array)
            with b.if_then(copying, likely=False):
                own = b.load(b.gep(copies, [loop.index]))
                b.store(b.select(b.icmp_unsigned("!=", own, NULL), own, b.load(array)), array)
            address = v.load(b.load(array), I64, SIZE, DATA_AT)
            v.store(address, v.at(words, b.mul(loop.index, v.int(SIZE)), SIZE), SIZE)
        v.store(v.load(d, I64, SIZE, DATA_AT), v.at(words, b.mul(self.operands, v.int(SIZE)), SIZE), SIZE)
        function = b.inttoptr(self.number(FUNCTION), ir.FunctionType(I64, [POINTER]).as_pointer())
        return in_default_mode(w, function, words)


def in_default_mode(w: PythonCode, function: Any, words: Any) -> Any:
    """What a function of words gives, in the default floating-point mode, while other threads of Python run."""
    thread = w.python("PyEval_SaveThread")
    before = enter(w.v)
    result = w.b.call(function, [words])
    leave(w.v, before)
    w.python("PyEval_RestoreThread", thread)
    return result


def _write_alike(module: ir.Module) -> Any:
    """The function that says whether arguments are like the items of a tuple from one on."""
    w = PythonCode(module, "nbtc_alike", I1, POINTER, I64, POINTER, I64)
    w.function.linkage = "internal"
    b, v, (own, first, given, count) = w.b, w.v, w.function.args
    arrays = w.python("PyTuple_GetItem", own, v.int(ARRAYS))

    def same(x: Any, y: Any) -> None:
        w.go_on_if(b.icmp_unsigned("==", x, y))

    with cgutils.for_range(b, count) as loop:
        x = v.load(v.at(given, b.mul(loop.index, v.int(8))), POINTER, 8)
        y = w.python("PyTuple_GetItem", own, b.add(loop.index, first))
        with b.if_then(b.icmp_unsigned("!=", x, y)):
            for z in (x, y):
                same(v.load(z, POINTER, 8, TYPE_AT), arrays)
            same(v.load(x, POINTER, 8, DTYPE_AT), v.load(y, POINTER, 8, DTYPE_AT))
            axes = v.load(x, I32, 4, AXES_AT)
            same(axes, v.load(y, I32, 4, AXES_AT))
            places = [v.load(z, POINTER, 8, at) for at in (SHAPE_AT, STRIDES_AT) for z in (x, y)]
            with cgutils.for_range(b, b.zext(axes, I64)) as axis:
                at = b.mul(axis.index, v.int(8))
                sizes = [v.load(v.at(place, at), I64, 8) for place in places]
                same(sizes[0], sizes[1])
                same(sizes[2], sizes[3])
    b.ret(v.const(I1, 1))
    return w.function
