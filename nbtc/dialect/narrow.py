"""Number formats that Numba lacks, as types of kernels: bf16, fp8 and smaller floats, 4-bit integers; f16's storage.

A bf16 or smaller float is its bits, an integer of its item size; arithmetic and conversions are in `narrow_words`.  An
element of a 4-bit integer format takes a byte, of which the low half counts, and is an int8 once it is loaded.
"""

from __future__ import annotations

from collections import ChainMap
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import default_manager, models
from numba.core.datamodel.manager import DataModelManager
from numba.core.typeconv import Conversion

from nbtc.dialect import arguments, target
from nbtc.errors import FormatError
from nbtc.formats.arrays import as_format
from nbtc.formats.table import FORMATS, Format

HALF, FLOAT, DOUBLE = ir.HalfType(), ir.FloatType(), ir.DoubleType()
NIBBLE = 4  # bits


class NarrowFloat(types.Float):  # type: ignore[misc]
    """A float format; its name is NumPy's, by which Numba finds types that hold two formats."""

    def __init__(self, fmt: Format) -> None:
        types.Number.__init__(self, name=fmt.dtype.name)
        self.fmt = fmt
        self.bitwidth = 8 * fmt.dtype.itemsize

    def can_convert_to(self, context: Any, other: Any) -> Any:
        """float32 holds every one of these exactly."""
        if isinstance(other, types.Float):
            return {types.float32: Conversion.promote, types.float64: Conversion.safe}.get(other, Conversion.unsafe)
        return Conversion.unsafe if isinstance(other, types.Number | types.Boolean) else None

    def can_convert_from(self, context: Any, other: Any) -> Any:
        """Numbers are rounded where they are stored."""
        return Conversion.unsafe if isinstance(other, types.Number | types.Boolean) else None

    def unify(self, context: Any, other: Any) -> Any:
        """The type of a variable that is sometimes this, sometimes another number."""
        if isinstance(other, types.Float):
            return max(types.float32, other) if type(other) is types.Float else types.float32
        return types.float64 if isinstance(other, types.Integer | types.Boolean) else None


class NarrowInteger(types.Number):  # type: ignore[misc]
    """A 4-bit integer as an array holds it."""

    def __init__(self, fmt: Format) -> None:
        super().__init__(name=fmt.dtype.name)
        self.fmt, self.signed, self.bitwidth = fmt, fmt.signed, 8

    def can_convert_to(self, context: Any, other: Any) -> Any:
        """int8 or uint8, and all that hold these."""
        if isinstance(other, types.Integer):
            return Conversion.promote if other == types.intp else Conversion.safe
        return Conversion.unsafe if isinstance(other, types.Number | types.Boolean) else None

    def can_convert_from(self, context: Any, other: Any) -> Any:
        """The low bits of an integer; of a float, of its whole part."""
        return Conversion.unsafe if isinstance(other, types.Number | types.Boolean) else None

    def unify(self, context: Any, other: Any) -> Any:
        """As int64, or as the other number."""
        return types.int64 if isinstance(other, types.Integer | types.Boolean | NarrowInteger) else types.float64


BF16, E4M3, E5M2 = (NarrowFloat(FORMATS[name]) for name in ("bf16", "e4m3", "e5m2"))
S4, U4 = (NarrowInteger(FORMATS[name]) for name in ("s4", "u4"))
_OTHERS = (NarrowFloat(FORMATS[name]) for name in ("e2m1", "e2m3", "e3m2", "ue8m0"))
_EVERY: tuple[Any, ...] = (BF16, E4M3, E5M2, S4, U4, *_OTHERS)
NARROW = {t.fmt.name: t for t in _EVERY}
# tf32 elements are float32, of which products read the upper bits; bits are bool
TYPES = {**NARROW, "f64": types.float64, "f32": types.float32, "tf32": types.float32, "f16": types.float16,
         "s8": types.int8, "u8": types.uint8, "s32": types.int32, "b1": types.boolean, "ue4m3": E4M3}  # fmt: skip


class _Real(models.PrimitiveModel):  # type: ignore[misc]
    """f16 as LLVM's half, beside the two that Numba knows."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, {16: HALF, 32: FLOAT, 64: DOUBLE}[kind.bitwidth])


class _Bits(models.PrimitiveModel):  # type: ignore[misc]
    """A number that is its bits."""

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(kind.bitwidth))


class _Nibble(_Bits):
    """Four bits in memory, an 8-bit integer in registers."""

    def as_data(self, builder: Any, value: Any) -> Any:
        return builder.and_(value, ir.Constant(value.type, (1 << NIBBLE) - 1))

    def from_data(self, builder: Any, value: Any) -> Any:
        amount = ir.Constant(value.type, NIBBLE)
        widen = builder.ashr if self._fe_type.signed else builder.lshr
        return widen(builder.shl(value, amount), amount)


MODELS = target.models = DataModelManager(ChainMap({}, default_manager._handlers))
MODELS.register(types.Float, _Real)
MODELS.register(NarrowFloat, _Bits)
MODELS.register(NarrowInteger, _Nibble)


def type_of(dtype: Any) -> Any:
    """The type of a NumPy or ml_dtypes dtype, or of a class of their scalars, if it is a narrow one; else None."""
    try:
        return NARROW.get(as_format(dtype).name)
    except FormatError:
        return None


arguments.element_types.append(type_of)
