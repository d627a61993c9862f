"""`import nbtc` loads one module and has no side effect: NumPy and Numba come with the first thing that needs them."""

import ast
from pathlib import Path

import pytest

from tests.processes import forked, fresh, output

CODE = """
import sys
before = set(sys.modules)
import nbtc
print(*sorted(m for m in set(sys.modules) - before if m.startswith("nbtc")))
print([m for m in ("numpy", "numba", "llvmlite", "ml_dtypes", "torch") if m in sys.modules])
"""


def run(code: str) -> list[str]:
    return output(fresh(code)).split("\n")


def test_import_loads_one_module():
    assert run(CODE)[0] == "nbtc"


def test_import_loads_nothing_heavy():
    assert run(CODE)[1] == "[]"


def test_every_public_name_resolves():
    import nbtc

    missing = [name for name in nbtc.__all__ if not hasattr(nbtc, name)]
    assert not missing
    assert set(nbtc.__all__) <= set(dir(nbtc))


@pytest.mark.parametrize(
    ("other", "own"), [("threadIdx", "thread_idx"), ("atomicAdd", "atomic_add"), ("mathmul", "matmul")]
)
def test_a_name_of_other_tools_leads_to_ours(other, own):
    import nbtc

    with pytest.raises(AttributeError, match=f"no attribute '{other}': did you mean {own}\\?$"):
        getattr(nbtc, other)
    with pytest.raises(AttributeError, match=r"no attribute 'zzz'$"):
        _ = nbtc.zzz


def test_type_checkers_see_every_public_name():
    import nbtc

    tree = ast.parse(Path(nbtc.__file__).read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    seen = [(node.module, alias.name) for node in imports for alias in node.names if alias.asname == alias.name]
    modules = [("nbtc", name) for name in nbtc._MODULES]
    assert sorted(seen) == sorted([*modules, *((room, name) for name, room in nbtc._NAMES.items())])


def test_names_survive_the_import_of_their_rooms():
    """A submodule that shares its name with a function must not take the function's place."""
    code = """
import importlib, pkgutil, nbtc
for m in pkgutil.walk_packages(nbtc.__path__, "nbtc."):
    try:
        if not m.name.endswith("__main__"):
            importlib.import_module(m.name)
    except ImportError as missing:
        if missing.name not in ("torch", "dask", "triton", "numba_cuda", "cutlass"):
            raise
print([n for n in ("matmul", "gemm", "plan", "instruction", "instructions", "pack", "unpack", "convert")
       if not callable(getattr(nbtc, n))])
"""
    assert output(forked(code)) == "[]"


@pytest.mark.parametrize(
    ("name", "package"), [("torch", "torch"), ("dask", "dask"), ("triton", "triton"), ("cute", "cutlass")]
)
def test_a_door_says_which_extra_it_needs(name, package):
    code = f"""
import sys, nbtc
sys.modules["{package}"] = None
try:
    nbtc.{name}
except ImportError as missing:
    print(type(missing).__name__, missing.name, missing)
"""
    said = run(code)[0]
    assert said.startswith(f"MissingExtraError {package} ") and f"nbtc[{name}]" in said


def test_an_unknown_name_is_an_attribute_error():
    import nbtc

    assert not hasattr(nbtc, "no_such_name")
