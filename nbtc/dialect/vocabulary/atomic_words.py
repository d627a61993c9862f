"""Atomic read-modify-write of array elements in shared, local and global memory (PTX ISA 9.7.13, `atom`).

Each returns what the element was before.  Order is relaxed, as in CUDA's atomic functions.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing import signature

from nbtc.dialect import language, words

HERE = language.__name__
LEAST_BITS = 16  # of an element; smaller ones would be exchanged together with what lies beside them
ORDER = "monotonic"  # LLVM's name for relaxed

# word -> LLVM's operation for signed integers, unsigned integers, floats; None where there is none
OPERATIONS = {
    "atomic_add": ("add", "add", "fadd"),
    "atomic_sub": ("sub", "sub", "fsub"),
    "atomic_and": ("and", "and", None),
    "atomic_or": ("or", "or", None),
    "atomic_xor": ("xor", "xor", None),
    "atomic_min": ("min", "umin", "fmin"),
    "atomic_max": ("max", "umax", "fmax"),
    "atomic_inc": (None, "uinc_wrap", None),
    "atomic_dec": (None, "udec_wrap", None),
    "atomic_exch": ("xchg", "xchg", "xchg"),
}


def _checked(name: str, array: Any, index: Any) -> Any:
    """The element type, if array and index can be used."""
    if not isinstance(array, types.Array):
        words.refuse(f"{name} takes an array and an index, not {array}")
    if not array.mutable:
        words.refuse(f"{name}: the array is read-only")
    plain = types.unliteral(index)
    parts = tuple(plain) if isinstance(plain, types.BaseTuple) else (plain,)
    if len(parts) != array.ndim or not all(isinstance(p, types.Integer) for p in parts):
        words.refuse(f"{name}: {array.ndim} integer indices are wanted, not {plain}")
    if not isinstance(array.dtype, types.Integer | types.Float) or array.dtype.bitwidth < LEAST_BITS:
        words.refuse(f"{name}: elements of {array.dtype} have no atomic operations: use 16, 32 or 64 bits")
    return array.dtype


def _address(context: Any, builder: Any, kinds: Any, values: Any) -> Any:
    """Where the element lies."""
    kind, index = kinds[0], kinds[1]
    array = context.make_array(kind)(context, builder, values[0])
    tuple_ = isinstance(index, types.BaseTuple)
    parts = cgutils.unpack_tuple(builder, values[1], len(index)) if tuple_ else [values[1]]
    types_ = list(index) if tuple_ else [index]
    indices = [context.cast(builder, v, t, types.intp) for v, t in zip(parts, types_, strict=True)]
    return cgutils.get_item_pointer(context, builder, kind, array, indices, wraparound=True)


def _operation(name: str, element: Any) -> str:
    signed, unsigned, real = OPERATIONS[name]
    integer = signed if getattr(element, "signed", False) else unsigned
    found = real if isinstance(element, types.Float) else integer
    if found is None:
        wanted = "unsigned integers" if signed is None else "integers"
        words.refuse(f"{name} works on {wanted}, not on {element}")
    return found


def _row(name: str) -> None:
    def typing(context: Any, array: Any, index: Any, value: Any) -> Any:
        element = _checked(name, array, index)
        operation = _operation(name, element)

        def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
            address = _address(c, b, s.args, a)
            return _updated(b, operation, address, c.cast(b, a[2], s.args[2], element))

        return signature(element, array, index, value), emit

    typing.__name__ = name
    words.word(f"{HERE}.{name}")(typing)


def _updated(builder: Any, operation: str, address: Any, value: Any) -> Any:
    """atomicrmw, of the bits where only those are exchanged."""
    if operation == "xchg" and not isinstance(value.type, ir.IntType):
        bits = ir.IntType({"half": 16, "float": 32, "double": 64}[str(value.type)])
        place = builder.bitcast(address, bits.as_pointer())
        return builder.bitcast(builder.atomic_rmw("xchg", place, builder.bitcast(value, bits), ORDER), value.type)
    return builder.atomic_rmw(operation, address, value, ORDER)


for _name in OPERATIONS:
    _row(_name)


@words.word(f"{HERE}.atomic_cas")
def _atomic_cas(context: Any, array: Any, index: Any, expected: Any, value: Any) -> Any:
    element = _checked("atomic_cas", array, index)

    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        address = _address(c, b, s.args, a)
        old, new = (c.cast(b, v, t, element) for v, t in zip(a[2:], s.args[2:], strict=True))
        if isinstance(element, types.Integer):
            return b.extract_value(b.cmpxchg(address, old, new, ORDER, ORDER), 0)
        bits = ir.IntType(element.bitwidth)
        place = b.bitcast(address, bits.as_pointer())
        pair = b.cmpxchg(place, b.bitcast(old, bits), b.bitcast(new, bits), ORDER, ORDER)
        return b.bitcast(b.extract_value(pair, 0), old.type)

    return signature(element, array, index, expected, value), emit
