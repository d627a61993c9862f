"""Integer arithmetic with a carry flag (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

The flag is a value like any other: a source or a result of type `cc`.  A subtraction adds the complement, as the
hardware does: its flag is the carry of that sum, set when nothing is borrowed.  The compiler's own 128-bit division
reads it that way with `addc` (program div128, recorded on an H200).
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import Emit, Form, Op, slots
from nbtc.executor.emit.values import const, resize, width
from nbtc.executor.scalar.integers import CARRYING, product


def _result(op: Op, value: Any, flag: Any) -> Any:
    return (value, flag) if op.has("cc") else value


def _sum(v: VectorBuilder, a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    """a + b + carry (None: no carry), and the carry out."""
    total = v.b.add(a, b)
    flag = v.b.icmp_unsigned("<", total, a)
    if carry is None:
        return total, flag
    more = v.b.add(total, carry)
    return more, v.b.or_(flag, v.b.icmp_unsigned("<", more, total))


def add(v: VectorBuilder, op: Op, a: Any, b: Any, carry: Any = None) -> Any:
    """add.cc, addc, addc.cc: a + b + carry."""
    return _result(op, *_sum(v, a, b, carry if carry is None else resize(v, carry, width(a))))


def sub(v: VectorBuilder, op: Op, a: Any, b: Any, carry: Any = None) -> Any:
    """sub.cc, subc, subc.cc: a - b - (1 - carry)."""
    one = const(v, a, 1) if carry is None else resize(v, carry, width(a))
    return _result(op, *_sum(v, a, v.b.not_(b), one))


def mad(v: VectorBuilder, op: Op, a: Any, b: Any, c: Any, carry: Any = None) -> Any:
    """mad.cc, madc, madc.cc: the .lo or .hi part of a * b, plus c and carry."""
    return add(v, op, product(v, op, a, b), c, carry)


def _rows(first: str, then: str, parts: tuple[str, ...], count: int, emit: Emit) -> list[Form]:
    """The three rows of an operation for each type: `first.cc` sets the flag, `then` takes it, `then.cc` does both."""
    rows = []
    for t in CARRYING:
        same = (t,) * count
        rows.append(Form(first, slots(*parts, "cc", t), same, (t, "cc"), emit))
        rows.append(Form(then, slots(*parts, t), (*same, "cc"), (t,), emit))
        rows.append(Form(then, slots(*parts, "cc", t), (*same, "cc"), (t, "cc"), emit))
    return rows


FORMS = (
    *_rows("add", "addc", (), 2, add),
    *_rows("sub", "subc", (), 2, sub),
    *_rows("mad", "madc", ("lo|hi",), 3, mad),
)
