"""Loops in functions that are written instruction by instruction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, VectorBuilder

Values = dict[Any, Any]  # that change from turn to turn, by what they are


def repeated(
    v: VectorBuilder, first: Any, last: Any, step: int, values: Values, body: Callable[[Any, Values], Values]
) -> Values:
    """body(n, values) gives the values after each turn; returns those after the last one.

    n counts from `first` by `step` while it is below `last`; there is at least one turn.
    """
    b, before = v.b, v.b.block
    turn, end = b.append_basic_block("turn"), b.append_basic_block("done")
    b.branch(turn)
    b.position_at_end(turn)
    n, old = b.phi(first.type), {key: b.phi(x.type) for key, x in values.items()}
    new = body(n, old)
    following = b.add(n, ir.Constant(n.type, step))
    for phi, start, after in [(n, first, following), *((old[key], values[key], new[key]) for key in values)]:
        phi.add_incoming(start, before)
        phi.add_incoming(after, b.block)
    b.cbranch(b.icmp_signed("<", following, last), turn, end)
    b.position_at_end(end)
    return new


def for_lanes(v: VectorBuilder, mask: Any, body: Callable[[Any], None]) -> None:
    """body(lane), an i32, for the set bits of an i32 mask in ascending order."""
    b = v.b
    before, inside, end = b.block, b.append_basic_block("lane"), b.append_basic_block("lanes_done")
    b.cbranch(b.icmp_unsigned("==", mask, ir.Constant(I32, 0)), end, inside)
    b.position_at_end(inside)
    left = b.phi(I32)
    left.add_incoming(mask, before)
    body(v.call("llvm.cttz.i32", I32, left, ir.Constant(I1, 1)))
    rest = b.and_(left, b.sub(left, ir.Constant(I32, 1)))
    left.add_incoming(rest, b.block)
    b.cbranch(b.icmp_unsigned("==", rest, ir.Constant(I32, 0)), end, inside)
    b.position_at_end(end)
