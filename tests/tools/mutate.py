"""Mutation check: change one comparison, operator or constant of the arithmetic at a time; something must notice.

    python tests/tools/mutate.py [FILE ...] [--sample N] [--processes 2]

Each mutant is compiled in a process of its own and run on the inputs that the tests use (all cases and strategies of
`nbtc.testing`, every conversion), whose right results are known.  A crash or a hang counts as noticed.  Survivors are
listed, but for those known to change nothing; exit status 1 when there are any.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import multiprocessing
import os
import random
import signal
import sys
import types
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("NUMBA_OPT", "0")  # read when Numba is first imported; bits do not depend on it
PACKAGE = Path(__file__).parents[2] / "nbtc"
CORE = ("numerics/fused.py", "numerics/ieee.py", "numerics/integer.py")
CODEC = ("formats/codec.py",)
SECONDS = 120
SWAPS: dict[type, type] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitOr, ast.Mult: ast.Add, ast.And: ast.Or, ast.Or: ast.And,
}  # fmt: skip


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


def mutants(text: str) -> Iterator[tuple[int, str, str, ast.Module]]:
    """(line, before, after, tree) of every mutant of the jitted functions of a module."""
    count = sum(1 for _ in _sites(ast.parse(text)))
    for index in range(count):
        tree = ast.parse(text)
        statement, change = list(_sites(tree))[index]
        before = ast.unparse(statement)
        change()
        after = ast.unparse(statement)
        if before != after:
            yield statement.lineno, before, after, ast.fix_missing_locations(tree)


def _sites(tree: ast.Module) -> Iterator[tuple[ast.stmt, Callable[[], None]]]:
    for function in filter(_jitted, ast.walk(tree)):
        for node, statement in _with_statements(function):
            for _, change in _changes(node):
                yield statement, change


def _with_statements(function: ast.AST) -> Iterator[tuple[ast.AST, ast.stmt]]:
    """Every expression node of a function body with the simple statement (or header) it is in."""
    stack = [(child, child) for child in reversed(function.body)]  # type: ignore[attr-defined]
    while stack:
        node, statement = stack.pop()
        yield node, statement
        for child in reversed(list(ast.iter_child_nodes(node))):
            stack.append((child, child if isinstance(child, ast.stmt) else statement))


def core_battery() -> Callable[[], bool]:
    """Whether `chain` still gives what the oracle gives, on every case and strategy."""
    from nbtc.testing.cases import cases
    from nbtc.testing.strategies import strategies

    data = []
    for case in cases():
        oracle = case.oracle()
        for strategy in strategies(case.formats[0]):
            rng = np.random.default_rng(zlib.crc32(f"{case} {strategy}".encode()))
            a, b, c = (np.ascontiguousarray(x) for x in case.operands(rng, strategy, 12, 11))
            data.append((a, b, c, case.params(), oracle.matrix(a, b, c)))

    def run() -> bool:
        from nbtc import _jit

        chain = importlib.import_module("nbtc.numerics.fused").chain

        @_jit.jit(cached=False)
        def chains(a, b, c, params, d):
            m, n, k = a.shape[0], b.shape[1], a.shape[1]
            fa, fb = a.reshape(-1), b.reshape(-1)
            for i in range(m):
                for j in range(n):
                    if chain(fa, i * k, 1, fb, j, n, k, c[i, j], params) != d[i, j]:
                        return False
            return True

        return all(chains(*x) for x in data)

    return run


def codec_battery() -> Callable[[], bool]:
    """Whether conversions still give what they gave: codes, their neighbours, random words; all shifts."""
    warnings.simplefilter("ignore")
    from nbtc.formats import codec
    from nbtc.formats.conversions import CONVERSIONS, parameters

    noise = np.random.default_rng(1).integers(0, 2**32, 200_000, dtype=np.uint32)
    near = np.arange(1 << 16, dtype=np.uint32)[:, None] << np.uint32(16) | np.uint32(
        [0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0xFFFF, 0x17FF, 0x1800]
    )
    words = np.concatenate([noise, near.reshape(-1)])
    data = []
    for row in CONVERSIONS:
        x = words if row.source.bits == 32 else np.arange(1 << row.source.bits).astype(row.source.bits_dtype)
        for saturate in row.saturate:
            for relu in (False, True)[: 1 + row.relu]:
                p = parameters(row, relu, saturate)
                out = np.empty(x.shape, row.target.bits_dtype)
                codec.convert_words(x, out, p)
                data.append((x, p, out))

    shifts = (-9, -1, 0, 1, 2, 13, 53, 54, 61, 62, 63, 64, 300)
    calls = [
        (np.uint64(w), np.int64(s), negative, np.int64(mode))
        for w in (1, 2, 3, 6, 7, 10, 0x1000, 0x1001, (1 << 53) - 1)
        for s in shifts
        for negative in (False, True)
        for mode in range(5)
    ]
    rounded = [int(codec.round_shift(*c)) for c in calls]

    def run() -> bool:
        mutant = importlib.import_module("nbtc.formats.codec")
        convert = mutant.convert_words
        if [int(mutant.round_shift(*c)) for c in calls] != rounded:
            return False
        for x, p, want in data:
            out = np.empty_like(want)
            convert(x, out, p)
            if (out != want).any():
                return False
        return True

    return run


def _child(name: str, tree: ast.Module, path: str, battery: Callable[[], bool]) -> None:
    """Exit status 0: the mutant survived."""
    from nbtc import _jit

    signal.alarm(SECONDS)
    sys.stderr = open("/dev/null", "w")  # noqa: SIM115 - the process ends with it

    def uncached(*_: Any) -> Any:
        raise RuntimeError

    _jit._Cache = uncached  # type: ignore[misc, assignment]
    module = types.ModuleType(name)
    module.__file__ = path
    for stale in [
        m for m in sys.modules if m in ("nbtc.numerics.fused", "nbtc.numerics.ieee", "nbtc.numerics.integer")
    ]:
        del sys.modules[stale]
    sys.modules[name] = module
    alive = False
    try:
        exec(compile(tree, path, "exec"), module.__dict__)
        alive = battery()
    finally:
        os._exit(0 if alive else 1)  # no exit handlers: a child of a thread fails in them


def check(file: str, battery: Callable[[], bool], sample: int, processes: int) -> list[str]:
    """Survivors of one file."""
    path = PACKAGE / file
    name = "nbtc." + file.removesuffix(".py").replace("/", ".")
    found = list(mutants(path.read_text()))
    if sample and sample < len(found):
        found = sorted(random.Random(file).sample(found, sample), key=lambda m: m[0])
    context = multiprocessing.get_context("fork")

    def survives(mutant: tuple[int, str, str, ast.Module]) -> bool:
        child = context.Process(target=_child, args=(name, mutant[3], str(path), battery))
        child.start()
        child.join()
        return child.exitcode == 0

    with ThreadPoolExecutor(processes) as pool:
        if not all(pool.map(survives, [(0, "", "", ast.parse(path.read_text()))] * processes)):
            raise SystemExit(f"{file}: the unchanged file fails its own check, so nothing can be learnt from mutants")
        alive = []
        for (line, before, after, _), lives in zip(found, pool.map(survives, found), strict=True):
            if lives:
                alive.append(f"{file}:{line}: {_difference(before, after)}")
                print(alive[-1], flush=True)
    print(f"{file}: {len(found)} mutants, {len(found) - len(alive)} noticed, {len(alive)} not", flush=True)
    return alive


def _difference(before: str, after: str) -> str:
    """The lines that differ, old and new."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=True)
    return "; ".join(f"{x.strip()}   ->   {y.strip()}" for x, y in pairs if x != y)


def main() -> int:
    """Run the files asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", default=[*CODEC, *CORE])
    parser.add_argument("--sample", type=int, default=0, help="mutants a file (default: all)")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    survivors = []
    for batch, make in ((CODEC, codec_battery), (CORE, core_battery)):
        files = [f for f in options.files if f in batch]
        if files:
            battery = make()
            for file in files:
                survivors += check(file, battery, options.sample, options.processes)
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
