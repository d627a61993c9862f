"""Declarations of variables and parameters, with their initialisers (PTX ISA chapter 5)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from nbtc.executor.text.cursor import Cursor
from nbtc.executor.text.data import WIDTHS, Generic, Immediate, Masked, Symbol, Variable

Initial = Immediate | Symbol | Generic | Masked
ZERO = Immediate(0)
FLOATS = ("f16", "f32", "f64", "f16x2", "bf16", "bf16x2", "tf32")


def parameters(c: Cursor) -> tuple[Variable, ...]:
    """`(.param .u64 a, .reg .b32 b)`"""
    c.expect("(")
    found: list[Variable] = []
    while not c.takes(")"):
        found.extend(variables(c, external=False))
        if c.next.text != ")":
            c.expect(",")
    return tuple(found)


def variables(c: Cursor, external: bool, several: bool = False) -> list[Variable]:
    """`.global .align 4 .b8 table[2] = {1, 2}`: a declaration up to its `;`, or one parameter of a list."""
    space_token = c.take()
    space, align, kind, lanes = space_token.text[1:].split("::")[0], 0, "", 1
    while c.next.text[:1] == ".":
        word = c.take()
        if word.text == ".align":
            number = c.number()
            align = max(align, number) if not kind else align  # after .ptr it tells what is pointed to
        elif word.text in (".v2", ".v4", ".v8"):
            lanes = int(word.text[2:])
        elif word.text == ".attribute":
            attribute(c)
        elif word.text[1:] in WIDTHS:
            kind = word.text[1:]
        elif word.text not in (".ptr", ".global", ".const", ".shared", ".local", ".param"):
            c.fail("no part of a declaration", word)
    if not kind:
        c.fail("a type such as .b32 should stand before the name")
    found = [_variable(c, (space, kind, align, lanes), external)]
    while several and c.takes(","):
        found.append(_variable(c, (space, kind, align, lanes), external))
    return found


def attribute(c: Cursor) -> None:
    """`.attribute(.managed)`: read and left aside."""
    c.takes(".attribute")
    c.expect("(")
    while not c.takes(")"):
        c.take()


def _variable(c: Cursor, what: tuple[str, str, int, int], external: bool) -> Variable:
    space, kind, align, lanes = what
    line, name = c.next.line, c.name()
    extents: list[int | None] = [lanes] if lanes > 1 else []
    while c.takes("["):
        token = c.next
        extent = None if token.text == "]" else c.expression()
        extents.append(extent)
        if extent is not None and extent < 0:
            c.fail(f"{name} has an extent of {extent}", token)
        if extent is None and len(extents) > 1 + (lanes > 1):
            c.fail(f"only the first extent of {name} may be left open", token)
        c.expect("]")
    if lanes > 1:
        extents = [*extents[1:], lanes]
    inner = prod(e for e in extents[1:] if e is not None)
    first = extents[0] if extents else 1
    count = None if first is None else inner * first
    initial: tuple[Initial, ...] = ()
    if c.takes("="):
        initial = tuple(_initial(c, extents, kind))
        count = len(initial) if count is None else count
    natural = max(1, WIDTHS[kind] // 8) * lanes
    return Variable(name, space, kind, count, align or natural, initial, external, line)


def _initial(c: Cursor, extents: Sequence[int | None], kind: str) -> list[Initial]:
    """An initialiser's elements in the order of memory; what braces leave out is 0, as in C (PTX ISA 5.4.4)."""
    token = c.next
    if not c.takes("{"):
        value = _initial_value(c)
        if isinstance(value, Immediate) and value.float_bits and kind not in FLOATS:
            c.fail(f"a float can't initialise a .{kind}; its type is .f32 or .f64", token)
        return [value]
    inner = prod(e for e in extents[1:] if e is not None)
    found: list[Initial] = []
    while not c.takes("}"):
        nested = c.next.text == "{"
        found += [ZERO] * (-len(found) % inner) if nested else []
        found += _initial(c, extents[1:], kind)
        if c.next.text != "}":
            c.expect(",")
    most = inner * extents[0] if extents and extents[0] is not None else None
    if most is not None and len(found) > most:
        c.fail(f"{len(found)} values for {most} elements", token)
    wanted = most if most is not None else -(-len(found) // inner) * inner
    return found + [ZERO] * (wanted - len(found))


def _initial_value(c: Cursor) -> Initial:
    token = c.next
    if token.kind == "integer" and c.peek(1).text == "(" and c.peek(2).kind == "name":  # 0xFF00(symbol)
        mask = c.integers()[0]
        c.expect("(")
        symbol = _initial_value(c)
        c.expect(")")
        if not isinstance(symbol, Symbol | Generic):
            c.fail("a mask takes the address of a variable", token)
        return Masked(mask, symbol)
    if token.kind != "name":
        return c.constant()
    name = c.name()
    if name != "generic":
        return Symbol(name, _moved(c))
    c.expect("(")
    name = c.name()
    c.expect(")")
    return Generic(name, _moved(c))


def _moved(c: Cursor) -> int:
    return c.expression() if c.next.text in ("+", "-") else 0
