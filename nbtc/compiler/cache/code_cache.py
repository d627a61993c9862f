"""Machine code kept on disk: found by what it was compiled from, and never in the way.

Numba's stamp covers the one file a function is written in, so after an upgrade of nbtc a cached caller would keep the
old machine code of its callees (measured): here it covers all sources of nbtc that a function's file imports, directly
or not.  An entry is one file with a checksum, written at once or not at all.  Whatever is wrong with a file or its
folder, the code is compiled anew.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numba
from numba.core import caching
from numba.core.runtime import rtsys
from numba.core.serialize import dumps

from nbtc.compiler.cache.added_rows import frozen_digest
from nbtc.compiler.cache.sources import ROOT, source_digest, unchanged


def _sources(function: Any) -> list[str]:
    """The file a function is written in, and those of the kernels it closes over."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    kernels = [x.py_func for x in cells if hasattr(x, "py_func")]
    mine = os.path.realpath(function.__code__.co_filename)
    inner = [path for kernel in kernels for path in _sources(kernel)]
    return sorted({*([mine] if mine.startswith(ROOT + os.sep) else []), *inner})


_writable: set[str] = set()


def _stamped(locator: type) -> type:
    """A cache locator whose source stamp also covers what the function's file imports of nbtc."""

    class Stamped(locator):  # type: ignore[misc]
        def ensure_cache_path(self) -> None:
            path = self.get_cache_path()
            if path not in _writable or not os.path.isdir(path):  # Numba writes a file there, for every function
                super().ensure_cache_path()
                _writable.add(path)

        def get_source_stamp(self) -> tuple[Any, ...]:
            return (super().get_source_stamp(), *map(source_digest, self._nbtc_sources), frozen_digest("formats"))

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            self = super().from_function(py_func, py_file)
            if self is not None:
                self._nbtc_sources = _sources(py_func)
            return self

    Stamped.__name__ = f"Stamped{locator.__name__}"
    return Stamped


class Impl(caching.CompileResultCacheImpl):  # type: ignore[misc]
    """What is kept of a compiled function, and where."""

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


def name_apart(function: Any) -> None:
    """Put what a closure closes over into its name.

    Numba links by symbol, and makes the symbols of closures differ only by a counter of the process.  Kernels that come
    from the cache were compiled by several processes: two of one name would be taken for the same function, and the
    results be those of another format (measured).
    """
    if function.__closure__:
        digest = hashlib.sha256(_constants(function).encode()).hexdigest()[:16]
        function.__qualname__ = f"{function.__qualname__}_{digest}"


class _Entries:
    """Files of one function, each for one key: a checksum, then the pickled sources' stamp and the machine code.

    Numba keeps an index beside numbered files; two processes that add entries at the same time may then give both the
    same number, and one loads the code of the other's types.
    """

    def __init__(self, folder: str, base: str, stamp: object) -> None:
        self.folder, self.base, self.stamp = Path(folder), base, stamp

    def _path(self, key: object) -> Path:
        digest = hashlib.sha256(repr((numba.__version__, key)).encode()).hexdigest()[:24]
        return self.folder / f"{self.base}.{digest}.nbc"

    def load(self, key: object) -> Any:
        """The entry of a key, or None."""
        content = self._path(key).read_bytes()
        checksum, data = content[:32], content[32:]
        if hashlib.sha256(data).digest() != checksum:
            return None
        stamp, code = pickle.loads(data)
        return code if stamp == self.stamp else None

    def save(self, key: object, code: Any) -> None:
        """Write an entry; other processes see all of it or nothing."""
        data = dumps((self.stamp, code))
        handle, name = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(data).digest() + data)
            os.replace(name, self._path(key))
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise

    def flush(self) -> None:
        """Forget every entry."""
        for path in self.folder.glob(f"{self.base}.*.nbc"):
            path.unlink(missing_ok=True)


class CodeCache(caching.FunctionCache):  # type: ignore[misc]
    """Machine code on disk, found by name (which tells the constants of a closure), signature and processor.

    Numba's own key pickles closed-over kernels, whose pickles differ from process to process: never found again.
    """

    _impl_class = Impl

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self._cache_file = _Entries(self._cache_path, self._impl.filename_base, self._impl.locator.get_source_stamp())

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return str(sig), codegen.magic_tuple(), self._py_func.__qualname__

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code, or None: also when the file is damaged, or can't be read.

        Numba's own first registers all that it can compile, a quarter of what a process takes whose code is on the
        disk.  Code that runs needs the runtime alone; a compilation registers the rest itself.
        """
        with suppress(Exception):
            rtsys.initialize(target_context)
            return self._load_overload(sig, target_context)
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if that can be done and other processes can find it."""
        if not unchanged():
            return
        with suppress(Exception):
            super().save_overload(sig, data)


def cache_of(function: Callable[..., Any], kind: type[CodeCache] = CodeCache) -> CodeCache | None:
    """Where a function's code is kept; None where no folder can be written."""
    try:
        return kind(function)
    except (RuntimeError, OSError):
        return None


class DeferredCache:
    """A function's cache, looked for when its code is first wanted or asked about.

    A process defines hundreds of kernels and runs a few: folders and digests for all of them were a seventh of its
    start.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    @cached_property
    def _found(self) -> Any:
        return cache_of(self._function) or caching.NullCache()

    @property
    def cache_path(self) -> Any:
        """The folder, None where none can be written."""
        return self._found.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Compiled code, or None."""
        return self._found.load_overload(sig, target_context)

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep compiled code, if that can be done."""
        self._found.save_overload(sig, data)

    def flush(self) -> None:
        """Forget every entry."""
        self._found.flush()
