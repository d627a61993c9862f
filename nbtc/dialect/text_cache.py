"""PTX kept on disk: found by everything that a kernel's text depends on, without typing the kernel again.

That is its bytecode with its lines, the values of the constants, closures and globals that it names, the functions it
calls with theirs, the types of its arguments, the architecture, and the sources of the dialect.
"""

from __future__ import annotations

import dis
import hashlib
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numba
import numpy as np
from numba.core import types

from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.machine_code import native
from nbtc.dialect import vocabulary, words
from nbtc.dialect.folding import is_record
from nbtc.dialect.module import WrittenPtx
from nbtc.formats.table import Format

PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis))
GLOBALS, ATTRIBUTES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"), ("LOAD_ATTR", "LOAD_METHOD")


class _UnknownError(Exception):
    """A kernel depends on something that has no text of its own."""


@cache
def _stamp() -> str:
    """A digest of the sources that decide what a kernel becomes."""
    here = Path(__file__).resolve().parent
    return source_digest(here / "module.py", *(here / "vocabulary" / f"{part}.py" for part in vocabulary.MODULES))


def digest(function: Callable[..., Any], kinds: Sequence[Any], *others: str) -> str | None:
    """A name for a kernel's text; None where it depends on what has no name.  others: what else it depends on."""
    try:
        parts = list(_function(function, set()))
    except _UnknownError:
        return None
    return native.digest("kernel", _stamp(), numba.__version__, *others, *map(_spelled, kinds), *parts)


def _spelled(kind: Any) -> str:
    """A type with the names of its fields, which Numba's name of a named tuple leaves out."""
    items = [_spelled(item) for item in kind] if isinstance(kind, types.BaseTuple) else []
    return f"{kind} {getattr(kind, 'fields', ())} {items}" if items else str(kind)


def fetch(name: str | None) -> WrittenPtx | None:
    """What `keep` stored."""
    found = native.fetch(name) if name is not None else None
    return None if found is None else WrittenPtx(found.object.decode(), found.about["name"])


def keep(name: str | None, written: WrittenPtx) -> None:
    """Store a kernel's text."""
    if name is not None:
        native.keep(name, native.Native(written.text.encode(), {"name": written.name}))


def _function(function: Callable[..., Any], seen: set[int]) -> Iterator[str]:
    """The parts of a function's identity."""
    if id(function) in seen:
        return
    seen.add(id(function))
    if not isinstance(function, FunctionType):
        raise _UnknownError
    code = function.__code__
    yield f"{code.co_filename}:{code.co_firstlineno}:{function.__qualname__}"
    yield from _code(code)
    cells = dict(zip(code.co_freevars, function.__closure__ or (), strict=True))
    named = {**function.__globals__, **{name: cell.cell_contents for name, cell in cells.items()}}
    for value in function.__defaults__ or ():
        yield from _value(value, seen)
    for value in _named(code, named):
        yield from _value(value, seen)


def _code(code: CodeType) -> Iterator[str]:
    yield hashlib.sha256(code.co_code + code.co_linetable).hexdigest()
    yield repr((code.co_names, code.co_varnames, code.co_freevars))
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield repr(constant)


def _named(code: CodeType, names: dict[str, Any]) -> Iterator[Any]:
    """The values of names outside of the function, and of what is taken from modules by dots."""
    value: Any = None
    for step in dis.get_instructions(code):
        if step.opname in GLOBALS and step.argval in names:
            value = names[step.argval]
        elif step.opname in ATTRIBUTES and isinstance(value, ModuleType | type) and hasattr(value, step.argval):
            value = getattr(value, step.argval)
        else:
            value = None
            continue
        yield value
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _named(constant, names)


def _value(x: Any, seen: set[int]) -> Iterator[str]:
    """The parts of a constant's identity."""
    inner = getattr(x, "py_func", None) or getattr(x, "function", None)
    if isinstance(x, Enum):
        yield f"{type(x).__module__}.{type(x).__qualname__}.{x.name}"
        yield from _value(x.value, seen)
    elif isinstance(x, PLAIN):
        yield f"{type(x).__name__} {x!r}"
    elif isinstance(x, np.ndarray | np.generic):
        yield f"{x.dtype} {np.shape(x)} {hashlib.sha256(x.tobytes()).hexdigest()}"
    elif is_record(x):
        fields = getattr(x, "_fields", None) or tuple(x.__dataclass_fields__)
        yield f"{type(x).__module__}.{type(x).__qualname__} {fields}"
        for name in fields:
            yield from _value(getattr(x, name), seen)
    elif isinstance(x, tuple):
        yield f"{type(x).__name__} {len(x)}"
        for item in x:
            yield from _value(item, seen)
    elif isinstance(x, Format):
        yield f"format {x.name}"
    elif words.full_name(x) in words.VOCABULARY or words.full_name(x).startswith(("numpy.", "builtins.")):
        yield words.full_name(x)
    elif isinstance(inner, FunctionType) or isinstance(x, FunctionType):  # nbtc's own too: a closure has many values
        yield from _function(inner if isinstance(inner, FunctionType) else x, seen)
    elif isinstance(x, ModuleType):
        yield x.__name__
    elif words.full_name(x).startswith("nbtc."):
        yield words.full_name(x)
    elif isinstance(x, type):
        yield from _class(x, seen)
    elif isinstance(x, types.Type | np.dtype) or type(x).__module__.startswith("nbtc."):
        yield _said(x)
    else:
        raise _UnknownError


def _class(x: type, seen: set[int]) -> Iterator[str]:
    """The parts of a class's identity: its name, and the values of its attributes, constants to a kernel."""
    yield f"class {x.__module__}.{x.__qualname__}"
    if id(x) in seen:
        return
    seen.add(id(x))
    if issubclass(x, Enum):
        for member in x:
            yield from _value(member, seen)
        return
    for part in x.__mro__[:-1]:
        for name, value in vars(part).items():
            if name.startswith("__") or (hasattr(value, "__get__") and not isinstance(value, FunctionType)):
                continue
            yield name
            yield from _value(value, seen)


def _said(x: Any) -> str:
    """What an object says of itself, if that is the same in every process."""
    text = repr(x)
    if " at 0x" in text:
        raise _UnknownError
    return text
