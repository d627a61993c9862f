"""Machine code that Python calls without a dispatcher of Numba's: functions of emitted code by their addresses.

For its first kernel a process sets up all that Numba can compile, and then takes as long again for one that does no
more than hand arguments on: 0.4 s of a processor of a first product.  The two functions here are LLVM's text, written
once, and follow Python's convention for functions of C (Python/C API, "Common Object Structures", METH_FASTCALL and
METH_O); a call takes a fraction of a microsecond.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config

from nbtc.compiler.builder import F64, I1, I8, I32, I64, VectorBuilder
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu.float_mode import enter, leave, switched
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.machine_code import native
from nbtc.errors import CompilerError

POINTER = I8.as_pointer()
NULL = ir.Constant(POINTER, None)
# Parts of a description of arguments: a whole number, a float, an array, a tuple's begin and end.
NUMBER, FLOAT, ARRAY, OPEN, CLOSE = b"ifa()"
METH_FASTCALL, METH_O = 0x80, 0x08
TUPLE_FLAG = 1 << 26  # Py_TPFLAGS_TUPLE_SUBCLASS
# An object begins with its reference count, in free-threaded builds more; its type is the last word of that.  An array
# goes on with the address of its data, the number of its axes (32 bits), the addresses of its shape and of its strides,
# its base and its dtype (NumPy, "Python types and C-structures", PyArrayObject).
HEADER = object.__basicsize__
TYPE_AT, DATA_AT = HEADER - 8, HEADER
AXES_AT, SHAPE_AT, STRIDES_AT, DTYPE_AT = (HEADER + n for n in (8, 16, 24, 40))
API: dict[str, tuple[ir.Type, tuple[ir.Type, ...]]] = {
    "PyBytes_AsString": (POINTER, (POINTER,)),
    "PyBytes_Size": (I64, (POINTER,)),
    "PyErr_BadArgument": (I32, ()),
    "PyErr_Occurred": (POINTER, ()),
    "PyEval_RestoreThread": (ir.VoidType(), (POINTER,)),
    "PyEval_SaveThread": (POINTER, ()),
    "PyFloat_AsDouble": (F64, (POINTER,)),
    "PyLong_AsLongLong": (I64, (POINTER,)),
    "PyLong_AsUnsignedLongLongMask": (I64, (POINTER,)),
    "PyLong_FromLongLong": (POINTER, (I64,)),
    "PyTuple_GetItem": (POINTER, (POINTER, I64)),
    "PyTuple_Size": (I64, (POINTER,)),
    "PyType_GetFlags": (I64, (POINTER,)),
    "PyType_IsSubtype": (I32, (POINTER, POINTER)),
}


DISABLED = (
    "NUMBA_DISABLE_JIT is set, but nbtc computes in compiled code only: unset it for nbtc, for example "
    "NUMBA_DISABLE_JIT=0 (kernels of your own can stay Python functions without their decorator)"
)


class _Method(ctypes.Structure):
    """Python's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("code", ctypes.c_void_p), ("flags", ctypes.c_int), ("doc", ctypes.c_char_p),
    )  # fmt: skip


class PythonCalls(NamedTuple):
    """run, like: addresses of functions for a description of arguments (`caller`) and for arrays (`likeness`).

    control_word: `float_mode.switched`.  loaded: their code.
    """

    loaded: native.Loaded
    run: int
    like: int
    control_word: Callable[[int], int]


_METHODS: list[_Method] = []  # functions point to theirs


def _function(name: str, address: int, flags: int, own: Any) -> Callable[..., Any]:
    """A builtin function; own: the object that its code gets first."""
    method = _Method(name.encode(), address, flags, None)
    _METHODS.append(method)
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = kind(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(method), own, None)
    return made


def caller(description: bytes) -> Callable[[int, tuple[Any, ...]], int]:
    """What calls the function at an address with arguments of a description: (address, arguments) -> its result.

    The function takes them as words (`emitted.Words`), in the default floating-point mode, while other threads of
    Python run.  Arguments of another structure raise TypeError.
    """
    return _function("run", calls().run, METH_FASTCALL, (description, np.ndarray))


def likeness(*objects: object) -> Callable[..., int]:
    """What says whether as many objects are these: the same, or arrays with the dtypes, shapes and strides of arrays.

    1 if so; 0 may also be said of dtypes that are equal, but not the same object.  Of two arrays it takes a fifth of
    the time in which Python makes tuples of all that and compares them.
    """
    return _function("like", calls().like, METH_FASTCALL, (np.ndarray, *objects))


@cache
def calls() -> PythonCalls:
    """The functions of this process."""
    if config.DISABLE_JIT:
        raise CompilerError(DISABLED)
    loaded = _loaded()
    word = _function("control_word", loaded.address("nbtc_control_word"), METH_O, None)
    return PythonCalls(loaded, loaded.address("nbtc_run"), loaded.address("nbtc_like"), word)


@rarely_collected
def _loaded() -> native.Loaded:
    llvm = native.binding()
    for name in API:
        llvm.add_symbol(name, ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value)
    key = native.digest("python_calls", source_digest(Path(__file__).resolve()), str(HEADER))
    found = native.fetch(key)
    if found is None:
        found = native.Native(native.compile_text(_text(), None), {})
        native.keep(key, found)
    return native.load(found)


def _text() -> str:
    module = ir.Module("python_calls")
    module.triple = native.target()[0]
    for name, (result, arguments) in API.items():
        ir.Function(module, ir.FunctionType(result, arguments), name)
    _write_control_word(module)
    _write_run(module, _write_flattened(module))
    _write_like(module)
    return str(module)


class _Writer:
    """Writes a function that calls Python's; `fails` is where it goes with an error that is set."""

    def __init__(self, module: ir.Module, name: str, result: ir.Type, *arguments: ir.Type) -> None:
        self.function = ir.Function(module, ir.FunctionType(result, arguments), name)
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.v = VectorBuilder(None, self.b)
        self.fails = self.function.append_basic_block("fails")
        with self.b.goto_block(self.fails):
            self.b.ret(ir.Constant(result, None if result == POINTER else 0))

    def python(self, name: str, *arguments: Any) -> Any:
        return self.b.call(self.b.module.globals[name], arguments)

    def go_on_if(self, condition: Any) -> None:
        """Fail otherwise."""
        goes = self.function.append_basic_block("goes")
        self.b.cbranch(condition, goes, self.fails)
        self.b.position_at_end(goes)

    def fail_where(self, x: Any, error: Any) -> None:
        """Fail if a result says that there may be an error, and there is one."""
        suspect = self.b.fcmp_ordered("==", x, error) if x.type == F64 else self.b.icmp_signed("==", x, error)
        with self.b.if_then(suspect, likely=False):
            self.go_on_if(self.b.icmp_unsigned("==", self.python("PyErr_Occurred"), NULL))

    def refuse_unless(self, condition: Any) -> None:
        """A TypeError otherwise."""
        with self.b.if_then(self.b.not_(condition), likely=False):
            self.python("PyErr_BadArgument")
            self.b.branch(self.fails)
            self.b.position_at_end(self.function.append_basic_block("never"))

    def next_word(self, place: Any, size: int) -> Any:
        """The address that a place holds, which then holds the next one."""
        at = self.b.load(place)
        self.b.store(self.v.at(at, size), place)
        return at


def _write_control_word(module: ir.Module) -> None:
    """`control_word(word)`."""
    w = _Writer(module, "nbtc_control_word", POINTER, POINTER, POINTER)
    word = w.python("PyLong_AsLongLong", w.function.args[1])
    w.fail_where(word, w.v.int(-1))
    w.b.ret(w.python("PyLong_FromLongLong", switched(w.v, word)))


def _write_run(module: ir.Module, flattened: Any) -> None:
    """`run(address, arguments)`, bound to a description and the type of arrays."""
    w = _Writer(module, "nbtc_run", POINTER, POINTER, POINTER, I64)
    b, v, (own, given, count) = w.b, w.v, w.function.args
    w.refuse_unless(b.icmp_signed("==", count, v.int(2)))
    address, arguments = (v.load(given, POINTER, 8, 8 * n) for n in range(2))
    description = w.python("PyTuple_GetItem", own, v.int(0))
    words = b.bitcast(b.alloca(I64, w.python("PyBytes_Size", description)), POINTER)  # a letter for each, and more
    reading, writing = b.alloca(POINTER), b.alloca(POINTER)
    b.store(w.python("PyBytes_AsString", description), reading)
    b.store(words, writing)
    number = w.python("PyLong_AsUnsignedLongLongMask", address)
    w.fail_where(number, v.int(-1))
    w.go_on_if(b.call(flattened, [arguments, reading, writing, w.python("PyTuple_GetItem", own, v.int(1))]))
    thread = w.python("PyEval_SaveThread")
    before = enter(v)
    result = b.call(b.inttoptr(number, ir.FunctionType(I64, [POINTER]).as_pointer()), [words])
    leave(v, before)
    w.python("PyEval_RestoreThread", thread)
    b.ret(w.python("PyLong_FromLongLong", result))


def _write_like(module: ir.Module) -> None:
    """`like(*objects)`, bound to the type of arrays and to as many objects."""
    w = _Writer(module, "nbtc_like", POINTER, POINTER, POINTER, I64)
    b, v, (own, given, count) = w.b, w.v, w.function.args
    w.refuse_unless(b.icmp_signed("==", b.add(count, v.int(1)), w.python("PyTuple_Size", own)))
    arrays, unlike = w.python("PyTuple_GetItem", own, v.int(0)), w.function.append_basic_block("unlike")
    with b.goto_block(unlike):
        b.ret(w.python("PyLong_FromLongLong", v.int(0)))

    def same(x: Any, y: Any) -> None:
        goes = w.function.append_basic_block("same")
        b.cbranch(b.icmp_unsigned("==", x, y), goes, unlike)
        b.position_at_end(goes)

    with cgutils.for_range(b, count) as loop:
        x = v.load(v.at(given, b.mul(loop.index, v.int(8))), POINTER, 8)
        y = w.python("PyTuple_GetItem", own, b.add(loop.index, v.int(1)))
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
    b.ret(w.python("PyLong_FromLongLong", v.int(1)))


def _write_flattened(module: ir.Module) -> Any:
    """The function that writes a tuple's items as words: whether they are as described, a Python error is set if not.

    Of the tuple, where the place in the description and the next word's are kept, and the type of arrays.
    """
    place = POINTER.as_pointer()
    w = _Writer(module, "nbtc_flattened", I1, POINTER, place, place, POINTER)
    w.function.linkage = "internal"
    b, v, (items, reading, writing, arrays) = w.b, w.v, w.function.args
    flags = w.python("PyType_GetFlags", v.load(items, POINTER, 8, TYPE_AT))
    w.refuse_unless(b.icmp_signed("!=", b.and_(flags, v.int(TUPLE_FLAG)), v.int(0)))
    with cgutils.for_range(b, w.python("PyTuple_Size", items)) as loop:
        item = w.python("PyTuple_GetItem", items, loop.index)
        kind = v.load(w.next_word(reading, 1), I8)
        done = b.append_basic_block("done")
        wrong = b.append_basic_block("wrong")
        choice = b.switch(kind, wrong)
        b.position_at_end(wrong)
        w.refuse_unless(ir.Constant(I1, 0))
        b.branch(done)
        for letter in (NUMBER, FLOAT, ARRAY, OPEN):
            here = b.append_basic_block(chr(letter) if letter != OPEN else "inner")
            choice.add_case(ir.Constant(I8, letter), here)
            b.position_at_end(here)
            if letter == OPEN:
                w.go_on_if(b.call(w.function, [item, reading, writing, arrays]))
            else:
                word = _word(w, letter, item, arrays)
                v.store(word, w.next_word(writing, 8), 8)
            b.branch(done)
        b.position_at_end(done)
    w.refuse_unless(b.icmp_signed("==", v.load(w.next_word(reading, 1), I8), ir.Constant(I8, CLOSE)))
    b.ret(ir.Constant(I1, 1))
    return w.function


def _word(w: _Writer, letter: int, item: Any, arrays: Any) -> Any:
    """A number, or the address of an array's data."""
    b, v = w.b, w.v
    if letter == NUMBER:
        number = w.python("PyLong_AsUnsignedLongLongMask", item)
        w.fail_where(number, v.int(-1))
        return number
    if letter == FLOAT:
        x = w.python("PyFloat_AsDouble", item)
        w.fail_where(x, ir.Constant(F64, -1.0))
        return x
    kind = v.load(item, POINTER, 8, TYPE_AT)
    with b.if_then(b.icmp_unsigned("!=", kind, arrays), likely=False):
        w.refuse_unless(b.icmp_signed("!=", w.python("PyType_IsSubtype", kind, arrays), ir.Constant(I32, 0)))
    return v.load(item, I64, 8, DATA_AT)
