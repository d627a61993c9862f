"""Functions of emitted vector instructions by themselves: compiled once a form, called by their addresses.

What calls them, loops over tiles and copies at the edges, is the same for all forms, and as a kernel of Numba's it
takes four times as long to compile as they do.  So it is compiled once and is told which function to call.  An address
holds for one process alone: it is an argument of every call, never a part of code that is kept on disk.

What Python calls takes its arguments as `Words`, by `run_in_words`; what kernels of Numba's call takes them one by one,
by `call_emitted`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from nbtc.compiler.announce import announced
from nbtc.compiler.builder import F64, I8, I64, VectorBuilder
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.machine_code import native
from nbtc.compiler.machine_code.made_once import MadeOnce
from nbtc.compiler.machine_code.python_calls import ARRAY, CLOSE, FLOAT, NUMBER, OPEN, caller
from nbtc.compiler.threads import Beside

POINTER = I8.as_pointer()
NUMBERS: dict[Any, Any] = {int: types.int64, float: types.float64, np.float32: types.float64}  # as they are passed
IR_TYPES = {types.int64: I64, types.float64: F64}
# Vector instructions are as they should be: LLVM's pipelines take as long over them as the making of machine code, and
# that is as fast without (measured on warp-level products).
TEXT_LEVEL, CODE_LEVEL = None, 3
_LOADED = MadeOnce()  # by what their code depends on
Named = dict[str, Any]  # arguments by name; those of a NamedTuple within are such a dictionary in turn


class Emitted(NamedTuple):
    """A function: the NamedTuple class of its arguments, and what writes its body, which gives an i64, or None for 0.

    A field is passed as its annotation says: a whole number as i64, a float as f64, anything else is an array, of which
    the data's address is passed.
    """

    arguments: Any
    body: Callable[[VectorBuilder, Named], Any]


@rarely_collected
def machine_code(functions: dict[str, Emitted], *key: str, level: int | None = TEXT_LEVEL) -> native.Loaded:
    """Functions by their names, from disk if they are there; key: texts that tell all that they depend on.

    level: how far LLVM optimises their text.  Of one key there is one machine code in a process, which stays for its
    life: callers hold addresses, and of several threads that ask at once (a `cached_property` has no lock from Python
    3.12 on) none may let go what another one runs.
    """
    name = native.digest("emitted", *key)

    def loaded() -> native.Loaded:
        found = native.fetch(name)
        if found is None:
            found = _made(functions, level)
            native.keep(name, found)
        return native.load(found)

    made: native.Loaded = _LOADED.get(name, loaded)
    return made


def ahead(give: Callable[..., Any], *args: Any) -> Beside:
    """Have another thread make the machine code that a function gives, while this one makes what it needs before."""
    return Beside(in_default_float_mode(partial(give, *args)))


@announced
def _made(functions: dict[str, Emitted], level: int | None) -> native.Native:
    return native.Native(native.compile_text(_text(functions), level, CODE_LEVEL), {})


class Words(NamedTuple):
    """Arguments as an array of int64, floats among them by their bits and arrays by their addresses."""

    words: Any


def in_words(arguments: Any, body: Callable[[VectorBuilder, Named], Any]) -> Emitted:
    """A function of numbers and arrays that takes them as `Words`."""
    return Emitted(Words, lambda v, given: body(v, from_words(v, given["words"], arguments)))


def from_words(v: VectorBuilder, words: Any, arguments: Any) -> Named:
    """Arguments of a class, loaded from their `Words`."""
    values = (
        v.b.inttoptr(v.load(words, I64, 8, 8 * n), t) if t == POINTER else v.load(words, t, 8, 8 * n)
        for n, t in enumerate(_ir_types(arguments))
    )
    return _named(arguments, values)


def run_in_words(address: int, arguments: Any) -> int:
    """Call what `in_words` gave with arguments of its class."""
    kind: Any = type(arguments)
    return caller_in_words(kind)(address, arguments)


@cache
def caller_in_words(arguments: Any) -> Callable[[int, Any], int]:
    """What `run_in_words` does for arguments of a class, or tuples like them."""
    return caller(bytes(_description(arguments)))


def _description(arguments: Any) -> Iterator[int]:
    for kind in get_type_hints(arguments).values():
        if hasattr(kind, "_fields"):
            yield OPEN
            yield from _description(kind)
        else:
            yield {types.int64: NUMBER, types.float64: FLOAT}[NUMBERS[kind]] if kind in NUMBERS else ARRAY
    yield CLOSE


def as_words(arguments: Any) -> Words:
    """What a function of `in_words` takes; the arrays have to live for as long as it runs."""
    return Words(np.array([_word(x) for x in _flat(arguments)], np.int64))


def _word(x: Any) -> Any:
    """A number's, or an array's address."""
    if isinstance(x, float | np.floating):
        return np.float64(x).view(np.int64)
    return x.ctypes.data if isinstance(x, np.ndarray) else x


def _flat(arguments: Any) -> Iterator[Any]:
    for x in arguments:
        if isinstance(x, tuple):
            yield from _flat(x)
        else:
            yield x


def _text(functions: dict[str, Emitted]) -> str:
    """A module of functions."""
    module = ir.Module("emitted")
    module.triple = native.target()[0]
    for name, (arguments, body) in functions.items():
        function = ir.Function(module, ir.FunctionType(I64, list(_ir_types(arguments))), name)
        v = VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")))
        result = body(v, _named(arguments, iter(function.args)))
        v.b.ret(v.int(0) if result is None else result)
    return str(module)


def _ir_types(arguments: Any) -> Iterator[ir.Type]:
    for kind in get_type_hints(arguments).values():
        if hasattr(kind, "_fields"):
            yield from _ir_types(kind)
        else:
            yield IR_TYPES[NUMBERS[kind]] if kind in NUMBERS else POINTER


def _named(arguments: Any, values: Iterator[Any]) -> Named:
    return {
        name: _named(kind, values) if hasattr(kind, "_fields") else next(values)
        for name, kind in get_type_hints(arguments).items()
    }


def call_in_words(v: VectorBuilder, address: Any, kind: Any, arguments: Named) -> Any:
    """A call, in emitted code, of a function of `in_words` at an address."""
    values = list(_in_order(kind, arguments))
    with v.b.goto_entry_block():
        words = v.b.bitcast(v.b.alloca(I64, len(values)), POINTER)
    for n, x in enumerate(values):
        v.store(x, words, 8, 8 * n)
    return call_address(v, address, Words, {"words": words})


def call_address(v: VectorBuilder, address: Any, kind: Any, arguments: Named) -> Any:
    """A call, in emitted code, of the function at an address, which was emitted for arguments of the class `kind`."""
    values = list(_in_order(kind, arguments))
    return v.b.call(v.b.inttoptr(address, ir.FunctionType(I64, [x.type for x in values]).as_pointer()), values)


def _in_order(kind: Any, arguments: Named) -> Iterator[Any]:
    for name, inner in get_type_hints(kind).items():
        if hasattr(inner, "_fields"):
            yield from _in_order(inner, arguments[name])
        else:
            yield arguments[name]


def _check(given: Any) -> None:
    """Raise where an array meets a number: nothing else would see it."""
    for kind, name, t in zip(get_type_hints(given.instance_class).values(), given.fields, given.types, strict=True):
        if isinstance(t, types.BaseNamedTuple):
            _check(t)
        elif isinstance(t, types.Array) == (kind in NUMBERS):
            raise TypingError(f"{given.instance_class.__name__}.{name} is annotated as {kind}, but is a {t}")


def _values(v: VectorBuilder, given: Any, value: Any) -> Iterator[Any]:
    """What is passed of a NamedTuple."""
    for i, (kind, t) in enumerate(zip(get_type_hints(given.instance_class).values(), given.types, strict=True)):
        x = v.b.extract_value(value, i)
        if isinstance(t, types.BaseNamedTuple):
            yield from _values(v, t, x)
        elif isinstance(t, types.Array):
            yield v.pointer(t, x)
        else:
            yield v.context.cast(v.b, x, t, NUMBERS[kind])


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def call_emitted(typing, address, arguments):
    """What the function at an address gives for `arguments`, which are of the class that it was emitted with."""
    if not isinstance(arguments, types.BaseNamedTuple):
        return None
    _check(arguments)

    def codegen(context, builder, sig, args):
        values = list(_values(VectorBuilder(context, builder), sig.args[1], args[1]))
        kind = ir.FunctionType(I64, [x.type for x in values])
        return builder.call(builder.inttoptr(args[0], kind.as_pointer()), values)

    return types.int64(types.int64, arguments), codegen
