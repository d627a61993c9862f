"""Expressions of 64-bit integers, from Python's syntax to LLVM's instructions (see `integer_code`)."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, NamedTuple, Protocol

from llvmlite import ir

from nbtc.errors import CompilerError

I1, I64 = ir.IntType(1), ir.IntType(64)
# A value: an int that is known now, an i64 or i1 of LLVM's, or a tuple of values.
Value = Any
Primitives = dict[Any, Callable[..., Value]]  # what is called by name in the source, and emits code with the builder
_KNOWN: dict[type, Callable[..., int]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor,
}  # fmt: skip
_PLAIN = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.LShift: "shl", ast.RShift: "ashr", ast.BitAnd: "and_",
    ast.BitOr: "or_", ast.BitXor: "xor",
}  # fmt: skip
_COMPARED = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class IntegerFunction(NamedTuple):
    """A function in LLVM, and how many words it gives; None: nothing."""

    code: ir.Function
    results: int | None


class IntegerFunctions(Protocol):
    """What may be called."""

    primitives: Primitives

    def of(self, function: FunctionType, shape: tuple[int, ...], inline: bool = False) -> IntegerFunction:
        """For arguments of so many words each; inline: merged into its callers."""
        ...


def load(bits: int, signed: bool = True) -> Callable[..., Value]:
    """A primitive f(address): an integer in memory."""

    def emit(b: ir.IRBuilder, address: Value) -> Value:
        kind = ir.IntType(bits)
        found = b.load(b.inttoptr(address, kind.as_pointer()), align=1)
        return found if bits == I64.width else (b.sext if signed else b.zext)(found, I64)

    return emit


def store(bits: int) -> Callable[..., Value]:
    """A primitive f(address, value)."""

    def emit(b: ir.IRBuilder, address: Value, value: Value) -> Value:
        kind = ir.IntType(bits)
        narrow = value if bits == I64.width else b.trunc(value, kind)
        b.store(narrow, b.inttoptr(address, kind.as_pointer()), align=1)

    return emit


class Expressions:
    """Writes those of one function, and keeps its variables."""

    def __init__(self, functions: IntegerFunctions, names: dict[str, Any], function: IntegerFunction) -> None:
        self.functions, self.names, self.function = functions, names, function
        self.entry = ir.IRBuilder(function.code.append_basic_block("entry"))
        self.b = ir.IRBuilder(function.code.append_basic_block("body"))
        self.variables: dict[str, list[Any]] = {}

    def _refuse(self, node: ast.AST) -> Any:
        name = self.function.code.name
        raise CompilerError(f"{name}, line {getattr(node, 'lineno', 0)}: {type(node).__name__} of code for words alone")

    def _block(self, name: str) -> Any:
        return self.function.code.append_basic_block(name)

    # --- variables ---
    def _variable(self) -> Any:
        return self.entry.alloca(I64)

    def _assign(self, name: str, value: Value) -> None:
        words = [self.word(x) for x in (value if isinstance(value, tuple) else (value,))]
        places = self.variables.setdefault(name, [self._variable() for _ in words])
        for word, place in zip(words, places, strict=True):
            self.b.store(word, place)

    def _read(self, name: str) -> Value:
        if name not in self.variables:
            return self.names[name]
        words = tuple(self.b.load(place) for place in self.variables[name])
        return words if len(words) > 1 else words[0]

    # --- expressions ---
    def value(self, node: ast.expr) -> Value:
        """What an expression gives."""
        return getattr(self, f"_of_{type(node).__name__}", self._refuse)(node)

    def word(self, x: Value) -> Any:
        """As an i64."""
        if isinstance(x, ir.Value):
            return x if x.type == I64 else self.b.zext(x, I64)
        return ir.Constant(I64, _wrapped(int(x)))

    def truth(self, x: Value) -> Any:
        """As an i1."""
        if isinstance(x, ir.Value) and x.type == I1:
            return x
        return self.b.icmp_signed("!=", self.word(x), self.word(0))

    def _of_Constant(self, node: ast.Constant) -> int:
        return int(node.value) if isinstance(node.value, int) else self._refuse(node)

    def _of_Name(self, node: ast.Name) -> Value:
        return self._known(self._read(node.id), node)

    def _of_Attribute(self, node: ast.Attribute) -> Value:
        owner = self.names.get(node.value.id) if isinstance(node.value, ast.Name) else None
        return self._known(getattr(owner, node.attr), node) if isinstance(owner, ModuleType) else self._refuse(node)

    def _known(self, x: Any, node: ast.AST) -> Value:
        """A constant of a module, or a variable."""
        if isinstance(x, ir.Value | tuple):
            return x
        return int(x) if hasattr(x, "__index__") else self._refuse(node)

    def _of_Tuple(self, node: ast.Tuple) -> Value:
        return tuple(self.value(x) for x in node.elts)

    def _of_Subscript(self, node: ast.Subscript) -> Value:
        owner, index = self.value(node.value), self.value(node.slice)
        return owner[index] if isinstance(owner, tuple) and isinstance(index, int) else self._refuse(node)

    def _of_UnaryOp(self, node: ast.UnaryOp) -> Value:
        x = self.value(node.operand)
        if isinstance(node.op, ast.Not):
            return int(not x) if isinstance(x, int) else self.b.not_(self.truth(x))
        if isinstance(node.op, ast.USub):
            return -x if isinstance(x, int) else self.b.neg(self.word(x))
        return ~x if isinstance(x, int) else self.b.not_(self.word(x))

    def _of_BinOp(self, node: ast.BinOp) -> Value:
        return self._arithmetic(node.op, self.value(node.left), self.value(node.right), node)

    def _arithmetic(self, op: ast.operator, x: Value, y: Value, node: ast.AST) -> Value:
        if isinstance(x, int) and isinstance(y, int) and type(op) in _KNOWN:
            return _KNOWN[type(op)](x, y)
        if isinstance(x, tuple) or isinstance(y, tuple):
            self._refuse(node)
        if type(op) in _PLAIN:
            return getattr(self.b, _PLAIN[type(op)])(self.word(x), self.word(y))
        if type(op) not in _KNOWN:
            self._refuse(node)
        if isinstance(y, int) and y > 0 and y & (y - 1) == 0:
            whole = isinstance(op, ast.FloorDiv)
            x = self.word(x)
            return self.b.ashr(x, self.word(y.bit_length() - 1)) if whole else self.b.and_(x, self.word(y - 1))
        return self._divided(self.word(x), self.word(y), isinstance(op, ast.FloorDiv))

    def _divided(self, x: Any, y: Any, whole: bool) -> Any:
        """x // y or x % y, rounded down; 0 for a divisor of 0."""
        b, zero, one = self.b, self.word(0), self.word(1)
        none = b.icmp_signed("==", y, zero)
        by = b.select(none, one, y)
        rest = b.srem(x, by)
        differ = b.and_(b.icmp_signed("!=", rest, zero), b.icmp_signed("<", b.xor(rest, by), zero))
        found = b.sub(b.sdiv(x, by), b.zext(differ, I64)) if whole else b.add(rest, b.select(differ, by, zero))
        return b.select(none, zero, found)

    def _of_Compare(self, node: ast.Compare) -> Value:
        values = [self.value(x) for x in (node.left, *node.comparators)]
        found: Any = None
        for op, x, y in zip(node.ops, values, values[1:], strict=False):
            if isinstance(op, ast.In):
                one: Any = ir.Constant(I1, 0)
                for z in y:
                    one = self.b.or_(one, self.b.icmp_signed("==", self.word(x), self.word(z)))
            else:
                one = self.b.icmp_signed(_COMPARED[type(op)], self.word(x), self.word(y))
            found = one if found is None else self.b.and_(found, one)
        return found

    def _of_BoolOp(self, node: ast.BoolOp) -> Value:
        """A truth; later operands are computed where the earlier ones leave it open."""
        after, place = self._block("known"), self.entry.alloca(I1)
        for x in node.values[:-1]:
            found, following = self.truth(self.value(x)), self._block("more")
            self.b.store(found, place)
            ends = (following, after) if isinstance(node.op, ast.And) else (after, following)
            self.b.cbranch(found, *ends)
            self.b.position_at_end(following)
        self.b.store(self.truth(self.value(node.values[-1])), place)
        self.b.branch(after)
        self.b.position_at_end(after)
        return self.b.load(place)

    def _of_IfExp(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        if isinstance(test, int):
            return self.value(node.body if test else node.orelse)
        taken, other, after = (self._block(n) for n in ("taken", "other", "after"))
        place = self._variable()
        self.b.cbranch(self.truth(test), taken, other)
        for block, x in ((taken, node.body), (other, node.orelse)):
            self.b.position_at_end(block)
            self.b.store(self.word(self.value(x)), place)
            self.b.branch(after)
        self.b.position_at_end(after)
        return self.b.load(place)

    def _of_Call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name) or node.keywords:
            self._refuse(node)
        name, given = ast.unparse(node.func), [self.value(x) for x in node.args]
        called: Any = self.names.get(name)
        if called is None and name in ("min", "max"):
            return self._extreme("<" if name == "min" else ">", [self.word(x) for x in given])
        if called in self.functions.primitives:
            return self.functions.primitives[called](self.b, *map(self.word, given))
        if not hasattr(called, "py_func"):
            self._refuse(node)
        shape = tuple(len(x) if isinstance(x, tuple) else 1 for x in given)
        function = self.functions.of(called.py_func, shape, called.targetoptions.get("forceinline", False))
        words = [self.word(x) for part in given for x in (part if isinstance(part, tuple) else (part,))]
        found = self.b.call(function.code, words)
        if function.results in (None, 1):
            return found
        return tuple(self.b.extract_value(found, n) for n in range(function.results))

    def _extreme(self, kind: str, words: list[Any]) -> Any:
        found = words[0]
        for x in words[1:]:
            found = self.b.select(self.b.icmp_signed(kind, x, found), x, found)
        return found


def _wrapped(x: int) -> int:
    """Two's complement of 64 bits."""
    return (x + (1 << 63)) % (1 << 64) - (1 << 63)
