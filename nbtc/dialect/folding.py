"""Whole numbers that a kernel's constants determine, computed before its types are: `(TILE, TILE + 1)`, `2 * N`, and
the fields of frozen dataclasses and named tuples.

Numba types the sum of two constants as any int64, which no shape may be. Alternative: literal types for arithmetic,
which would have to be registered for every operator, and make each constant loop's body typed twice.
"""

from __future__ import annotations

import dataclasses
import operator
from collections import namedtuple
from collections.abc import Callable
from types import ModuleType
from typing import Any

from numba.core import compiler, ir
from numba.core.compiler_machinery import FunctionPass, register_pass
from numba.core.untyped_passes import ReconstructSSA

OPERATORS = frozenset(
    (
        operator.add, operator.sub, operator.mul, operator.floordiv, operator.mod, operator.pow, operator.lshift,
        operator.rshift, operator.and_, operator.or_, operator.xor, operator.neg, operator.pos, operator.invert,
        operator.iadd, operator.isub, operator.imul, operator.ifloordiv, operator.imod, operator.ilshift,
        operator.irshift, operator.iand, operator.ior, operator.ixor,
    )
)  # fmt: skip
# Beyond a word Python computes them, and a kernel computes something else.
LIMITED = (operator.pow, operator.lshift, operator.ilshift, operator.rshift, operator.irshift)
FUNCTIONS = (min, max, abs, int, len)
MOST = 1 << 63  # int64, as the same arithmetic has it in a kernel
UNKNOWN = object()


def is_record(x: Any) -> bool:
    """Whether it has fields that never change."""
    parameters = getattr(type(x), "__dataclass_params__", None)
    return (parameters is not None and parameters.frozen) or (isinstance(x, tuple) and hasattr(x, "_fields"))


class _Folder:
    """Constants of one function."""

    def __init__(self, function: Any) -> None:
        self.definitions = function._definitions

    def value(self, variable: Any) -> Any:
        """What a variable always is; UNKNOWN where it is assigned more than once, or by more than constants."""
        found = self.definitions.get(variable.name, ())
        return self.meaning(found[0]) if len(found) == 1 else UNKNOWN

    def meaning(self, x: Any) -> Any:
        """The constant that an expression stands for."""
        if isinstance(x, ir.Const | ir.Global | ir.FreeVar):
            return x.value
        if isinstance(x, ir.Var):
            return self.value(x)
        return self.computed(x) if isinstance(x, ir.Expr) else UNKNOWN

    def computed(self, x: Any) -> Any:
        """What an operator, or a function of constants, gives."""
        if x.op in ("binop", "inplace_binop"):
            return _number(x.fn, [self.value(x.lhs), self.value(x.rhs)])
        if x.op == "unary":
            return _number(x.fn, [self.value(x.value)])
        if x.op == "getattr":
            owner = self.value(x.value)
            known = owner is not UNKNOWN and (is_record(owner) or isinstance(owner, ModuleType))
            return getattr(owner, x.attr, UNKNOWN) if known else UNKNOWN
        if x.op == "static_getitem":
            return _item(self.value(x.value), x.index)
        if x.op == "call" and not x.kws and not x.vararg:
            function = self.value(x.func)
            if any(function is known for known in FUNCTIONS):
                return _number(function, [self.value(a) for a in x.args])
        return UNKNOWN


def _item(owner: Any, index: Any) -> Any:
    fits = isinstance(owner, tuple) and type(index) is int and -len(owner) <= index < len(owner)
    return owner[index] if fits else UNKNOWN


def _number(function: Callable[..., Any], values: list[Any]) -> Any:
    """A whole number of whole numbers; anything else is left to the kernel's own arithmetic."""
    if function is len:
        return len(values[0]) if len(values) == 1 and isinstance(values[0], tuple) else UNKNOWN
    if function not in OPERATORS and function not in FUNCTIONS:
        return UNKNOWN
    if not all(type(v) is int and abs(v) < MOST for v in values) or (function in LIMITED and not 0 <= values[1] < 64):
        return UNKNOWN
    try:
        found = function(*values)
    except (ArithmeticError, ValueError, TypeError):
        return UNKNOWN
    return found if type(found) is int and abs(found) < MOST else UNKNOWN


@register_pass(mutates_CFG=False, analysis_only=False)
class FoldConstants(FunctionPass):  # type: ignore[misc]
    """Replaces such expressions, and drops what only they named."""

    _name = "nbtc_fold_constants"

    def __init__(self) -> None:
        FunctionPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        """Fold in one function."""
        function = state.func_ir
        folder, changed = _Folder(function), False
        for block in function.blocks.values():
            for statement in block.find_insts(ir.Assign):
                if isinstance(statement.value, ir.Expr):
                    found = folder.computed(statement.value)
                    if type(found) in (int, float, bool, str):
                        statement.value = ir.Const(found, statement.value.loc)
                        function._definitions[statement.target.name] = [statement.value]
                        changed = True
        while changed and _drop_unused(function):
            pass
        return changed


def _drop_unused(function: Any) -> bool:
    """Remove temporary names of constants, some of which (dataclasses) have no type; whether there were any."""
    used = {name for block in function.blocks.values() for s in block.body for name in _read(s)}
    dropped = False
    for block in function.blocks.values():
        kept = [s for s in block.body if not (_names_a_constant(s) and s.target.name not in used)]
        dropped |= len(kept) < len(block.body)
        block.body = kept
    return dropped


def _read(statement: Any) -> set[str]:
    """Names of the variables that a statement reads."""
    if not isinstance(statement, ir.Assign):
        return {v.name for v in statement.list_vars()}
    value = statement.value
    if isinstance(value, ir.Var):
        return {value.name}
    return {v.name for v in value.list_vars()} if isinstance(value, ir.Expr) else set()


def _names_a_constant(statement: Any) -> bool:
    if not isinstance(statement, ir.Assign) or not statement.target.name.startswith("$"):
        return False
    value = statement.value
    return isinstance(value, ir.Global | ir.FreeVar | ir.Const) or (
        isinstance(value, ir.Expr) and value.op == "getattr"
    )


class Compiler(compiler.CompilerBase):  # type: ignore[misc]
    """Numba's compiler with this pass."""

    def define_pipelines(self) -> list[Any]:
        """Its own passes, and this one after the names of a function have one definition each."""
        manager = compiler.DefaultPassBuilder.define_nopython_pipeline(self.state)
        manager.add_pass_after(FoldConstants, ReconstructSSA)
        manager.finalize()
        return [manager]


_tuples: dict[type, Callable[..., Any]] = {}  # named tuples of the fields of dataclasses


def as_named_tuple(x: Any) -> Any:
    """A frozen dataclass as a named tuple of its fields, which kernels take by value."""
    kind = type(x)
    make = _tuples.get(kind)
    if make is None:
        make = _tuples[kind] = namedtuple(kind.__name__, [f.name for f in dataclasses.fields(x)])
    return make(*(getattr(x, f.name) for f in dataclasses.fields(x)))
