"""Machine code that Python calls without a dispatcher of Numba's: functions of emitted code by their addresses.

For its first kernel a process sets up all that Numba can compile, and then takes as long again for one that does no
more than hand arguments on: 0.4 s of a processor of a first product.  The functions here are LLVM's text, written
once, and follow Python's convention for functions of C (Python/C API, "Common Object Structures", METH_FASTCALL and
METH_O); a call takes a fraction of a microsecond.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils, config

from nbtc.compiler.builder import F64, I1, I8, I32, I64
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu.float_mode import switched
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.machine_code import native
from nbtc.compiler.machine_code.made_once import MadeOnce
from nbtc.compiler.machine_code.prepared_calls import (
    PreparedCall,
    in_default_mode,
    numpy_addresses,
    own_of,
    write_prepared,
)
from nbtc.compiler.machine_code.python_code import API, DATA_AT, HEADER, POINTER, TYPE_AT, PythonCode
from nbtc.errors import CompilerError

# Parts of a description of arguments: a whole number, a float, an array, a tuple's begin and end.
NUMBER, FLOAT, ARRAY, OPEN, CLOSE = b"ifa()"
METH_FASTCALL, METH_O = 0x80, 0x08
TUPLE_FLAG = 1 << 26  # Py_TPFLAGS_TUPLE_SUBCLASS
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
    """run, prepared: addresses of functions for a description of arguments (`caller`), and for a call that is known.

    control_word: `float_mode.switched`.  loaded: their code.
    """

    loaded: native.Loaded
    run: int
    prepared: int
    control_word: Callable[[int], int]


_METHODS: dict[tuple[str, int], _Method] = {}  # functions point to theirs


def _function(name: str, address: int, flags: int, own: Any) -> Callable[..., Any]:
    """A builtin function; own: the object that its code gets first."""
    method = _METHODS.setdefault((name, address), _Method(name.encode(), address, flags, None))
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)
    made: Callable[..., Any] = kind(("PyCFunction_NewEx", ctypes.pythonapi))(ctypes.addressof(method), own, None)
    return made


def caller(description: bytes) -> Callable[[int, tuple[Any, ...]], int]:
    """What calls the function at an address with arguments of a description: (address, arguments) -> its result.

    The function takes them as words (`emitted.Words`), in the default floating-point mode, while other threads of
    Python run.  Arguments of another structure raise TypeError.
    """
    return _function("run", calls().run, METH_FASTCALL, (description, np.ndarray))


def prepared(call: PreparedCall, watched: Sequence[list[Any]], *objects: object) -> Callable[..., Any]:
    """What makes a call for as many arguments, if they are like these objects: operands come first.

    They are like them if they are the same, or arrays with the dtypes, shapes and strides of arrays; dtypes that are
    equal, but not the same object, need not be.  Of two arrays that takes a fifth of the time in which Python makes
    tuples of all that and compares them.  It gives the result's array; the function's number where that says that the
    result does not stand; or `UNLIKE` for other arguments, while another thread uses the call's memory, and when the
    items of a list have changed that is watched.
    """
    return _function("prepared", calls().prepared, METH_FASTCALL, own_of(call, watched, objects))


_CALLS = MadeOnce()  # no thread may let go what another one runs


@cache
def calls() -> PythonCalls:
    """The functions of this process."""
    if config.DISABLE_JIT:
        raise CompilerError(DISABLED)
    found: PythonCalls = _CALLS.get("calls", _made)
    return found


def _made() -> PythonCalls:
    loaded = _loaded()
    word = _function("control_word", loaded.address("nbtc_control_word"), METH_O, None)
    return PythonCalls(loaded, loaded.address("nbtc_run"), loaded.address("nbtc_prepared"), word)


@rarely_collected
def _loaded() -> native.Loaded:
    llvm = native.binding()
    python = {name: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value for name in API}
    for name, address in (python | numpy_addresses()).items():
        llvm.add_symbol(name, address)
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
    write_prepared(module)
    return str(module)


def _write_control_word(module: ir.Module) -> None:
    """`control_word(word)`."""
    w = PythonCode(module, "nbtc_control_word", POINTER, POINTER, POINTER)
    word = w.python("PyLong_AsLongLong", w.function.args[1])
    w.fail_where(word, w.v.int(-1))
    w.b.ret(w.python("PyLong_FromLongLong", switched(w.v, word)))


def _write_run(module: ir.Module, flattened: Any) -> None:
    """`run(address, arguments)`, bound to a description and the type of arrays."""
    w = PythonCode(module, "nbtc_run", POINTER, POINTER, POINTER, I64)
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
    function = b.inttoptr(number, ir.FunctionType(I64, [POINTER]).as_pointer())
    b.ret(w.python("PyLong_FromLongLong", in_default_mode(w, function, words)))


def _write_flattened(module: ir.Module) -> Any:
    """The function that writes a tuple's items as words: whether they are as described, a Python error is set if not.

    Of the tuple, where the place in the description and the next word's are kept, and the type of arrays.
    """
    place = POINTER.as_pointer()
    w = PythonCode(module, "nbtc_flattened", I1, POINTER, place, place, POINTER)
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


def _word(w: PythonCode, letter: int, item: Any, arrays: Any) -> Any:
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
