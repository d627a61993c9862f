"""`nbtc.instruction(...)` objects inside functions compiled by Numba: constants to read, call and pack with.

Numba finds the implementation of a call by the function that is called.  So each row has a function of its own, which
exists to be called in compiled code, and the type of an `Instruction` passes its calls on to that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba.core import types
from numba.core.typing.templates import AttributeTemplate, infer_getattr
from numba.extending import lower_getattr_generic, overload_method, typeof_impl

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.errors import CompilerError, ShapeError
from nbtc.isa.spec import Operand, Row
from nbtc.numba_door.constants import ConstantType, add_attributes, constant_of, hold_constants
from nbtc.numba_door.images import check_image, check_matrix, number_type, pack, slots, unpack
from nbtc.numba_door.mma import call_of
from nbtc.numba_door.product import NO_WORDS
from nbtc.numba_door.registry import refresh_numba_registry
from nbtc.ops.mma.product import FAMILIES

METHODS = frozenset(f"{kind}_{operand}" for kind in ("pack", "unpack") for operand in "abcd")


class InstructionType(types.Callable, types.Opaque):  # type: ignore[misc, unused-ignore]
    """The type of one Instruction; `value` is the object."""

    def __init__(self, value: Any) -> None:
        self.value = value
        super().__init__(f"Instruction({value.mnemonic}, {value.immediates})")

    def _function(self) -> Any:
        value = self.value
        return _function(value.row, dict(value.immediates).get("selector", 0))

    def get_call_type(self, context: Any, args: Any, kws: Any) -> Any:
        """Types of a call, as Numba asks for them."""
        self._called = context.resolve_value_type(self._function())
        return self._called.get_call_type(context, args, kws)

    def get_call_signatures(self) -> Any:
        """Calls so far, for Numba's messages."""
        return self._called.get_call_signatures()

    def get_impl_key(self, sig: Any) -> Any:
        """How Numba finds the code of a call."""
        return self._called.get_impl_key(sig)


hold_constants(InstructionType)


class OperandType(ConstantType):
    """The type of one operand of an instruction."""

    def __init__(self, value: Operand) -> None:
        self.value = value
        text = f"{value.format} {value.rows}x{value.cols} in {value.registers}, {value.layout}"
        types.Opaque.__init__(self, f"Operand({text})")


hold_constants(OperandType)
typeof_impl.register(Operand)(lambda value, _: OperandType(value))
add_attributes(OperandType, ("format", "rows", "cols", "registers", "elements", "lanes", "products"))
add_attributes(InstructionType, ("mnemonic", "family", "shape", "min_arch", "a", "b", "c", "d", "meta", "executable"))


@overload_method(OperandType, "coords")  # type: ignore[untyped-decorator, unused-ignore]
def _coords(operand):
    table = operand.value.coords()
    return lambda operand: table


# --------------------------------------------------------------------------------------------------------------- calls


@cache
def _function(row: Row, selector: int) -> Callable[..., Any]:
    """The function that stands for calls of an instruction."""

    def instruction(a, b, c, meta=None, selector=None, arch="sm_90"):
        raise CompilerError("a call of this function exists in compiled code only")

    overload(instruction, prefer_literal=True)(_typed(row, selector))
    refresh_numba_registry()
    return instruction


def _typed(row: Row, own: int) -> Callable[..., Any]:
    def typed(a, b, c, meta=None, selector=None, arch="sm_90"):
        if row.family not in FAMILIES or row.scale:
            raise CompilerError(
                f"{row.mnemonic} works from Python, not inside functions compiled by Numba: there forms of "
                f"{', '.join(FAMILIES)} without block scales can be called"
            )
        for x, name in ((a, "a"), (b, "b"), (c, "c")):
            check_image(x, f"{row.mnemonic}: operand {name}")
        given = constant_of(selector)
        if not isinstance(given, int | None):
            raise CompilerError(f"{row.mnemonic}: selector must be written out in compiled code, as in selector=0")
        run = jit(call_of(row, constant_of(arch), own if given is None else given), expanded=True)
        return _sparse(row, run, meta) if row.sparse else _dense(row, run, meta)

    return typed


def _dense(row: Row, run: Any, meta: Any) -> Callable[..., Any]:
    if constant_of(meta) is not None:
        raise CompilerError(f"{row.mnemonic} is dense and takes no metadata; the sparse form is spelled mma.sp.sync...")
    return lambda a, b, c, meta=None, selector=None, arch="sm_90": run(a, b, c, NO_WORDS)


def _sparse(row: Row, run: Any, meta: Any) -> Callable[..., Any]:
    if not (isinstance(meta, types.Array) and meta.dtype == types.uint32 and meta.ndim == 1 and meta.layout == "C"):
        raise CompilerError(
            f"{row.mnemonic} takes meta, a uint32 array of 32 words, as nbtc.sparse.compress makes it, not {meta}"
        )

    def called(a, b, c, meta=None, selector=None, arch="sm_90"):
        if meta.size != 32:
            raise ShapeError("mma.sp: meta has one word a lane: pass a uint32 array of 32")
        return run(a, b, c, meta)

    return called


# ------------------------------------------------------------------------------------------------------------- packing


def _layout_of(row: Row, name: str) -> tuple[Operand, tuple[int, ...]]:
    """An operand that is a matrix in registers, and the shape of that matrix."""
    operand: Operand | None = getattr(row, name)
    if operand is None or operand.layout is None:
        raise CompilerError(f"{row.mnemonic} has no matrix operand {name!r} in registers: there is nothing to pack")
    return operand, (operand.products, operand.rows, operand.cols)[operand.products == 1 :]


def _image_of(operand: Operand) -> tuple[tuple[int, int], int, Any]:
    """The shape of its register image, and the bits of an element with the type that holds them."""
    return (operand.lanes, operand.registers), operand.format.bits, operand.format.bits_dtype.type


def _packer(row: Row, name: str) -> Callable[..., Any]:
    operand, inner = _layout_of(row, name)
    image_shape, bits, unsigned = _image_of(operand)
    index, word, shift = slots(operand)

    def typed(matrix):
        check_matrix(matrix, operand.format, len(inner), f"pack_{name}")

        def packed(matrix):
            if matrix.shape != inner:
                raise ShapeError("pack: the matrix has not the shape of this operand, (rows, cols)")
            image = np.zeros(image_shape, np.uint32)
            pack(matrix.reshape(-1).view(unsigned), image.reshape(-1), index, word, shift, bits)
            return image

        return packed

    return typed


def _unpacker(row: Row, name: str) -> Callable[..., Any]:
    operand, inner = _layout_of(row, name)
    image_shape, bits, unsigned = _image_of(operand)
    index, word, shift = slots(operand)
    fmt = operand.format
    number, fill = number_type(fmt).type, 8 - bits if fmt.signed and bits < 8 else 0

    def typed(registers):
        check_image(registers, f"unpack_{name}")

        def unpacked(registers):
            if registers.shape != image_shape:
                raise ShapeError("unpack: the image is not (lanes, registers) of this operand")
            codes = np.empty(inner, unsigned)
            unpack(registers.reshape(-1), codes.reshape(-1), index, word, shift, bits, fill)
            return codes.view(number)

        return unpacked

    return typed


@cache
def _method(row: Row, name: str) -> Callable[..., Any]:
    """The function that stands for the method `name`: pack_a, unpack_d and their kin."""
    kind, _, operand = name.partition("_")

    def method(matrix):
        raise CompilerError("a call of this function exists in compiled code only")

    def inverse(registers):
        raise CompilerError("a call of this function exists in compiled code only")

    function = method if kind == "pack" else inverse
    overload(function)((_packer if kind == "pack" else _unpacker)(row, operand))
    refresh_numba_registry()
    return function


@infer_getattr
class _Methods(AttributeTemplate):  # type: ignore[misc, unused-ignore]
    """Numba's own overloads of methods are not for types that can be called, so here methods are attributes."""

    key = InstructionType

    def generic_resolve(self, kind: InstructionType, name: str) -> Any:
        """The type of a method, or None where `name` is another attribute."""
        return self.context.resolve_value_type(_method(kind.value.row, name)) if name in METHODS else None


@lower_getattr_generic(InstructionType)  # type: ignore[untyped-decorator, unused-ignore]
def _method_value(context: Any, builder: Any, kind: Any, value: Any, name: str) -> Any:
    return context.get_dummy_value()


refresh_numba_registry()
