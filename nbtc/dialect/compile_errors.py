"""What Numba and LLVM say of a kernel that they can't compile, as one sentence with the line."""

from __future__ import annotations

import ast
import inspect
import linecache
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numba
from numba.core.ir import UNDEFINED, FreeVar, Global, Loc

from nbtc.dialect.index_errors import changed_row, has, index_reason
from nbtc.errors import CompilerError, KernelError, NbtcError

ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
# Lines of Numba's messages that name no reason.
EMPTY = re.compile(
    r"^(Failed in |During: |File |- Resolution|- argument|There are \d+ candidate|Enable logging|"
    r"Overload |Invalid use of|No match|Rejected|Known signatures|raised from|<source|[=~^-]+$|$)"
)
MOST = 300  # characters of a reason


NUMBA = os.path.dirname(numba.__file__)
RAISED = re.compile(r"raised from (.+) \((\d+)\)", re.IGNORECASE)  # the line of bytecode that Numba has no code for
CONTEXT = re.compile(r'File "[^"\n]*", line \d+:.*?(?=\n\s*\n|\Z)', re.DOTALL)  # with lines of the source
ALLOCATED = (
    "nothing is allocated in a kernel, neither lists, sets and dicts nor new arrays: use tuples, nbtc.local or "
    "nbtc.shared"
)
RETURNED = "Only accept returning of array"  # said of Numba's own product of arrays, and of functions of the user
RETURNS = (
    "a function that kernels call returns numbers, tuples of them, or arrays that were passed to it: make the array in "
    "the kernel and pass it"
)
STRINGS = "strings are not made in kernels: print shows constant texts and numbers, print('x =', x)"
PRODUCTS = (
    "a product of arrays would be a new array, and nothing is allocated in a kernel: add products of elements up in a "
    "loop, or take tensor cores by nbtc.wmma or nbtc.ptx.mma_sync"
)
# What Numba says of things that device code has not, and what to do instead.
INSTEAD = (
    (
        re.compile(r"readonly (array|buffer)"),
        "an array that is written here is read-only: pass one that may be written (x.copy(), or x.flags.writeable = "
        "True where the memory is yours)",
    ),
    (
        re.compile(r"in f-strings not supported|reflected list\(unicode_type\)|Function\(<class 'str'>\)"),
        STRINGS,
    ),
    (
        re.compile(r"Function\(<(built-in )?function (dot|matmul)\b|numpy\.matmul|required for linear algebra"),
        PRODUCTS,
    ),
    (
        re.compile(
            r"NRT required but not enabled|NRT not enabled|imprecise type: (Dict|List|Set|dict|list|set)|"
            r"Function\(<(built-in )?function (array|arange|linspace|eye|copy|(zeros|ones|empty|full)(_like)?)\b"
        ),
        ALLOCATED,
    ),
    (
        re.compile(r"set_try_status|try_except|exception_match"),
        "kernels have no `try`: an exception that is raised in one ends the launch",
    ),
    (
        re.compile(r"setitem\(array\((\w+), [^>]*(?:Literal\[str\]|unicode_type)"),
        r"an array of \1 holds no text: store a number",
    ),
    (
        re.compile(r"setitem\(array\(((?:bool|u?int|float)\w*), [^>]*\bcomplex\d+\)"),
        r"an array of \1 holds no complex number: store its .real, .imag or abs()",
    ),
    (
        re.compile(r"insert_unresolved_ref|runaway recursion|type-inferred yet|type of recursive"),
        "a function that calls itself, or one that calls it, has no device code: write a loop",
    ),
    (
        re.compile(r"numba_attempt_nocopy_reshape"),
        "reshape has no device code: pass the array in the shape that the kernel wants",
    ),
    (
        re.compile(r"unsupported opcode \(UNPACK_EX\)"),
        "a starred name has no device code: name each part of the tuple, or index and slice it",
    ),
    (
        re.compile(r"unsupported opcode \((\w+)\)"),
        r"this statement has no device code (Python's bytecode \1)",
    ),
    (
        re.compile(r"module 'nbtc' has no attribute '(?:float|int|uint|bfloat)\d+'"),
        "nbtc's types of elements have short names, nbtc.f32, nbtc.s32, nbtc.u8; NumPy's will do too, np.float32",
    ),
)


@contextmanager
def said_plainly(function: Callable[..., Any]) -> Iterator[None]:
    """Raise what goes wrong inside as a KernelError that names the kernel and the line."""
    try:
        yield
    except KernelError as error:
        where = _place(error, function)
        raise KernelError(f"{where}: {error}") from None
    except CompilerError as error:
        raise CompilerError(f"{_place(error, function)}: {error}") from None
    except NbtcError:
        raise
    except Exception as error:
        raise KernelError(f"{_place(error, function)}: {_reason(error)}") from error


def _place(error: BaseException, function: Callable[..., Any]) -> str:
    """The kernel, and the innermost line that the compiler was at."""
    name = f"kernel {function.__name__}"
    loc = _loc(error)
    if loc is None:
        return f"{name} ({function.__code__.co_filename}:{function.__code__.co_firstlineno})"
    said = linecache.getline(loc.filename, loc.line).strip()
    return f"{name} ({loc.filename}:{loc.line}): `{said}`" if said else f"{name} ({loc.filename}:{loc.line})"


def _loc(error: BaseException) -> Loc | None:
    loc = _bytecode_loc(error) or _own(getattr(error, "loc", None)) or _last_loc(error.__traceback__)
    return loc if isinstance(loc, Loc) and loc.line is not None else None


def _bytecode_loc(error: BaseException) -> Loc | None:
    """The line of a statement that Numba can't read; its own place for it is the function's first line."""
    found = RAISED.search(ESCAPES.sub("", str(error)))
    return Loc(found[1], int(found[2])) if found else None


def _own(loc: Any) -> Loc | None:
    """A place outside of Numba, whose own functions stand for some of Python's."""
    return loc if isinstance(loc, Loc) and not loc.filename.startswith(NUMBA) else None


def _last_loc(trace: TracebackType | None) -> Loc | None:
    """Numba's typing and lowering keep the place they are at: the last one on the way to the error."""
    found = None
    while trace is not None:
        held = getattr(trace.tb_frame.f_locals.get("self"), "__dict__", {})  # objects may refuse every other attribute
        found = _own(held.get("loc")) or found
        trace = trace.tb_next
    return found


def _reason(error: Exception) -> str:
    """The first line of a message that says something, or what nbtc says instead."""
    text = ESCAPES.sub("", str(getattr(error, "msg", None) or error))
    trace, loc = error.__traceback__, _loc(error)
    if RETURNED in text and "Function(" not in text:
        return PRODUCTS if has(loc, ast.MatMult) else RETURNS
    for pattern, sentence in INSTEAD:
        found = pattern.search(text)
        if found and sentence is ALLOCATED:
            return STRINGS if has(loc, ast.JoinedStr) else changed_row(trace, loc) or ALLOCATED
        if found:
            return found.expand(sentence)
    index = index_reason(text, trace, loc)
    if index is not None:
        return index
    unknown = _unknown_name(trace)
    if unknown is not None and "Cannot determine Numba type" in text:
        return unknown
    lines = [" ".join(line.split()) for line in CONTEXT.sub("", text).splitlines()]
    said = [line for line in lines if not EMPTY.match(line)]
    reason = " ".join(said[:2]) if said else (lines or ["an operation without device code"])[0]
    return reason if len(reason) <= MOST else reason[: MOST - 3] + "..."


def _unknown_name(trace: TracebackType | None) -> str | None:
    """What is wrong with a global name or a closure's that has no type: Numba's typing of it keeps it at hand."""
    found = None
    while trace is not None:
        found, trace = trace.tb_frame.f_locals.get("gvar", found), trace.tb_next
    if not isinstance(found, Global | FreeVar):
        return None
    name, value = found.name, found.value
    if value is UNDEFINED:
        return f"{name} is not defined: define or import it before the kernel is compiled, at its first launch"
    if inspect.isfunction(value):
        return f"{name} is a plain Python function: put @nbtc.device above its def to call it from kernels"
    if inspect.isclass(value) or callable(value):
        return f"{name} has no device code: kernels call nbtc's functions, functions under @nbtc.device, and maths"
    return (
        f"{name} is a {type(value).__name__}, which kernels cannot hold: numbers, strings, arrays, tuples of them, and "
        "fields of frozen dataclasses and named tuples can be constants; pass what changes as an argument"
    )
