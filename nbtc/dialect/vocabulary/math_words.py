"""Elementary functions: what Numba's lowering calls by the names of C's library and of LLVM's intrinsics.

Such a call becomes one of the dialect's own function (`libm`), compiled and linked on demand; float32 by way of
float64.  The remainder of a division (`%`, `frem`), which the back end would approximate, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types

from nbtc.dialect import target, words
from nbtc.dialect.libm import elementary, gamma, trigonometric

HERE = elementary.__name__
I64, I128, DOUBLE = ir.IntType(64), ir.IntType(128), ir.DoubleType()

# name in C -> function and number of arguments
FUNCTIONS: dict[str, tuple[Callable[..., Any], int]] = {
    **{f.__name__: (f, 1) for f in (
        elementary.exp, elementary.exp2, elementary.expm1, elementary.log, elementary.log2, elementary.log10,
        elementary.log1p, elementary.sinh, elementary.cosh, elementary.tanh, elementary.erf,
        trigonometric.sin, trigonometric.cos, trigonometric.tan, trigonometric.asin, trigonometric.acos,
        trigonometric.atan, gamma.erfc, gamma.gamma, gamma.lgamma, gamma.asinh, gamma.acosh, gamma.atanh,
    )},
    "pow": (elementary.power, 2),
    "atan2": (trigonometric.atan2, 2),
    "hypot": (elementary.hypot, 2),
    "fmod": (elementary.fmod, 2),
}  # fmt: skip
# functions of C's library that the back end has as intrinsics, all of them exact
EXACT = "sqrt|floor|ceil|trunc|rint|nearbyint|fabs|copysign|fma"
_EXACT = re.compile(rf'@"?({EXACT})(f?)"?(?=\()')
_NAMES = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
# Numba leaves the type out of some intrinsics' names: the first argument tells it; one function is Numba's own
_SYMBOL = re.compile(rf'@"?(?:(?:llvm\.)({_NAMES})(?:\.f(?:32|64))?|(?:numba_)?({_NAMES})f?)"?(?=\((float|double)\b)')
_REMAINDER = re.compile(r"= frem (?:\w+ )*(float|double) ([^,\n]+), ([^,\n]+)")
_OWN = re.compile(r"@nbtc_math_([a-z0-9]+)_f(32|64)\b")


@words.word(f"{HERE}.fma")
def _fma(context: Any, x: Any, y: Any, z: Any) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        values = [c.cast(b, v, t, types.float64) for v, t in zip(a, s.args, strict=True)]
        return b.fma(*values)

    return types.float64(x, y, z), emit


@words.word(f"{HERE}.bits_of")
def _bits_of(context: Any, x: Any) -> Any:
    return types.int64(x), lambda c, b, s, a: b.bitcast(c.cast(b, a[0], s.args[0], types.float64), I64)


@words.word(f"{HERE}.of_bits")
def _of_bits(context: Any, x: Any) -> Any:
    return types.float64(x), lambda c, b, s, a: b.bitcast(c.cast(b, a[0], s.args[0], types.int64), DOUBLE)


@words.word(f"{HERE}.high_product")
def _high_product(context: Any, x: Any, y: Any) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        wide = [b.zext(c.cast(b, v, t, types.uint64), I128) for v, t in zip(a, s.args, strict=True)]
        return b.trunc(b.lshr(b.mul(*wide), ir.Constant(I128, 64)), I64)

    return types.uint64(x, y), emit


@words.word(f"{HERE}.polynomial")
def _polynomial(context: Any, z: Any, coefficients: Any) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        first, *others = cgutils.unpack_tuple(b, a[1], len(coefficients))
        return reduce(lambda p, k: b.fma(p, a[0], k), others, first)

    return types.float64(types.float64, coefficients), emit


OWN = (elementary, trigonometric, gamma)
for _function in (x for library in OWN for x in vars(library).values()):  # they call each other
    _name = words.full_name(_function)
    if _name.startswith(tuple(f"{library.__name__}." for library in OWN)) and _name not in words.VOCABULARY:
        words.function(_name, _function)


def _own_name(match: re.Match[str]) -> str:
    intrinsic, name, kind = match.groups()
    return f"@nbtc_math_{intrinsic or name}_f{32 if kind == 'float' else 64}"


def _own_remainder(match: re.Match[str]) -> str:
    kind, x, y = match.groups()
    return f"= call {kind} @nbtc_math_fmod_f{32 if kind == 'float' else 64}({kind} {x}, {kind} {y})"


def renamed(text: str) -> str:
    """LLVM text that calls the dialect's functions."""
    text = _EXACT.sub(lambda m: f"@llvm.{m[1]}.f{32 if m[2] else 64}", _SYMBOL.sub(_own_name, text))
    if not _REMAINDER.search(text):
        return text
    text = _REMAINDER.sub(_own_remainder, text)
    for kind, bits in (("float", 32), ("double", 64)):
        name = f"@nbtc_math_fmod_f{bits}"
        if name in text and not re.search(rf"^declare [^\n]*{name}\(", text, re.MULTILINE):
            text += f"\ndeclare {kind} {name}({kind}, {kind})\n"
    return text


def bodies(texts: Sequence[str]) -> list[str]:
    """Modules that define the functions which texts call, and the functions which those call."""
    context = target.descriptor().target_context
    found: list[str] = []
    seen: set[str] = set()
    todo = {m.group() for text in texts for m in _OWN.finditer(text)}
    while todo:
        symbol = todo.pop()
        seen.add(symbol)
        match = _OWN.fullmatch(symbol)
        if match is None:
            continue
        new = _body(context, *match.groups())
        found += new
        todo |= {m.group() for text in new for m in _OWN.finditer(text)} - seen
    return list(dict.fromkeys(found))


def _body(context: Any, name: str, bits: str) -> list[str]:
    """The modules of one function."""
    python, arity = FUNCTIONS[name]
    kinds = (types.float64,) * arity
    dispatcher = target.device_function(python)
    dispatcher.compile(kinds)
    compiled = dispatcher.overloads[kinds]
    outer = ir.FloatType() if bits == "32" else DOUBLE
    module = context.create_module(f"math.{name}.{bits}")
    wrapper = ir.Function(module, ir.FunctionType(outer, [outer] * arity), f"nbtc_math_{name}_f{bits}")
    builder = ir.IRBuilder(wrapper.append_basic_block("entry"))
    about = compiled.fndesc
    kind = context.call_conv.get_function_type(about.restype, about.argtypes)
    callee = ir.Function(module, kind, about.llvm_func_name)
    given = [builder.fpext(a, DOUBLE) if bits == "32" else a for a in wrapper.args]
    _, value = context.call_conv.call_function(builder, callee, about.restype, about.argtypes, given)
    value = context.cast(builder, value, about.restype, types.float64)
    builder.ret(builder.fptrunc(value, outer) if bits == "32" else value)
    return [*(renamed(t) for library in compiled.library.every() for t in library.texts), str(module)]
