"""Integer arithmetic with a carry flag (PTX ISA, "Extended-Precision Integer Arithmetic Instructions").

The flag is a value like any other: a source or a result of type `cc`.  After a subtraction it is the borrow.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.form import Emit, Form, Op, slots
from nbtc.executor.integers import CARRYING, product
from nbtc.executor.values import resize, width


def _result(op: Op, value: Any, flag: Any) -> Any:
    return (value, flag) if op.has("cc") else value


def add(v: VectorBuilder, op: Op, a: Any, b: Any, carry: Any = None) -> Any:
    """add.cc, addc, addc.cc: a + b + carry."""
    total = v.b.add(a, b)
    flag = v.b.icmp_unsigned("<", total, a)
    if carry is not None:
        before = total
        total = v.b.add(before, resize(v, carry, width(a)))
        flag = v.b.or_(flag, v.b.icmp_unsigned("<", total, before))
    return _result(op, total, flag)


def sub(v: VectorBuilder, op: Op, a: Any, b: Any, borrow: Any = None) -> Any:
    """sub.cc, subc, subc.cc: a - (b + borrow)."""
    difference = v.b.sub(a, b)
    flag = v.b.icmp_unsigned("<", a, b)
    if borrow is not None:
        one = resize(v, borrow, width(a))
        flag = v.b.or_(flag, v.b.icmp_unsigned("<", difference, one))
        difference = v.b.sub(difference, one)
    return _result(op, difference, flag)


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
