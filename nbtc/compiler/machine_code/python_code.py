"""Writes machine code that calls Python: what it knows of objects, and what each such function has."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import F64, I8, I32, I64, VectorBuilder

POINTER = I8.as_pointer()
NULL = ir.Constant(POINTER, None)
# An object begins with its reference count, in free-threaded builds more; its type is the last word of that.  An array
# goes on with the address of its data, the number of its axes (32 bits), the addresses of its shape and of its strides,
# its base and its dtype (NumPy, "Python types and C-structures", PyArrayObject).
HEADER = object.__basicsize__
TYPE_AT, DATA_AT = HEADER - 8, HEADER
AXES_AT, SHAPE_AT, STRIDES_AT, DTYPE_AT = (HEADER + n for n in (8, 16, 24, 40))
API: dict[str, tuple[ir.Type, tuple[ir.Type, ...]]] = {
    "Py_DecRef": (ir.VoidType(), (POINTER,)),
    "Py_IncRef": (ir.VoidType(), (POINTER,)),
    "PyBytes_AsString": (POINTER, (POINTER,)),
    "PyBytes_Size": (I64, (POINTER,)),
    "PyErr_BadArgument": (I32, ()),
    "PyErr_Occurred": (POINTER, ()),
    "PyEval_RestoreThread": (ir.VoidType(), (POINTER,)),
    "PyEval_SaveThread": (POINTER, ()),
    "PyFloat_AsDouble": (F64, (POINTER,)),
    "PyList_GetItem": (POINTER, (POINTER, I64)),
    "PyList_Size": (I64, (POINTER,)),
    "PyLong_AsLongLong": (I64, (POINTER,)),
    "PyLong_AsUnsignedLongLongMask": (I64, (POINTER,)),
    "PyLong_FromLongLong": (POINTER, (I64,)),
    "PyTuple_GetItem": (POINTER, (POINTER, I64)),
    "PyTuple_Size": (I64, (POINTER,)),
    "PyType_GetFlags": (I64, (POINTER,)),
    "PyType_IsSubtype": (I32, (POINTER, POINTER)),
}


class PythonCode:
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
