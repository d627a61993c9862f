"""nbtc's instruction functions inside of `@numba.cuda.jit` kernels: the one place that extends numba-cuda.

The words of `nbtc.dialect` say how each function is typed and which PTX text it becomes; numba-cuda takes them through
its own extension points (`numba.cuda.extending`).  It calls `register` itself where nbtc is installed: the entry point
`numba_cuda_extensions` names it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache, reduce, wraps
from importlib import import_module
from types import FunctionType
from typing import Any

from llvmlite import ir
from numba import cuda
from numba.core import types
from numba.core.typing import signature
from numba.cuda import types as cuda_types
from numba.cuda.core.imputils import lower_constant
from numba.cuda.cudadrv import driver
from numba.cuda.extending import (
    core_models,
    infer_getattr,
    lower_getattr,
    lower_getattr_generic,
    register_model,
    typeof_impl,
)
from numba.cuda.typing.templates import infer_global, make_intrinsic_template

from nbtc import dpx
from nbtc.dialect import vocabulary, words
from nbtc.dialect.narrow import BF16
from nbtc.dialect.vocabulary import fragments, wmma_words
from nbtc.dialect.vocabulary.fragments import LocalFragmentType
from nbtc.isa.inline import dpx_text
from nbtc.isa.version import version_of, with_version
from nbtc.isa.wmma_names import Namespace
from nbtc.numba_door import constants
from nbtc.numba_door.constants import ConstantType, NamespaceType
from nbtc.numerics.dpx import ROWS, DpxRow

PREFIXES = ("nbtc.ptx.", "nbtc.wmma.", "nbtc.wgmma.", "nbtc.warp.", "nbtc.ops.", "nbtc.dialect.vocabulary.copies.")
I32 = ir.IntType(32)
# what instructions of DPX texts are written on: result, operands, predicates as words, spare registers
_DPX_NAMES = re.compile(r"\b[dabctphq][0-3]\b")
_DPX_SPARE = ".reg .b32 t<2>; .reg .b16 h<4>; .reg .pred q<2>;"
# the PTX version that the driver of a CUDA version knows (PTX ISA, "Release Notes"); before 12.8 they count alike
_PTX_OF_CUDA = {(12, 8): (8, 7), (12, 9): (8, 8), (12, 7): (8, 6), (12, 6): (8, 5)}
_types: dict[Any, Any] = {}  # numba-cuda's types of functions
_kept: list[Any] = []  # device functions, which their types only refer to


class CudaFragment(LocalFragmentType):
    """A fragment whose elements are numba-cuda's numbers."""

    @property
    def element(self) -> Any:
        """The type of an item of `x`: numba-cuda has a bf16 of its own."""
        found = super().element
        return cuda_types.bfloat16 if found == BF16 else found


def _of_cuda(typing: Callable[..., Any]) -> Callable[..., Any]:
    """The typing of `wmma.fragment` with numba-cuda's elements."""

    @wraps(typing)
    def fragment(context: Any, *given: Any, **named: Any) -> Any:
        found, emit = typing(context, *given, **named)
        return found.replace(return_type=CudaFragment(found.return_type.tile)), emit

    return fragment


def _named(name: str) -> Any:
    """The Python object that a row of the vocabulary is of."""
    parts = name.split(".")
    for n in range(len(parts) - 1, 0, -1):
        try:
            module = import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        return reduce(getattr, parts[n:], module)
    raise LookupError(name)


def _add(function: Any, typing: Callable[..., Any]) -> None:
    """Let kernels call a Python function by a word's typing."""
    template = make_intrinsic_template(function, _emitting(typing), typing.__name__, prefer_literal=True)
    _know(function, types.Function(template))


def _emitting(typing: Callable[..., Any]) -> Callable[..., Any]:
    """A word's typing, with text that NVVM takes."""

    @wraps(typing)
    def typed(context: Any, *given: Any, **named: Any) -> Any:
        found, emit = typing(context, *given, **named)

        def emit_here(*parts: Any) -> Any:
            with words.predicates_in_words():
                return emit(*parts)

        return found, emit_here

    return typed


def _know(function: Any, kind: Any) -> None:
    """What a function is to numba-cuda: asked before what other compilers know of it, some of which refuse it."""
    _types[function] = kind
    infer_global(function, kind)


def _functions() -> None:
    otherwise = typeof_impl.dispatch(FunctionType)
    typeof_impl.register(FunctionType)(lambda value, c: _types.get(value) or otherwise(value, c))


def _words() -> None:
    vocabulary.load()
    for name, meaning in words.VOCABULARY.items():
        if not name.startswith(PREFIXES):
            continue
        if isinstance(meaning, words.DeviceFunction):
            _add_function(_named(name), meaning.function)
        else:
            typing = meaning._defn
            _add(_named(name), _of_cuda(typing) if name == f"{wmma_words.HERE}.fragment" else typing)


def _add_function(function: Any, python: Callable[..., Any]) -> None:
    """A word in the dialect's own words."""
    device = cuda.jit(device=True)(python)
    _kept.append(device)
    _know(function, types.Dispatcher(device))


# ----------------------------------------------------------------------------------------------------------- constants


def _constants() -> None:
    for kind in (ConstantType, NamespaceType):
        register_model(kind)(core_models.OpaqueModel)
        lower_constant(kind)(_nothing)
    register_model(LocalFragmentType)(fragments._FragmentAddress)
    register_model(CudaFragment)(fragments._FragmentAddress)
    for members in constants.KINDS:
        typeof_impl.register(members)(constants._typeof)
    typeof_impl.register(Namespace)(lambda value, _: NamespaceType(value))
    infer_getattr(constants._Names)
    lower_getattr_generic(NamespaceType)(constants._named)
    infer_getattr(fragments._Attributes)
    lower_getattr(LocalFragmentType, "x")(fragments._x)
    lower_getattr_generic(LocalFragmentType)(fragments._count)
    for literal in (types.IntegerLiteral, types.BooleanLiteral):
        lower_constant(literal)(words._number)
    lower_constant(types.StringLiteral)(words._text)


def _nothing(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.get_dummy_value()


# ----------------------------------------------------------------------------------------------------------------- DPX


def _dpx_word(row: DpxRow) -> Callable[..., Any]:
    """The typing of a DPX function: operands are taken by their low 32 bits."""
    text, predicates = dpx_text(row.name)
    kind = types.int32 if row.format == "s32" else types.uint32
    result = types.Tuple([kind, *[types.boolean] * predicates]) if predicates else kind
    names = ["d0", *(f"p{n}" for n in range(predicates)), *(f"{x}0" for x in "abc"[: row.arity])]
    operand = {name: f"${n}" for n, name in enumerate(names)}
    body = f"{{ {_DPX_SPARE} {_DPX_NAMES.sub(lambda m: operand.get(m[0], m[0]), text)} }}"

    def typing(context: Any, *given: Any) -> Any:
        for label, got in zip("abc", given, strict=False):
            if not isinstance(got, types.Integer):
                words.refuse(f"{row.name}: {label} is an integer, not {got}: call it on elements of arrays")

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            held = [c.cast(b, x, t, types.uint32) for x, t in zip(args, given, strict=True)]
            found = words.inline(b, body, [I32] * (1 + predicates), held, effect=False)
            if not predicates:
                return found[0]
            flags = [b.icmp_unsigned("!=", x, ir.Constant(I32, 0)) for x in found[1:]]
            return c.make_tuple(b, result, [found[0], *flags])

        return signature(result, *given), emit

    typing.__name__ = row.name
    return words.with_parameters(typing, list("abc"[: row.arity]))


# -------------------------------------------------------------------------------------------------------- PTX versions


def lowered(text: bytes, cuda_version: tuple[int, int]) -> bytes:
    """PTX whose `.version` the driver of a CUDA version knows: numba-cuda's compiler may be newer than the driver."""
    newest = _PTX_OF_CUDA.get(cuda_version, (cuda_version[0] - 4, cuda_version[1]))
    own = version_of(text.decode("latin-1"))
    return text if own is None else with_version(text.decode("latin-1"), min(own, newest)).encode("latin-1")


def _lowering(add: Callable[..., Any]) -> Callable[..., Any]:
    """The linker's `add_ptx` for a driver that is older than the compiler."""

    @wraps(add)
    def add_ptx(self: Any, ptx: bytes, *more: Any, **named: Any) -> Any:
        return add(self, lowered(ptx, driver.driver.get_version()), *more, **named)

    return add_ptx


@cache
def register() -> None:
    """Make the words known to numba-cuda, once."""
    _constants()
    _functions()
    _words()
    for name, row in ROWS.items():
        _add(getattr(dpx, name), _dpx_word(row))
    driver._Linker.add_ptx = _lowering(driver._Linker.add_ptx)
