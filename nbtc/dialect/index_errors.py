"""What is wrong with an index, or with an array where a number is needed, by Numba's message and the line's source."""

from __future__ import annotations

import ast
import linecache
import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from numba.core import types
from numba.core.ir import Loc

from nbtc.dialect.language import Index3, block_dim, block_idx, grid_dim, thread_idx

REGISTERS: dict[str, Index3] = {x.register: x for x in (thread_idx, block_idx, block_dim, grid_dim)}
REGISTER = re.compile(rf"\bnbtc\.({'|'.join(REGISTERS)})\b")
SIGNATURE = re.compile(r">>> (\w+)\((.*)\)")  # of the operation that Numba has no code for
ARRAY = re.compile(r"array\([\w.]+, \d+d, \w+\)")
NUMBER = re.compile(r"(?:Literal\[int\]\(|u?int\d|float\d|complex\d|bool)")  # the first operand is no array
NUMBERS = re.compile(r"Function\(<(built-in function|class)")  # Python's operators and maths, not functions of nbtc
FLOAT_INDEX = re.compile(rf"{ARRAY.pattern}, (?:(?:Uni)?Tuple\([^()]*)?float\d+")
LETTERS = "ijklmnpqrs"
SUFFIX = re.compile(r"\.\d+$")  # Numba numbers the assignments to a name


def index_reason(text: str, trace: TracebackType | None, loc: Loc | None) -> str | None:
    """A sentence about an operation that has no code; None where neither an index nor an array is to blame."""
    register = REGISTER.search(text)
    if register:
        name = REGISTERS[register[1]].name
        return f"{name} has .x, .y and .z: write nbtc.{name}.x"
    found = SIGNATURE.search(text)
    if found is not None and found[1].endswith("item") and NUMBER.match(found[2]):
        return "a number is indexed, which has no elements: pass an array in its place, or drop the index"
    if found is None or ARRAY.search(found[2]) is None:
        return None
    if found[1].endswith("item") and FLOAT_INDEX.match(found[2]):
        return "an index must be a whole number: use // where / divides, or int(...)"
    shapes = list(_indexed(_nodes(loc), _ranks(trace)))
    too_many = next((_too_many(s, rank) for s, rank in shapes if _indices(s) > rank), None)
    if found[1].endswith("getitem"):
        return too_many
    if found[1].endswith("setitem") and ARRAY.search(found[2].partition("), ")[2]) is None:
        return too_many
    rows = next((_row(s, rank) for s, rank in shapes if _indices(s) < rank), None)
    if NUMBERS.search(text) is None:
        return rows
    return rows or "an array stands where a number is needed: index it, in a loop over its elements if need be"


def changed_row(trace: TracebackType | None, loc: Loc | None) -> str | None:
    """The same of `x[i] *= 2` with an x of two dimensions: a row, of which Numba would allocate another."""
    nodes, ranks = list(_nodes(loc)), _ranks(trace)
    operands: list[ast.AST] = [n.target for n in nodes if isinstance(n, ast.AugAssign)]
    operands += [side for n in nodes if isinstance(n, ast.BinOp) for side in (n.left, n.right)]
    return next((_row(s, rank) for s, rank in _indexed(operands, ranks) if _indices(s) < rank), None)


def has(loc: Loc | None, kind: type[ast.AST]) -> bool:
    """Whether a line of a source has a part of this kind of Python's syntax."""
    operators = (getattr(node, "op", None) for node in _nodes(loc))
    return any(isinstance(node, kind) for node in (*operators, *_nodes(loc)))


def _nodes(loc: Loc | None) -> Iterator[ast.AST]:
    """The parts of Python's syntax that a line of a source has."""
    if loc is None:
        return
    try:
        tree = ast.parse("".join(linecache.getlines(loc.filename)))
    except SyntaxError:  # a notebook's cell with commands in it, say
        return
    for node in ast.walk(tree):
        if getattr(node, "lineno", loc.line + 1) <= loc.line <= (getattr(node, "end_lineno", None) or 0):
            yield node


def _ranks(trace: TracebackType | None) -> dict[str, int]:
    """How many dimensions the arrays of a function have, by name: Numba's typing and lowering keep types at hand."""
    held: Mapping[str, Any] = {}
    while trace is not None:
        owner = getattr(trace.tb_frame.f_locals.get("self"), "__dict__", {})
        held = owner.get("typevars") or getattr(owner.get("fndesc"), "typemap", None) or held
        trace = trace.tb_next
    kinds = {SUFFIX.sub("", name): getattr(kind, "type", kind) for name, kind in dict(held).items()}
    return {name: kind.ndim for name, kind in kinds.items() if isinstance(kind, types.Array)}


def _indexed(nodes: Any, ranks: Mapping[str, int]) -> Iterator[tuple[ast.Subscript, int]]:
    """Indexed names of arrays, and how many dimensions each has."""
    for node in nodes:
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id in ranks:
            yield node, ranks[node.value.id]


def _parts(node: ast.Subscript) -> list[ast.expr]:
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def _indices(node: ast.Subscript) -> int:
    return len(_parts(node))


def _too_many(node: ast.Subscript, rank: int) -> str:
    name, own = ast.unparse(node.value), ast.unparse(node)
    fit = ", ".join(map(ast.unparse, _parts(node)[:rank]))
    return (
        f"{name} has {rank} dimension{'s' if rank != 1 else ''} and {own} names {_indices(node)}: index {name}[{fit}]"
    )


def _row(node: ast.Subscript, rank: int) -> str:
    name, own = ast.unparse(node.value), ast.unparse(node)
    given = [ast.unparse(part) for part in _parts(node)]
    used = {n.id for n in ast.walk(node.slice) if isinstance(n, ast.Name)} | {"i"}
    free = [letter for letter in LETTERS if letter not in used]
    whole = ", ".join([*given, *free[: rank - len(given)]])
    what = "a row" if rank - len(given) == 1 else "an array"
    return f"{name} has {rank} dimensions and {own} is {what}: index {name}[{whole}]"
