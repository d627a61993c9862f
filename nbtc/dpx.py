"""The DPX functions of CUDA C++: fused add, three-way minimum and maximum, clamped or with predicates.

They are the inner step of dynamic programming (sequence alignment, shortest paths).  Names are CUDA's without the
leading underscores, and semantics follow the CUDA C++ Programming Guide ("Dynamic Programming eXtension (DPX)"):
additions wrap and never saturate.  Every function works

* from Python on anything that broadcasts to arrays, like a NumPy ufunc, with `out=`; scalars in give scalars out;
* inside a function compiled by Numba, on integer scalars, as a few inlined instructions.  Integers of up to 32 bits
  are taken as bits there; 64-bit ones, such as Numba makes of a sum, must lie in the function's range (RangeError).

Operands and results are int32 for `s32`, and uint32 words for all others.  A word of `s16x2` or `u16x2` holds two
independent 16-bit numbers: bits 0..15 and bits 16..31.  Other integer arrays are taken if their values fit.

`vibmax_*` and `vibmin_*` return the value and, as booleans, whether the first operand was taken (also on a tie); the x2
forms return two of them, that of the *high* half first.  Their `out=` is a tuple of as many arrays.

Errors: FormatError for operands that are not integers and for an `out` of another type, RangeError for values outside
the function's type, ShapeError for shapes that do not broadcast; in all cases before anything is written.

>>> import numpy as np
>>> scores = np.array([[3, -2], [8, 1]], np.int32)
>>> viaddmax_s32(scores, -4, np.array([0, -9], np.int32))     # max(scores - 4, limit), the limit broadcast
array([[ 0, -6],
       [ 4, -3]], dtype=int32)
>>> best = np.empty_like(scores)
>>> vimax3_s32_relu(scores, -1, [2, -7], out=best) is best
True
>>> best
array([[3, 0],
       [8, 1]], dtype=int32)
"""

from __future__ import annotations

from typing import Any, Protocol

from numpy.typing import ArrayLike

from nbtc.numba_door.registry import refresh_numba_registry as _refresh_numba_registry
from nbtc.numerics.dpx import ADD, ROWS, DpxRow
from nbtc.ops import dpx as _ops


class TwoOperands(Protocol):
    """A DPX function of two operands."""

    def __call__(self, a: ArrayLike, b: ArrayLike, *, out: Any = None) -> Any: ...


class ThreeOperands(Protocol):
    """A DPX function of three operands."""

    def __call__(self, a: ArrayLike, b: ArrayLike, c: ArrayLike, *, out: Any = None) -> Any: ...


def _formula(row: DpxRow) -> str:
    if row.scheme == ADD:
        formula = f"{row.pick}(a + b, c)"
    else:
        formula = f"{row.pick}({', '.join('abc'[: row.arity])})"
    return f"max({formula}, 0)" if row.relu else formula


_LANES = {
    "s32": "signed 32-bit integers (int32)",
    "u32": "unsigned 32-bit integers (uint32)",
    "s16x2": "uint32 words of two signed 16-bit numbers each",
    "u16x2": "uint32 words of two unsigned 16-bit numbers each",
}


def _document(function: Any, row: DpxRow, example: str, result: str) -> None:
    """Name, docstring and the example that `pytest --doctest-modules` runs."""
    relation = "a <= b" if row.pick == "min" else "a >= b"
    given = ", ".join("abc"[: row.arity])
    notes = [f"On {_LANES[row.format]}; shapes broadcast; `out=` takes the result."]
    if row.scheme == ADD:
        notes.append(f"The sum wraps in {'16' if row.packed else '32'} bits before the comparison.")
    if row.predicates:
        returned = "(value, high, low)" if row.packed else "(value, predicate)"
        notes.append(f"Returns {returned}: true where {relation}, so also on a tie.")
    run = f"{row.name}({example})"
    if row.predicates:
        shown = f"[{'hex(int(x))' if row.packed else 'int(x)'} for x in {run}]"
    else:
        shown = f"{'hex' if row.packed else 'int'}({run})"
    notes.append("Raises FormatError, RangeError or ShapeError (see above).  CUDA C++ Programming Guide, DPX.")
    body = "\n".join(f"    {line}" for line in [*notes, "", f">>> {shown}", result])
    function.__doc__ = f"{_formula(row)}: `{row.name}({given})`.\n\n{body}\n    "
    function.__name__ = function.__qualname__ = row.name
    _ops.register(function, row)


def _two(name: str, example: str, result: str) -> TwoOperands:
    row = ROWS[name]

    def function(a: ArrayLike, b: ArrayLike, *, out: Any = None) -> Any:
        return _ops.call(row, (a, b), out)

    _document(function, row, example, result)
    return function


def _three(name: str, example: str, result: str) -> ThreeOperands:
    row = ROWS[name]

    def function(a: ArrayLike, b: ArrayLike, c: ArrayLike, *, out: Any = None) -> Any:
        return _ops.call(row, (a, b, c), out)

    _document(function, row, example, result)
    return function


# One line a function: its name, an example, and the result worked out by hand.
vimax_s32_relu: TwoOperands = _two("vimax_s32_relu", "-7, -3", "0")
vimax_s16x2_relu: TwoOperands = _two("vimax_s16x2_relu", "0x0005FFFF, 0x0009FFFE", "'0x90000'")
vimin_s32_relu: TwoOperands = _two("vimin_s32_relu", "7, 3", "3")
vimin_s16x2_relu: TwoOperands = _two("vimin_s16x2_relu", "0x00050004, 0xFFFF0006", "'0x4'")

vimax3_s32: ThreeOperands = _three("vimax3_s32", "-15, 8, 5", "8")
vimax3_s16x2: ThreeOperands = _three("vimax3_s16x2", "0xFFFF0001, 0xFFFE0002, 0xFFFD0003", "'0xffff0003'")
vimax3_u32: ThreeOperands = _three("vimax3_u32", "1, 0xFFFFFFFF, 5", "4294967295")
vimax3_u16x2: ThreeOperands = _three("vimax3_u16x2", "0x00050002, 0x00070004, 0x00020006", "'0x70006'")
vimax3_s32_relu: ThreeOperands = _three("vimax3_s32_relu", "-15, -2, -4", "0")
vimax3_s16x2_relu: ThreeOperands = _three("vimax3_s16x2_relu", "0xFFFF0001, 0xFFFE0002, 0xFFFD0003", "'0x3'")

vimin3_s32: ThreeOperands = _three("vimin3_s32", "-15, 8, 5", "-15")
vimin3_s16x2: ThreeOperands = _three("vimin3_s16x2", "0xFFFF0001, 0xFFFE0002, 0xFFFD0003", "'0xfffd0001'")
vimin3_u32: ThreeOperands = _three("vimin3_u32", "9, 0xFFFFFFFF, 5", "5")
vimin3_u16x2: ThreeOperands = _three("vimin3_u16x2", "0x00050002, 0x00070004, 0xFFFF0006", "'0x50002'")
vimin3_s32_relu: ThreeOperands = _three("vimin3_s32_relu", "15, 2, 4", "2")
vimin3_s16x2_relu: ThreeOperands = _three("vimin3_s16x2_relu", "0x00050002, 0x00070004, 0xFFFF0006", "'0x2'")

viaddmax_s32: ThreeOperands = _three("viaddmax_s32", "2147483647, 1, -5", "-5")
viaddmax_s16x2: ThreeOperands = _three("viaddmax_s16x2", "0x0001FFFF, 0x00010001, 0x0000FFFE", "'0x20000'")
viaddmax_u32: ThreeOperands = _three("viaddmax_u32", "0xFFFFFFFF, 3, 1", "2")
viaddmax_u16x2: ThreeOperands = _three("viaddmax_u16x2", "0x0001FFFF, 0x00010003, 0x00050001", "'0x50002'")
viaddmax_s32_relu: ThreeOperands = _three("viaddmax_s32_relu", "-5, 4, -2", "0")
viaddmax_s16x2_relu: ThreeOperands = _three("viaddmax_s16x2_relu", "0xFFFB0003, 0x00040004, 0xFFFE0001", "'0x7'")

viaddmin_s32: ThreeOperands = _three("viaddmin_s32", "-5, 6, 3", "1")
viaddmin_s16x2: ThreeOperands = _three("viaddmin_s16x2", "0x7FFF0003, 0x00010004, 0x00000009", "'0x80000007'")
viaddmin_u32: ThreeOperands = _three("viaddmin_u32", "0xFFFFFFFF, 3, 9", "2")
viaddmin_u16x2: ThreeOperands = _three("viaddmin_u16x2", "0x0001FFFF, 0x00010003, 0x00050001", "'0x20001'")
viaddmin_s32_relu: ThreeOperands = _three("viaddmin_s32_relu", "-5, 4, 7", "0")
viaddmin_s16x2_relu: ThreeOperands = _three("viaddmin_s16x2_relu", "0xFFFB0003, 0x00040004, 0x00010009", "'0x7'")

vibmax_s32: TwoOperands = _two("vibmax_s32", "-6, 9", "[9, 0]")
vibmax_u32: TwoOperands = _two("vibmax_u32", "9, 6", "[9, 1]")
vibmax_s16x2: TwoOperands = _two("vibmax_s16x2", "0xFFFF0004, 0x00010004", "['0x10004', '0x0', '0x1']")
vibmax_u16x2: TwoOperands = _two("vibmax_u16x2", "0xFFFF0004, 0x00010005", "['0xffff0005', '0x1', '0x0']")
vibmin_s32: TwoOperands = _two("vibmin_s32", "-6, 9", "[-6, 1]")
vibmin_u32: TwoOperands = _two("vibmin_u32", "9, 6", "[6, 0]")
vibmin_s16x2: TwoOperands = _two("vibmin_s16x2", "0xFFFF0004, 0x00010003", "['0xffff0003', '0x1', '0x0']")
vibmin_u16x2: TwoOperands = _two("vibmin_u16x2", "0xFFFF0004, 0x00010004", "['0x10004', '0x0', '0x1']")

_refresh_numba_registry()

__all__ = sorted(ROWS)
