"""Declarations of variables and parameters, with their initialisers (PTX ISA chapter 5)."""

from __future__ import annotations

from nbtc.executor.text.cursor import Cursor
from nbtc.executor.text.data import WIDTHS, Generic, Immediate, Masked, Symbol, Variable


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
            align = max(align, *c.integers()) if not kind else align  # behind .ptr it tells what is pointed to
            while kind and c.next.kind == "integer":
                c.take()
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
    count: int | None = lanes
    while c.takes("["):
        extent = None if c.next.text == "]" else c.expression()
        count = None if extent is None or count is None else count * extent
        c.expect("]")
    initial: tuple[Immediate | Symbol | Generic | Masked, ...] = ()
    if c.takes("="):
        initial = tuple(_initial(c))
        count = len(initial) if count is None else count
    natural = max(1, WIDTHS[kind] // 8) * lanes
    return Variable(name, space, kind, count, align or natural, initial, external, line)


def _initial(c: Cursor) -> list[Immediate | Symbol | Generic | Masked]:
    """An initialiser, nested braces flattened."""
    if not c.takes("{"):
        return [_initial_value(c)]
    found = []
    while not c.takes("}"):
        found.extend(_initial(c))
        if c.next.text != "}":
            c.expect(",")
    return found


def _initial_value(c: Cursor) -> Immediate | Symbol | Generic | Masked:
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
