"""A thread's registers of an operand, as kernels hold them: tuples of numbers, or arrays of the thread's own.

Words are 32-bit registers, as in the images of the Python functions; a number of 32 bits in another type (float32) is
taken by its bits (`x.view(np.uint32)` shows them).  Elements of f64 are float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llvmlite import ir
from numba.core import types

from nbtc.dialect import words
from nbtc.dialect.vocabulary import rows
from nbtc.isa.spec import Operand

I32 = ir.IntType(32)


def check(kind: Any, size: int, label: str, f64: bool = False) -> None:
    """Refuse what can't be `size` registers (f64: float64 elements)."""
    plain = types.unliteral(kind)
    if isinstance(plain, types.Array):
        if plain.ndim != 1 or plain.layout != "C":
            words.refuse(f"{label}: registers are a 1-D array of the thread's own, such as nbtc.local(4, np.uint32)")
        return
    if not isinstance(plain, types.BaseTuple):
        words.refuse(f"{label}: {size} registers are a tuple of numbers or a local array, not {plain}")
    if len(plain) != size:
        words.refuse(f"{label}: this form has {size} registers, the tuple has {len(plain)}")
    for part in plain:
        _check_number(types.unliteral(part), label, f64)


def _check_number(kind: Any, label: str, f64: bool) -> None:
    good = isinstance(kind, types.Float) if f64 else isinstance(kind, types.Integer | types.Boolean)
    if not good and (f64 or getattr(kind, "bitwidth", 0) != 32):
        words.refuse(f"{label}: a register is {'a float64' if f64 else 'an integer or a float32'}, not {kind}")


def values(context: Any, builder: Any, kind: Any, value: Any, size: int, f64: bool = False) -> list[Any]:
    """The registers of a tuple or array that `check` let pass."""
    plain = types.unliteral(kind)
    if isinstance(plain, types.Array):
        first = context.make_array(plain)(context, builder, value).data
        first = builder.bitcast(first, (ir.DoubleType() if f64 else I32).as_pointer())
        return [builder.load(builder.gep(first, [ir.Constant(I32, n)])) for n in range(size)]
    parts = [builder.extract_value(value, n) for n in range(size)]
    return [word(context, builder, t, v, f64) for t, v in zip(plain, parts, strict=True)]


def word(context: Any, builder: Any, kind: Any, value: Any, f64: bool = False) -> Any:
    """One register: the bits of a float32, the low 32 bits of an integer, or a float64 (f64)."""
    if f64:
        return context.cast(builder, value, kind, types.float64)
    if types.unliteral(kind) == types.float32:
        return builder.bitcast(context.cast(builder, value, kind, types.float32), I32)
    return context.cast(builder, value, kind, types.uint32)


def is_f64(operand: Operand) -> bool:
    """Whether registers are float64 elements."""
    return operand.format.bits == 64


def result(size: int, f64: bool = False) -> Any:
    """The type of a tuple of registers."""
    return types.UniTuple(types.float64 if f64 else types.uint32, size)


def packed(context: Any, builder: Any, kind: Any, found: Sequence[Any]) -> Any:
    """Registers as the value of `result`."""
    return context.make_tuple(builder, kind, list(found))


def of(operand: Operand) -> tuple[int, bool]:
    """How many registers an operand has, and whether they are float64."""
    return rows.count(operand), is_f64(operand)
