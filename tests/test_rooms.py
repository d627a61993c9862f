"""The house: who may import whom, what needs Numba, where flags and architectures may be named."""

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

import nbtc

ROOT = Path(nbtc.__file__).resolve().parent
FILES = sorted(ROOT.rglob("*.py"))

# From the ground up: a module imports from its own layer and from those before it.
LAYERS = (
    ("errors", "forks", "compiler"),
    ("formats",),
    ("isa", "numerics"),
    ("kernels",),
    ("fragments",),
    ("ops",),
    ("numba_door",),
    ("check",),
    ("gemm",),
    ("executor",),
    ("driver",),
    ("dialect",),
    ("show",),
    ("ptx", "wmma", "wgmma", "warp", "dpx", "intrinsics", "sparse", "instructions", "mx", "tcgen05", "testing"),
    ("accuracy", "verify", "report", "warmup", "examples", "interop", "libcuda"),
    ("torch", "dask", "cuda", "cute", "triton"),
    ("cli", "__main__"),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
STRANGERS = {("isa", "numerics"), ("numerics", "isa")}  # one layer, but `ops` alone joins them
NO_NUMBA = (
    "errors",
    "isa",
    "formats/table.py",
    "formats/arrays.py",
    "__init__.py",
    "cli",
    "show",
    "numerics/models.py",
)


def module(path: Path) -> str:
    return ".".join(("nbtc", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


def room(name: str) -> str:
    """The first part below nbtc; "" for nbtc itself."""
    return ([*name.split("."), ""])[1]


MODULES = {module(path) for path in FILES}


@cache
def parse(path: Path) -> ast.Module:
    """A file's tree, which every test reads and none changes."""
    return ast.parse(path.read_text(encoding="utf-8"))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """All of that tree."""
    return tuple(ast.walk(parse(path)))


def of_every_file(check: Callable[[Path], None]) -> Callable[[], None]:
    """One test of a rule, which says of every file that breaks it how: a test a file takes longer than the rules."""

    def test() -> None:
        broken = []
        for path in FILES:
            try:
                check(path)
            except AssertionError as error:
                broken.append(f"{module(path)}: {error}")
        assert not broken, "\n".join(broken)

    test.__name__, test.__doc__ = check.__name__, check.__doc__
    return test


def for_types_alone(node: ast.AST) -> bool:
    """Whether only the type checker reads it."""
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def runs_later(node: ast.AST) -> bool:
    """Whether it doesn't run when the module is imported."""
    return isinstance(node, ast.FunctionDef) or for_types_alone(node)


def walk(tree: ast.AST, left_out: Callable[[ast.AST], bool]) -> Iterator[ast.AST]:
    """All nodes but those, with what is inside of them."""
    todo = [tree]
    while todo:
        node = todo.pop()
        if not left_out(node):
            yield node
            todo.extend(ast.iter_child_nodes(node))


def imports(path: Path, left_out: Callable[[ast.AST], bool] | None = None) -> set[str]:
    """Modules named by import statements, for the type checker too; of `from room import x` x, if that is a module."""
    found = set()
    for node in walk(parse(path), left_out) if left_out else nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= names if node.module == "nbtc" else {n if n in MODULES else node.module for n in names}
    return found


@of_every_file
def test_imports_go_down(path):
    me = room(module(path))
    if not me:
        return  # nbtc/__init__.py only names its rooms; test_import.py holds it to that
    assert me in LEVEL, f"nbtc.{me} has no layer: add it to LAYERS"
    for name in imports(path):
        if not name.startswith("nbtc."):
            continue
        other = room(name)
        level = LEVEL.get(other)
        if (
            level is None
        ):  # a public name of nbtc, not a module: only what stands above the doors goes through the front
            assert LEVEL[me] > LEVEL["ptx"], f"{module(path)} imports {name} through nbtc's front door"
            continue
        assert level <= LEVEL[me], f"{module(path)} imports {name} from a layer above"
        assert (me, other) not in STRANGERS, f"{module(path)} imports {name}"


def test_the_import_graph_of_modules_has_no_cycle():
    names = {module(p) for p in FILES}
    graph = {module(p): {n for n in imports(p, for_types_alone) if n in names and n != module(p)} for p in FILES}
    graph["nbtc"] = set()  # the front door names every room, and loads one when it is asked for
    done: set[str] = set()
    while ready := {n for n in graph.keys() - done if graph[n] - {"nbtc"} <= done}:
        done |= ready
    assert not graph.keys() - done, f"import each other: {sorted(graph.keys() - done)}"


@of_every_file
def test_declarations_need_no_numba(path):
    where = path.relative_to(ROOT).as_posix()
    if not any(where == n or where == f"{n}.py" or where.startswith(f"{n}/") for n in NO_NUMBA):
        return
    heavy = {"numba", "llvmlite"}
    assert not {n.split(".")[0] for n in imports(path, runs_later)} & heavy


def test_declarations_load_without_numba():
    code = "import sys, nbtc, nbtc.isa, nbtc.isa.archs, nbtc.formats.table; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# The folders of the executor, from the ground up; what lies beside them (program, build, coverage ...) stands above.
STEPS = (
    "text", "emit", "scalar", "memory", "control", "transfer", "texture", "matrix", "rows", "kernel", "code", "watch",
    "profile", "launch",
)  # fmt: skip


def step(name: str) -> int:
    """The place of a module's folder in the executor's order; above all folders what lies in none."""
    folder = ([*name.split("."), ""])[2]
    return STEPS.index(folder) if folder in STEPS else len(STEPS)


def test_a_programs_way_goes_one_way():
    """The executor's folders import from those before them, type-checking imports included."""
    found = {
        f"{module(path)} imports {name}"
        for path in (ROOT / "executor").rglob("*.py")
        for name in imports(path)
        if name.startswith("nbtc.executor.") and step(name) > step(module(path))
    }
    assert not found, "upward:\n" + "\n".join(sorted(found))


def test_a_folder_of_the_executor_is_a_step():
    folders = {p.name for p in (ROOT / "executor").iterdir() if p.is_dir() and p.name != "__pycache__"}
    assert folders == set(STEPS), "a folder is a step of a program's way: give it its place in STEPS"


MOST_FILES = 22  # of a folder: a reader takes that in at a glance


@pytest.mark.parametrize("tree", [ROOT, Path(__file__).resolve().parent], ids=["nbtc", "tests"])
def test_folders_stay_small(tree):
    """Of Python files; the folders that hold recordings or tables have as many others at most."""
    files = [p for p in tree.rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    for python in (True, False):
        count = Counter(p.parent.relative_to(tree).as_posix() for p in files if (p.suffix == ".py") is python)
        many = {folder: n for folder, n in count.items() if n > MOST_FILES}
        assert not many, f"a folder has at most {MOST_FILES} files: give some of {many} a folder of their own"


@of_every_file
def test_the_oracle_is_its_own(path):
    """What computes fast takes nothing from the oracle that it is compared with, and the oracle nothing from it."""
    exact = {n for n in imports(path) if n.startswith("nbtc.numerics.exact")}
    assert not exact or room(module(path)) in ("numerics", "testing"), f"{module(path)} imports {exact}"
    if path.name.startswith("exact") and room(module(path)) == "numerics":
        jitted = {n for n in imports(path) if room(n) in ("kernels", "gemm", "ops", "compiler")}
        assert not jitted, f"{module(path)} imports {jitted}"


@of_every_file
def test_no_assert_checks_input(path):
    lines = [node.lineno for node in nodes(path) if isinstance(node, ast.Assert)]
    assert not lines, f"assert vanishes under python -O: raise one of nbtc.errors in {path.name}, lines {lines}"


FLAGS = {"fastmath", "nogil", "error_model", "boundscheck", "forceinline", "nopython", "forceobj", "parallel", "cache"}
COMPILERS = {"njit", "jit", "vectorize", "guvectorize", "stencil", "cfunc", "generated_jit"}


@of_every_file
def test_only_jit_names_numba_flags(path):
    if module(path) == "nbtc.compiler.jit":
        return
    for node in nodes(path):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "numba":
            bad = {alias.name for alias in node.names} & COMPILERS
            assert not bad, f"{module(path)} line {node.lineno} takes {bad} from numba: take jit from nbtc.compiler.jit"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "numba":
            assert node.attr not in COMPILERS, f"{module(path)} line {node.lineno}: take jit from nbtc.compiler.jit"
        if isinstance(node, ast.Call):
            bad = {k.arg for k in node.keywords} & FLAGS
            called = ast.unparse(node.func) if bad else ""  # of all calls it takes seconds
            bad -= {"parallel"} if called == "jit" else set()
            assert "numba." not in called or not bad, f"{module(path)} line {node.lineno} sets {bad}"
            assert called != "jit" or not bad, f"{module(path)} line {node.lineno} sets {bad}"


ARCHITECTURE = re.compile(r"\b(arch|sm|numerics)\b|\bsm_\d+|\b(arch|target|gpu)\.\w*number\b")


def names_an_architecture(compare: ast.Compare) -> bool:
    """Whether a comparison asks for one architecture: a name or number of its own, not a row's."""
    sides = [compare.left, *compare.comparators]
    constants = [
        c for side in sides for c in ast.walk(side) if isinstance(c, ast.Constant) and not isinstance(c.value, bool)
    ]
    if any(isinstance(c.value, str) and re.match(r"sm_\d+", c.value) for c in constants):
        return True
    whole = any(isinstance(side, ast.Constant) and isinstance(side.value, str | int) and side.value for side in sides)
    return whole and any(ARCHITECTURE.search(ast.unparse(side)) for side in sides)


@of_every_file
def test_architectures_are_rows_not_branches(path):
    for node in nodes(path):
        if isinstance(node, ast.Compare):
            assert not names_an_architecture(node), f"{module(path)} line {node.lineno}: {ast.unparse(node)}"
        if isinstance(node, ast.Match):
            assert not ARCHITECTURE.search(ast.unparse(node.subject)), f"{module(path)} line {node.lineno}"


@pytest.mark.parametrize(
    "text",
    ["arch.number == 70", "target.numerics == 'sm_90'", "name in ('sm_80', 'sm_86')", "sm >= 80", "x.arch != 'a'"],
)
def test_branches_would_be_found(text):
    assert names_an_architecture(ast.parse(text, mode="eval").body)


def test_files_stay_readable():
    long = {module(p): n for p in FILES if (n := p.read_text(encoding="utf-8").count("\n")) >= 400}
    assert not long, f"a file is one room: split {long}"


def test_a_conversion_to_integers_is_frozen():
    """LLVM takes fptosi of Inf, NaN or a number too large for anything, each time anew: `truncated` freezes it."""
    named = {
        module(p) for p in FILES for n in nodes(p) if isinstance(n, ast.Attribute) and n.attr in ("fptosi", "fptoui")
    }
    assert named == {"nbtc.compiler.builder"}


def jitted(path):
    """Functions that are decorated as compiled ones."""
    return [f for f in functions(parse(path)) if any("jit" in ast.unparse(d) for d in f.decorator_list)]


SCALAR = re.compile(r"np\.(u?int|float)\d+")


def is_a_scalar(value):
    """A number, a constant by its name, or what a NumPy scalar's type makes; anything else may be an array."""
    if isinstance(value, ast.UnaryOp):
        return is_a_scalar(value.operand)
    named = isinstance(value, ast.Name) and value.id.isupper()
    made = isinstance(value, ast.Call) and SCALAR.fullmatch(ast.unparse(value.func))
    return isinstance(value, ast.Constant) or bool(named or made)


@of_every_file
def test_kernels_copy_by_loops(path):
    """An array that is assigned to a slice has Numba compile the text of an error: `copied` doesn't."""
    for f in jitted(path):
        for node in ast.walk(f):
            slices = [
                t
                for t in getattr(node, "targets", ())
                if isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Slice)
            ]
            assert not slices or is_a_scalar(node.value), (
                f"{module(path)} line {node.lineno}: use compiler.copies.copied"
            )


LINES, PARAMETERS, MEAN = 60, 10, 140  # of a function without what is defined inside it; of a module, on average
# Signatures that users call by keyword.
PUBLIC = {
    "nbtc.gemm.run.matmul",
    "nbtc.gemm.run.plan",
    "nbtc.gemm.run.gemm",
    "nbtc.dask.matmul",
    "nbtc.dialect.vocabulary.wgmma_words._wgmma",
    "nbtc.instructions.__call__",
    "nbtc.ptx.mma_sync",
    "nbtc.ptx.wgmma",
    "nbtc.executor.program.launch",
    "nbtc.ops.tcgen05.product.mma",
    "nbtc.triton.launcher.__call__",  # Triton calls its launchers so
    "nbtc.libcuda.driver.launches.cuLaunchKernel",  # CUDA's own
    "nbtc.libcuda.driver.tensor_maps.cuTensorMapEncodeTiled",
}


def functions(tree):
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def own_lines(function):
    """Lines of a function but for its docstring and the functions inside it."""
    inner = [f for node in function.body for f in functions(node)]
    outermost = [f for f in inner if not any(f is not g and f in functions(g) for g in inner)]
    nested = sum(f.end_lineno - f.lineno + 1 for f in outermost)
    text = function.body[0].end_lineno - function.body[0].lineno + 1 if ast.get_docstring(function) else 0
    return function.end_lineno - function.lineno + 1 - nested - text


def parameters(function):
    a = function.args
    return len([*a.posonlyargs, *a.args, *a.kwonlyargs, *filter(None, (a.vararg, a.kwarg))])


@of_every_file
def test_functions_stay_readable(path):
    found = functions(parse(path))
    long = {f.name: n for f in found if (n := own_lines(f)) > LINES}
    assert not long, f"split {long} of {module(path)}"
    wide = {f"{module(path)}.{f.name}": n for f in found if (n := parameters(f)) > PARAMETERS}
    new = {name: n for name, n in wide.items() if name not in PUBLIC}
    assert not new, f"give {new} a NamedTuple"
    gone = {name for name in PUBLIC if name.rpartition(".")[0] == module(path)} - wide.keys()
    assert not gone, f"{gone} take few parameters now: take them off the list"


def test_modules_stay_small():
    lines = [p.read_text(encoding="utf-8").count("\n") for p in FILES]
    assert sum(lines) / len(lines) < MEAN
