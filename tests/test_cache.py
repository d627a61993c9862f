"""The compiled-code cache: an upgraded nbtc never runs old machine code; processes may start together."""

import inspect
import os
import shutil
from importlib.util import cache_from_source
from pathlib import Path

import pytest

import nbtc
from tests.processes import forked, fresh, output

CALLER = """
from nbtc.compiler.jit import jit
from nbtc.callee import scale

@jit
def twice(x):
    return scale(x) + scale(x)
"""
CALLEE = """
from nbtc.compiler.jit import jit

@jit
def scale(x):
    return x * {factor}
"""
EMITTING = """
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic
from nbtc.compiler.jit import jit
from nbtc.compiler.library import emitted_function

F64 = ir.DoubleType()

@intrinsic
def tripled(typing, x):
    def codegen(context, builder, sig, args):
        function = emitted_function(builder.module, ir.FunctionType(F64, [F64]), "tripled")
        inner = ir.IRBuilder(function.append_basic_block("entry"))
        inner.ret(inner.fmul(function.args[0], F64(3.0)))
        return builder.call(function, args)
    return types.float64(types.float64), codegen

@jit
def scale(x):
    return tripled(x)
"""
FACTORY = """
from nbtc.compiler.jit import jit

def times(factor):
    @jit
    def inner(x):
        return x * factor

    @jit
    def outer(x):
        return inner(x) + inner(x + 1.0)

    return outer
"""
RUN = "from nbtc.caller import twice; print(twice(1.0), sum(twice.stats.cache_hits.values()))"


@pytest.fixture
def copy(tmp_path):
    """A copy of the package with two small kernels of its own, one calling the other, and an empty cache."""
    package = tmp_path / "site" / "nbtc"
    shutil.copytree(Path(nbtc.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__", "data"))
    (package / "caller.py").write_text(CALLER)
    (package / "callee.py").write_text(CALLEE.format(factor=3.0))
    return package


def start(package, code=RUN, process=forked, **more):
    return process(code, PYTHONPATH=str(package.parent), NUMBA_CACHE_DIR=str(package.parent.parent / "cache"), **more)


def test_machine_code_is_reused(copy):
    assert output(start(copy, process=fresh)) == "6.0 0"
    assert output(start(copy, process=fresh)) == "6.0 1"


def test_callees_are_reused(copy):
    """By callers that are compiled in another process: their IR comes from the disk."""
    output(start(copy))
    (copy / "other.py").write_text(CALLER.replace("x) + scale(x)", "x) * scale(x)"))
    hits = "sum(scale.for_callers.callee.stats.cache_hits.values())"
    run = f"from nbtc.other import twice, scale; print(twice(1.0), {hits}, len(scale.overloads), scale(2.0))"
    assert output(start(copy, run)) == "9.0 1 0 6.0"


def test_what_callees_emit_is_reused(copy):
    """Emitted functions are on the disk beside a callee's IR, for callers of nbtc's and of anyone's."""
    (copy / "callee.py").write_text(EMITTING)
    output(start(copy))
    (copy / "other.py").write_text(CALLER.replace("x) + scale(x)", "x) * scale(x)"))
    hits = "sum(scale.for_callers.callee.stats.cache_hits.values())"
    run = f"from nbtc.other import twice, scale; import numba; print(twice(1.0), {hits})"
    assert output(start(copy, f"{run}; print(numba.njit(lambda x: scale(x))(2.0))")) == "9.0 1\n6.0"


def test_kernels_of_one_factory_stay_apart(copy):
    """Numba's symbols of closures count from zero in every process: cached ones must not be mixed up."""
    (copy / "factory.py").write_text(FACTORY)
    run = "from nbtc.factory import times; f = [times(n) for n in {}]; print(*[g(1.0) for g in f], {})"
    hits = "sum(sum(g.stats.cache_hits.values()) for g in f)"
    assert output(start(copy, run.format("(2.0,)", hits))) == "6.0 0"
    assert output(start(copy, run.format("(3.0,)", hits))) == "9.0 0"
    assert output(start(copy, run.format("(5.0, 3.0)", hits))) == "15.0 9.0 1"
    assert output(start(copy, run.format("(2.0, 3.0, 5.0)", hits))) == "6.0 9.0 15.0 3"


def test_a_changed_callee_is_never_run_stale(copy):
    assert output(start(copy)) == "6.0 0"
    stamp = (copy / "callee.py").stat()
    (copy / "callee.py").write_text(CALLEE.format(factor=5.0))
    # an installer may keep times: only the text tells
    os.utime(copy / "callee.py", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    Path(cache_from_source(str(copy / "callee.py"))).unlink(missing_ok=True)  # wherever Python keeps bytecode
    assert output(start(copy)) == "10.0 0"


def test_processes_that_compile_at_once_agree(copy):
    results = [output(p) for p in [start(copy) for _ in range(4)]]
    assert {r.split()[0] for r in results} == {"6.0"}
    assert output(start(copy)) == "6.0 1"


def damaged(path: Path, how: str) -> None:
    content = path.read_bytes()
    path.unlink()
    if how == "folder":  # can be opened as little as a file without permission, by an administrator too
        path.mkdir()
    else:
        flipped = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
        path.write_bytes({"short": content[:-7], "empty": b"", "other": b"not a pickle" * 9, "flipped": flipped}[how])


DAMAGED = """
import importlib
from pathlib import Path
import nbtc.caller

{damaged}

for how in ("none", "short", "empty", "other", "flipped", "folder"):
    for path in Path({cache!r}).rglob("*caller.twice*.nbc"):
        if how != "none":
            damaged(path, how)
    twice = importlib.reload(nbtc.caller).twice
    print(how, twice(1.0), sum(twice.stats.cache_hits.values()))
"""


def test_a_damaged_entry_is_compiled_anew(copy):
    """Each time by a dispatcher of its own, which knows nothing but the disk."""
    output(start(copy))
    cache = copy.parent.parent / "cache"
    found = output(start(copy, DAMAGED.format(damaged=inspect.getsource(damaged), cache=str(cache)))).splitlines()
    assert found == ["none 6.0 1", *(f"{how} 6.0 0" for how in ("short", "empty", "other", "flipped", "folder"))]
    assert not list(cache.rglob("tmp*")), "nothing half written is left"


@pytest.mark.skipif(os.name != "posix", reason="limits of file sizes are POSIX's")
def test_a_cache_that_cannot_be_written_is_none(copy):
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99)); "  # as on a disk that is full
    whole = "import sys; sys.dont_write_bytecode = True; "  # or Python itself takes what was cut short for whole
    assert output(start(copy, whole + full + RUN)) == "6.0 0"
    (copy.parent.parent / "cache").rename(copy.parent.parent / "before")
    (copy.parent.parent / "cache").write_text("no folder")
    assert output(start(copy)).startswith("6.0")


def test_without_a_compiler_nbtc_says_so(copy):
    code = """
import numpy as np, nbtc, nbtc.warp, nbtc.wmma
nbtc.instruction("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32").a.coords()
x = np.ones((4, 4), np.float16)
for call in (lambda: nbtc.matmul(x, x), lambda: nbtc.warp.reduce_add_sync(1, np.zeros(32, np.int32))):
    try:
        call()
    except nbtc.errors.CompilerError as error:
        print("NUMBA_DISABLE_JIT" in str(error))
"""
    assert output(start(copy, code, fresh, NUMBA_DISABLE_JIT="1")).split() == ["True", "True"]


def test_programs_need_no_compiler_of_numbas(tmp_path):
    code = """
import numpy as np, nbtc, nbtc.warmup
program, found = nbtc.load(nbtc.warmup.PROGRAM)["reverse"], np.zeros((2, 64), np.int32)
program[1, 64](found[0])
program.checked[1, 64](found[1])
print((found == np.arange(64)[::-1]).all())
"""
    assert output(fresh(code, NUMBA_DISABLE_JIT="1", NBTC_CACHE_DIR=str(tmp_path))) == "True"
