"""The jit decorator: the only file that names Numba flags.

`jit` compiles a naked kernel: no Python objects, no fast-math, no contraction, the GIL released, NumPy division rules,
and an on-disk cache whose stamp covers all sources of nbtc that a function's file imports, directly or not.  Numba's
own stamp covers the one file a function is written in, so after an upgrade of nbtc a cached caller would keep the old
machine code of its callees (measured).
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from numba import njit
from numba.core import caching
from numba.core.serialize import dumps

F = TypeVar("F", bound=Callable[..., Any])


ROOT = Path(__file__).resolve().parents[1]


@cache
def _imports(path: Path) -> frozenset[Path]:
    """Files of nbtc that a file of nbtc names in its import statements, those inside of functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "nbtc":
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("nbtc.")}
    places = (ROOT.joinpath(*name.split(".")[1:]) for name in found)
    files = (place / "__init__.py" if place.is_dir() else place.with_suffix(".py") for place in places)
    return frozenset(file for file in files if file.is_file())


@cache
def source_digest(path: Path) -> str:
    """Digest over the text of a file of nbtc and of all that it imports, directly or not.

    The front door, `nbtc/__init__.py`, holds no compiled code and names every room: it is left out.
    """
    seen: set[Path] = set()
    todo = {path}
    while todo:
        seen |= todo
        todo = set().union(*(_imports(p) for p in todo)) - seen - {ROOT / "__init__.py"}
    digest = hashlib.sha256()
    for file in sorted(seen):
        digest.update(str(file.relative_to(ROOT)).encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _sources(function: Any) -> list[Path]:
    """The file a function is written in, and those of the kernels it closes over."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    kernels = [x.py_func for x in cells if hasattr(x, "py_func")]
    mine = Path(function.__code__.co_filename).resolve()
    inner = [path for kernel in kernels for path in _sources(kernel)]
    return sorted({*([mine] if mine.is_relative_to(ROOT) else []), *inner})


def _stamped(locator: type) -> type:
    """A cache locator whose source stamp also covers what the function's file imports of nbtc."""

    class Stamped(locator):  # type: ignore[misc]
        def get_source_stamp(self) -> tuple[Any, ...]:
            return (super().get_source_stamp(), *map(source_digest, self._nbtc_sources))

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            self = super().from_function(py_func, py_file)
            if self is not None:
                self._nbtc_sources = _sources(py_func)
            return self

    Stamped.__name__ = f"Stamped{locator.__name__}"
    return Stamped


class _Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes: ClassVar[list[Any]] = [_stamped(c) for c in caching.CacheImpl._locator_classes]


def _constants(function: Any) -> str:
    """What a function closes over, the same in every process: numbers as text, kernels by their (own) names."""
    found = []
    for cell in function.__closure__ or ():
        x = cell.cell_contents
        if hasattr(x, "py_func"):
            found.append(str(x.py_func.__qualname__))
        else:
            found.append(repr(x) if isinstance(x, int | float | str) else hashlib.sha256(dumps(x)).hexdigest())
    return " ".join(found)


def _name_apart(function: Any) -> None:
    """Put what a closure closes over into its name.

    Numba links by symbol, and makes the symbols of closures differ only by a counter of the process.  Kernels that come
    from the cache were compiled by several processes: two of one name would be taken for the same function, and the
    results be those of another format (measured).
    """
    if function.__closure__:
        digest = hashlib.sha256(_constants(function).encode()).hexdigest()[:16]
        function.__qualname__ = f"{function.__qualname__}_{digest}"


class _Cache(caching.FunctionCache):  # type: ignore[misc]
    """Machine code on disk, found by name (which tells the constants of a closure), signature and processor.

    Numba's own key pickles closed-over kernels, whose pickles differ from process to process: never found again.
    """

    _impl_class = _Impl

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return sig, codegen.magic_tuple(), self._py_func.__qualname__


def jit(function: F | None = None, *, parallel: bool = False, inline: bool = False, cached: bool = True) -> Any:
    """Compile `function` with nbtc's flags.

    parallel: allow `numba.prange`.  inline: merge into the caller's LLVM (small helpers; they are never cached by
    themselves).  cached: keep machine code on disk; switch off for functions built at run time.
    """
    if function is None:
        return lambda f: jit(f, parallel=parallel, inline=inline, cached=cached)
    _name_apart(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "parallel": parallel}
    if inline:
        options["forceinline"] = True
    dispatcher = njit(**options)(function)
    if cached and not inline and hasattr(dispatcher, "_cache"):
        with suppress(RuntimeError):  # no writable cache directory: compile anew in each process
            dispatcher._cache = _Cache(function)
    return cast(F, dispatcher)
