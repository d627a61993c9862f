"""Functions of 64-bit integers, from their Python syntax to LLVM's text: no types to infer, and no passes but LLVM's.

A launch in checked mode runs a hundred small functions whose values are all words.  Numba takes eight to ten seconds of
a processor for what it does to them before LLVM sees any (measured; LLVM itself 1.6), most of it to infer that a word
is a word.  What is written here is what those functions use: names, integer arithmetic, comparisons, `if`, `while`,
`for` over `range` or a tuple that is written out, tuples whose elements are known, calls of each other.  Anything else
raises.  Numba compiles the same source, which is what tests compare with.

Two rules differ from Python's: arithmetic wraps at 64 bits, and `and` and `or` give a truth, not an operand.  A divisor
of zero gives zero, as in Numba's code under NumPy's rules.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.integers.integer_expressions import I64, Expressions, IntegerFunction, Primitives, Value
from nbtc.compiler.machine_code import native
from nbtc.errors import CompilerError


class Entry(NamedTuple):
    """Machine code: where it begins, and what keeps it alive."""

    address: int
    loaded: native.Loaded


@rarely_collected
def machine_code(function: FunctionType, primitives: Primitives) -> Entry:
    """A function of words, from disk if it is there: found by the sources of its module and all that it imports."""
    name = f"integer_code_{function.__name__}"
    sources = (Path(x).resolve() for x in (function.__code__.co_filename, __file__))
    key = native.digest("integer code", name, source_digest(*sources))
    found = native.fetch(key)
    if found is None:
        found = native.Native(native.compile_text(text_of(function, name, primitives)), {})
        native.keep(key, found)
    loaded = native.load(found)
    return Entry(loaded.address(name), loaded)


def text_of(function: FunctionType, name: str, primitives: Primitives) -> str:
    """A module of a function of words, under a name, and of all that it calls."""
    module = ir.Module("integer_code")
    module.triple = native.target()[0]
    found = _Functions(module, primitives).of(function, (1,) * function.__code__.co_argcount)
    found.code.linkage, found.code.name = "", name
    return str(module)


@cache
def _definitions(file: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module's source."""
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


class _Functions:
    """Those of a module, each made when something calls it."""

    def __init__(self, module: ir.Module, primitives: Primitives) -> None:
        self.module, self.primitives = module, primitives
        self.made: dict[tuple[FunctionType, tuple[int, ...]], IntegerFunction] = {}

    def of(self, function: FunctionType, shape: tuple[int, ...], inline: bool = False) -> IntegerFunction:
        """For arguments of so many words each; inline: merged into its callers."""
        key = function, shape
        if key not in self.made:
            node, results = self.definition(function), self.results(function)
            result = I64 if results in (None, 1) else ir.LiteralStructType([I64] * results)
            kind = ir.FunctionType(result, [I64] * sum(shape))
            code = ir.Function(self.module, kind, self.module.get_unique_name(function.__name__))
            code.linkage = "internal"
            if inline:
                code.attributes.add("alwaysinline")
            elif any(isinstance(x, ast.For | ast.While) for x in ast.walk(node)):
                code.attributes.add("noinline")  # its loops would share the caller's registers
            self.made[key] = IntegerFunction(code, results)
            _Body(self, function.__globals__, self.made[key]).emit(node, shape)
        return self.made[key]

    def definition(self, function: FunctionType) -> ast.FunctionDef:
        """What is written of it."""
        node = _definitions(function.__code__.co_filename).get(function.__name__)
        if node is None:
            raise CompilerError(f"{function.__qualname__} is not written at the top of its module")
        return node

    def results(self, function: FunctionType) -> int | None:
        """How many words it gives: as many as the first of its returns that says so."""
        for node in ast.walk(self.definition(function)):
            if isinstance(node, ast.Return) and node.value is not None:
                return self._words(node.value, function.__globals__)
        return None

    def _words(self, node: ast.expr, names: dict[str, Any]) -> int | None:
        if isinstance(node, ast.Tuple):
            return len(node.elts)
        found = names.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(found, tuple):
            return len(found)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called: Any = names.get(node.func.id)
            return self.results(called.py_func) if hasattr(called, "py_func") else 1
        return 1


class _Body(Expressions):
    """Writes one function."""

    def __init__(self, functions: _Functions, names: dict[str, Any], function: IntegerFunction) -> None:
        super().__init__(functions, names, function)
        self.loops: list[tuple[Any, Any]] = []  # where `continue` and `break` go

    def emit(self, node: ast.FunctionDef, shape: tuple[int, ...]) -> None:
        """The body; shape: words of each argument."""
        arguments = iter(self.function.code.args)
        for argument, count in zip(node.args.args, shape, strict=True):
            words = tuple(next(arguments) for _ in range(count))
            self._assign(argument.arg, words if count > 1 else words[0])
        self._statements(node.body)
        if not self.b.block.is_terminated:
            self._return(None)
        self.entry.branch(self.function.code.basic_blocks[1])

    # --- statements ---
    def _statements(self, nodes: list[ast.stmt]) -> None:
        for node in nodes:
            if self.b.block.is_terminated:  # after return, break or continue
                return
            getattr(self, f"_do_{type(node).__name__}", self._refuse)(node)

    def _do_Expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):  # a docstring
            self.value(node.value)

    def _do_Assign(self, node: ast.Assign) -> None:
        target = node.targets[0]
        value = self.value(node.value)
        if isinstance(target, ast.Name):
            self._assign(target.id, value)
        elif isinstance(target, ast.Tuple) and isinstance(value, tuple):
            words = [self.word(x) if not isinstance(x, tuple) else x for x in value]  # all of them before any changes
            for one, word in zip(target.elts, words, strict=True):
                self._assign(self._name(one), word)
        else:
            self._refuse(node)

    def _name(self, target: ast.expr) -> str:
        return target.id if isinstance(target, ast.Name) else self._refuse(target)

    def _do_AugAssign(self, node: ast.AugAssign) -> None:
        name = self._name(node.target)
        self._assign(name, self._arithmetic(node.op, self._read(name), self.value(node.value), node))

    def _do_Return(self, node: ast.Return) -> None:
        self._return(None if node.value is None else self.value(node.value))

    def _return(self, value: Value) -> None:
        if not isinstance(value, tuple):
            self.b.ret(self.word(0 if value is None else value))
            return
        result: Any = ir.Constant(self.function.code.function_type.return_type, ir.Undefined)
        for n, x in enumerate(value):
            result = self.b.insert_value(result, self.word(x), n)
        self.b.ret(result)

    def _do_If(self, node: ast.If) -> None:
        test = self.value(node.test)
        if isinstance(test, int):
            self._statements(node.body if test else node.orelse)
            return
        taken, other, after = (self._block(n) for n in ("taken", "other", "after"))
        self.b.cbranch(self.truth(test), taken, other)
        for block, nodes in ((taken, node.body), (other, node.orelse)):
            self.b.position_at_end(block)
            self._statements(nodes)
            self._go(after)
        self.b.position_at_end(after)

    def _do_While(self, node: ast.While) -> None:
        head, body, after = (self._block(n) for n in ("head", "body", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.truth(self.value(node.test)), body, after)
        with self._loop(body, head, after):
            self._statements(node.body)

    def _do_For(self, node: ast.For) -> None:
        if node.orelse:
            self._refuse(node)
        name = self._name(node.target)
        if isinstance(node.iter, ast.Tuple):
            after = self._block("after")
            for x in node.iter.elts:
                body, following = self._block("body"), self._block("next")
                self.b.branch(body)
                with self._loop(body, following, after):
                    self._assign(name, self.value(x))
                    self._statements(node.body)
                self.b.position_at_end(following)
            self.b.branch(after)
            self.b.position_at_end(after)
            return
        call = node.iter
        if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range":
            self._refuse(node)
        given = [self.value(x) for x in call.args]  # type: ignore[attr-defined]
        start, stop, step = (0, given[0], 1) if len(given) == 1 else (*given, 1)[:3]
        if not isinstance(step, int) or step == 0:
            self._refuse(node)
        stop, at = self.word(stop), self._variable()
        self.b.store(self.word(start), at)
        head, body, following, after = (self._block(n) for n in ("head", "body", "next", "after"))
        self.b.branch(head)
        self.b.position_at_end(head)
        self.b.cbranch(self.b.icmp_signed("<" if step > 0 else ">", self.b.load(at), stop), body, after)
        with self._loop(body, following, after):
            self._assign(name, self.b.load(at))
            self._statements(node.body)
        self.b.position_at_end(following)
        self.b.store(self.b.add(self.b.load(at), self.word(step)), at)
        self.b.branch(head)
        self.b.position_at_end(after)

    @contextmanager
    def _loop(self, body: Any, following: Any, after: Any) -> Iterator[None]:
        """The body of a loop is written in here; what comes next, after it."""
        self.b.position_at_end(body)
        self.loops.append((following, after))
        yield
        self.loops.pop()
        self._go(following)
        self.b.position_at_end(after)

    def _do_Continue(self, node: ast.Continue) -> None:
        self.b.branch(self.loops[-1][0])

    def _do_Break(self, node: ast.Break) -> None:
        self.b.branch(self.loops[-1][1])

    def _go(self, block: Any) -> None:
        if not self.b.block.is_terminated:
            self.b.branch(block)
