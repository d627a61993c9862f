"""Mutants of a module: one comparison, operator, constant or emitted instruction changed; judged in child processes."""

from __future__ import annotations

import argparse
import ast
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

os.environ.setdefault("NUMBA_OPT", "0")  # read when Numba is first imported; bits do not depend on it
PACKAGE = Path(__file__).parents[2] / "nbtc"
Battery = Callable[[], bool]  # whether results are still right
# compiled afresh in each child: whatever may hold code of a mutated module, and the tests' way to it
FRESH = ("nbtc.numerics.", "nbtc.kernels.", "nbtc.gemm", "nbtc.formats.codec", "nbtc.testing.cases")
KEPT = ("nbtc.numerics.models", "nbtc.numerics.exact", "nbtc.numerics.exact_float")
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip
METHODS = {  # of IR builders
    "add": "sub", "sub": "add", "mul": "add", "udiv": "urem", "urem": "udiv", "and_": "or_", "or_": "and_",
    "xor": "or_", "shl": "lshr", "lshr": "shl", "ashr": "lshr", "umax": "umin", "umin": "umax", "smax": "umax",
    "fadd": "fsub", "zext": "sext", "sext": "zext", "icmp_unsigned": "icmp_signed", "icmp_signed": "icmp_unsigned",
}  # fmt: skip
SIGNS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}


def _jitted(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[], None]]]:
    """What can be changed at a node: (kind, how)."""
    if isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield "comparison", lambda: node.ops.__setitem__(0, SWAPS[type(node.ops[0])]())
    if isinstance(node, ast.BinOp | ast.AugAssign | ast.BoolOp) and type(node.op) in SWAPS:
        yield "operator", lambda: setattr(node, "op", SWAPS[type(node.op)]())
    if isinstance(node, ast.Constant) and type(node.value) is int:
        yield "constant", lambda: setattr(node, "value", node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "constant", lambda: setattr(node, "value", not node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
        yield "min/max", lambda: setattr(node.func, "id", "max" if node.func.id == "min" else "min")
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in METHODS:
        signless = any(isinstance(x, ast.Constant) and x.value in ("==", "!=") for x in node.args)
        if not signless:
            yield "instruction", lambda: setattr(node.func, "attr", METHODS[node.func.attr])
    if isinstance(node, ast.Constant) and node.value in SIGNS:
        yield "comparison", lambda: setattr(node, "value", SIGNS[node.value])


Mutant = tuple[int, str, str, ast.Module]  # line, before, after, what to run


def mutants(text: str, whole: bool) -> Iterator[Mutant]:
    """Every mutant of a module's jitted functions, or of all its functions."""
    count = sum(1 for _ in _sites(ast.parse(text), whole))
    for index in range(count):
        tree = ast.parse(text)
        statement, change = list(_sites(tree, whole))[index]
        before = ast.unparse(statement)
        change()
        after = ast.unparse(statement)
        if before != after:
            yield statement.lineno, before, after, ast.fix_missing_locations(tree)


def _sites(tree: ast.Module, whole: bool) -> Iterator[tuple[ast.stmt, Callable[[], None]]]:
    for function in _outermost(tree) if whole else filter(_jitted, ast.walk(tree)):
        for node, statement in _with_statements(function):
            for _, change in _changes(node):
                yield statement, change


def _outermost(tree: ast.AST) -> Iterator[ast.AST]:
    """Functions and methods; those inside them are part of them."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _outermost(node)


def _with_statements(function: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Every expression node of a function body with the simple statement (or header) it is in."""
    stack = [(child, child) for child in reversed(function.body)]  # type: ignore[attr-defined]
    while stack:
        node, statement = stack.pop()
        yield node, statement
        decorators = getattr(node, "decorator_list", [])  # how code is compiled or remembered, not what it does
        for child in reversed([n for n in ast.iter_child_nodes(node) if n not in decorators]):
            stack.append((child, child if isinstance(child, ast.stmt) else statement))


def _forget() -> None:
    """Unload what is to be compiled afresh, also as attributes of packages, where `from package import x` finds it."""
    for name in [m for m in sys.modules if m.startswith(FRESH) and m not in KEPT]:
        del sys.modules[name]
        package, _, leaf = name.rpartition(".")
        vars(sys.modules.get(package, sys)).pop(leaf, None)


class _Mutated(Loader):
    """Finds and loads one module from another tree."""

    def __init__(self, name: str, path: str, tree: ast.Module) -> None:
        self.name, self.path, self.tree = name, path, tree

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self.tree, self.path, "exec"), module.__dict__)


def _child(mutated: _Mutated, battery: Battery, seconds: int) -> None:
    """Exit status 0: the mutant survived."""
    from nbtc.compiler import callees, jit

    signal.alarm(seconds)
    sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - the process ends with it
    for module in (callees, jit):  # code of a mutant would be found again as the file's own
        vars(module)["cache_of"] = lambda *_: None
    os.environ["NBTC_CACHE_DIR"] = ""
    alive = False
    try:
        _forget()
        sys.meta_path.insert(0, mutated)
        alive = battery()
    finally:
        os._exit(0 if alive else 1)  # no exit handlers: a child of a thread fails in them


def arguments(doc: str | None, files: list[str]) -> argparse.Namespace:
    """What both tools are told."""
    parser = argparse.ArgumentParser(description=(doc or "").splitlines()[0])
    parser.add_argument("files", nargs="*", default=files)
    parser.add_argument("--sample", type=int, default=0, help="mutants a file (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="another one takes another sample")
    parser.add_argument("--processes", type=int, default=2)
    return parser.parse_args()


def check(
    file: str, battery: Battery, options: argparse.Namespace, equivalent: Mapping[str, str], *, whole: bool = False,
    seconds: int = 120,
) -> list[str]:  # fmt: skip
    """Survivors of one file, printed as they are found; those in `equivalent` (with the reason why) are left out.

    whole: every function is mutated, not only jitted ones.  seconds: a child that takes longer counts as having
    noticed.
    """
    path = PACKAGE / file
    name = "nbtc." + file.removesuffix(".py").replace("/", ".")
    found = list(mutants(path.read_text(), whole))
    changes = {f"{file}: {_difference(before, after)}" for _, before, after, _ in found}
    for stale in [x for x in equivalent if x.startswith(f"{file}: ") and x not in changes]:
        print(f"listed as changing nothing, but no mutant any more: {stale}", flush=True)
    sample, processes = options.sample, options.processes
    if sample and sample < len(found):
        found = sorted(random.Random(f"{file} {options.seed}").sample(found, sample), key=lambda m: m[0])
    context = multiprocessing.get_context("fork")

    def survives(mutant: Mutant) -> bool:
        mutated = _Mutated(name, str(path), mutant[3])
        child = context.Process(target=_child, args=(mutated, battery, seconds))
        child.start()
        child.join()
        return child.exitcode == 0

    with ThreadPoolExecutor(processes) as pool:
        if not all(pool.map(survives, [(0, "", "", ast.parse(path.read_text()))] * processes)):
            raise SystemExit(f"{file}: the unchanged file fails its own check, so nothing can be learnt from mutants")
        alive, known = [], 0
        for (line, before, after, _), lives in zip(found, pool.map(survives, found), strict=True):
            change = _difference(before, after)
            if lives and f"{file}: {change}" in equivalent:
                known += 1
            elif lives:
                alive.append(f"{file}:{line}: {change}")
                print(alive[-1], flush=True)
    noticed = len(found) - len(alive) - known
    print(
        f"{file}: {len(found)} mutants, {noticed} noticed, {known} known to change nothing, {len(alive)} not",
        flush=True,
    )
    return alive


def _difference(before: str, after: str) -> str:
    """The lines that differ, old and new."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return "; ".join(f"{x.strip()} -> {y.strip()}" for x, y in pairs if x != y)
