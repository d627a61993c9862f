"""The vocabulary: what the functions and objects that a kernel may name mean in device code.

A word is a row: the full name of a Python object ("nbtc.warp.shfl_sync", module and qualified name), and one of

* `word(name)`: a function of the types of its arguments that returns a Numba signature and what emits LLVM for a call;
* `instruction(name, text, result, arguments)`: PTX text, `$0` the result and `$1`, `$2` ... the arguments;
* `function(name, python)`: a function in the dialect's own words.

Names, not objects, tie a row to its word, so that a module may give meaning to one above it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import Signature
from numba.extending import intrinsic

from nbtc.dialect import target
from nbtc.errors import KernelError

VOCABULARY: dict[str, Any] = {}  # full name -> what Numba knows in its place

# register classes of operands in inline PTX (LLVM, "User Guide for NVPTX Back-end"; PTX ISA 5.2)
CONSTRAINTS = {"i1": "b", "i16": "h", "i32": "r", "i64": "l", "i128": "q", "half": "h", "bfloat": "h",
               "float": "f", "double": "d"}  # fmt: skip
_PREDICATE = ir.IntType(1)
_NUMBERED = re.compile(r"\$\d+")  # operands in a text


def refuse(message: str) -> NoReturn:
    """Stop the compilation of the kernel; the line is added where it is caught."""
    raise KernelError(message)


def full_name(x: Any) -> str:
    """The name of a row for an object, "" for objects that have none."""
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    return f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else ""


class DeviceFunction:
    """A Python function of device code, compiled for each architecture that asks."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function


def _known(x: Any) -> Any:
    found = VOCABULARY.get(full_name(x), x)
    if isinstance(found, DeviceFunction):
        return target.device_function(found.function)
    return None if found is x else found


target.values.append(_known)


def word(name: str) -> Callable[[Callable[..., Any]], Any]:
    """A word by its typing: `typing(context, *types) -> (signature, emit)`, with `emit(context, builder, sig, values)`.

    Literal arguments come as literal types, and so do defaults (None as types.none).  The signature has every
    parameter, in order.  `refuse` says why a call is wrong.
    """

    def register(typing: Callable[..., Any]) -> Any:
        VOCABULARY[name] = intrinsic(target=target.NAME, prefer_literal=True)(_with_defaults(typing))
        return VOCABULARY[name]

    return register


def _with_defaults(typing: Callable[..., Any]) -> Callable[..., Any]:
    """`typing`, given types for the defaults of parameters that a call leaves out."""
    parameters = inspect.signature(typing)
    label = typing.__name__.lstrip("_")

    @wraps(typing)
    def complete(*given: Any, **named: Any) -> Any:
        try:
            bound = parameters.bind(*given, **named)
        except TypeError as error:
            refuse(f"{label}: {error}")
        left_out = {n: p.default for n, p in parameters.parameters.items() if n not in bound.arguments}
        bound.arguments.update({n: types.none if v is None else types.literal(v) for n, v in left_out.items()})
        return typing(*(bound.arguments[n] for n in parameters.parameters))

    return complete


@target.lowering_registry.lower_constant(types.IntegerLiteral)
@target.lowering_registry.lower_constant(types.BooleanLiteral)
def _number(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A default in a call."""
    return context.get_constant_generic(builder, kind.literal_type, value)


@target.lowering_registry.lower_constant(types.StringLiteral)
def _text(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """A default in a call that is read from its type alone."""
    return context.get_dummy_value()


def function(name: str, python: Callable[..., Any]) -> None:
    """A word written in the dialect itself."""
    VOCABULARY[name] = DeviceFunction(python)


def instruction(
    name: str,
    text: str,
    result: Any,
    arguments: Sequence[Any] = (),
    parameters: Sequence[str] = (),
    effect: bool = True,
    memory: bool = False,
) -> None:
    """A word that is one PTX instruction: `$0` the result (if any), then the arguments, converted to these types.

    parameters: their names in Python, `x0`, `x1` ... otherwise.  effect, memory: as for
    `inline`.
    """
    names = parameters or [f"x{n}" for n in range(len(arguments))]
    label = name.rpartition(".")[2]

    def typing(context: Any, *given: Any) -> Any:
        for got, wanted, parameter in zip(given, arguments, names, strict=True):
            plain = types.unliteral(got)
            if not isinstance(plain, types.Number | types.Boolean) or isinstance(plain, types.Float) > isinstance(
                wanted, types.Float
            ):
                refuse(f"{label}: {parameter} is {wanted}, not {plain}")

        def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            cast = [context.cast(builder, a, t, w) for a, t, w in zip(args, sig.args, arguments, strict=True)]
            kind = ir.VoidType() if result is types.void else context.get_value_type(result)
            found = inline(builder, text, [] if result is types.void else [kind], cast, effect=effect, memory=memory)
            return found[0] if found else context.get_dummy_value()

        return Signature(result, given, None), emit

    VOCABULARY[name] = intrinsic(target=target.NAME, prefer_literal=True)(with_parameters(typing, names))


def with_parameters(typing: Callable[..., Any], names: Sequence[str]) -> Callable[..., Any]:
    """`typing` under a signature with these parameters, which is what Numba reads."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, kind) for n in ("context", *names)]
    typing.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return typing


def inline(
    builder: Any,
    text: str,
    results: Sequence[ir.Type],
    arguments: Sequence[Any],
    *,
    effect: bool = True,
    memory: bool = False,
    immediates: Sequence[int] = (),
    tied: Sequence[Any] = (),
) -> list[Any]:
    """Emit PTX text: `$0`... its results, then the arguments; returns the results' values.

    effect: the instruction does more than give its result (it waits, exchanges, stores), so it is neither removed nor
    merged.  memory: it reads or writes memory, so loads and stores are not moved across it.  immediates: values after
    the arguments that the text needs as literals.  tied: what the first results' registers hold before.
    """
    if _in_words.get():
        return _by_words(builder, text, results, arguments, effect, memory, (immediates, tied))
    register = [_register_type(t) for t in results]
    kind: Any = ir.VoidType()
    if register:
        kind = register[0] if len(register) == 1 else ir.LiteralStructType(register)
    raw = [builder.bitcast(a, _register_type(a.type)) if _has_16_bits(a.type) else a for a in arguments]
    raw += [ir.Constant(ir.IntType(32), n) for n in immediates]
    constraints = [f"={CONSTRAINTS[str(t)]}" for t in register]
    constraints += [CONSTRAINTS[str(a.type)] for a in raw[: len(arguments)]] + ["n"] * len(immediates)
    raw += tied
    constraints += [str(n) for n in range(len(tied))]
    constraints += ["~{memory}"] if memory else []
    assembly = ir.InlineAsm(
        ir.FunctionType(kind, [a.type for a in raw]), text, ",".join(constraints), side_effect=effect or memory
    )
    # threads meet in what exchanges between them: it must not be copied into branches, or merged out of them
    found = builder.call(assembly, raw, attrs=("convergent",) if effect or memory else ())
    if not register:
        return []
    parts = [found] if len(register) == 1 else [builder.extract_value(found, n) for n in range(len(register))]
    return [builder.bitcast(p, t) if _has_16_bits(t) else p for p, t in zip(parts, results, strict=True)]


_in_words: ContextVar[bool] = ContextVar("predicates in words", default=False)


@contextmanager
def predicates_in_words() -> Iterator[None]:
    """Inside, `inline` passes predicates as words of 0 and 1: NVVM knows no operands that are predicates."""
    before = _in_words.set(True)
    try:
        yield
    finally:
        _in_words.reset(before)


def _by_words(
    builder: Any, text: str, results: Sequence[ir.Type], arguments: Sequence[Any], effect: bool, memory: bool, more: Any
) -> list[Any]:
    """`inline` where predicates are words: the text has its own, set from words before and copied to words after."""
    word = ir.IntType(32)
    outputs = [n for n, t in enumerate(results) if t == _PREDICATE]
    inputs = [n for n, a in enumerate(arguments, len(results)) if a.type == _PREDICATE]
    if outputs or inputs:
        own = {f"${n}": f"nbtc_p{n}" for n in outputs + inputs}
        lines = [f".reg .pred {', '.join(own.values())};"]
        lines += [f"setp.ne.b32 nbtc_p{n}, ${n}, 0;" for n in inputs]
        lines += [_NUMBERED.sub(lambda m: own.get(m[0], m[0]), text)]
        lines += [f"selp.b32 ${n}, 1, 0, nbtc_p{n};" for n in outputs]
        text = f"{{ {' '.join(lines)} }}"
    kinds = [word if t == _PREDICATE else t for t in results]
    given = [builder.zext(a, word) if a.type == _PREDICATE else a for a in arguments]
    outside = _in_words.set(False)
    found = inline(builder, text, kinds, given, effect=effect, memory=memory, immediates=more[0], tied=more[1])
    _in_words.reset(outside)
    return [builder.trunc(x, _PREDICATE) if n in outputs else x for n, x in enumerate(found)]


def _has_16_bits(kind: ir.Type) -> bool:
    return str(kind) in ("half", "bfloat")


def _register_type(kind: ir.Type) -> ir.Type:
    return ir.IntType(16) if _has_16_bits(kind) else kind


def nvvm(builder: Any, name: str, result: ir.Type, arguments: Sequence[Any] = ()) -> Any:
    """Call one of the back end's intrinsics: `llvm.nvvm.` and the name."""
    kind = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(cgutils.get_or_insert_function(builder.module, kind, f"llvm.nvvm.{name}"), list(arguments))
