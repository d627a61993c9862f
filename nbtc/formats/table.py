"""One row per number format.

A row is everything the rest of nbtc knows about a format: widths, bias, which codes are special, the NumPy dtype that
carries it.  `code` is the number that stands for the row inside compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from nbtc.compiler.cache.added_rows import Rows
from nbtc.errors import FormatError

Kind = Literal["float", "int", "bit"]
Specials = Literal["ieee", "nan", "none"]
NO_KERNEL = -1  # the code of a format that no kernel multiplies: scales, and bare registers


@dataclass(frozen=True)
class Format:
    """A number format.

    name: nbtc's and PTX's name.  kind: "float", "int" or "bit".  bits: significant storage bits of an element.
    exponent, mantissa: field widths of a float (0 otherwise).  signed: whether negative numbers exist.  specials: what
    the largest codes of a float mean: "ieee" the last exponent is infinities and NaNs, "nan" only the last code is a
    NaN (e4m3), "none" all codes are numbers (e2m1).  zero: whether zero exists (a ue8m0 scale has none: its field 0 is
    one more power of two).  dtype_name: NumPy or ml_dtypes scalar that holds it.  code: its number inside kernels.

    >>> import nbtc
    >>> nbtc.e4m3.emin, nbtc.e4m3.bits, str(nbtc.bf16), nbtc.e2m1.emax
    (-6, 8, 'bf16', 2)
    """

    name: str
    code: int
    kind: Kind
    bits: int
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    specials: Specials = "ieee"
    zero: bool = True
    dtype_name: str = ""

    def __post_init__(self) -> None:
        fields = int(self.signed) + self.exponent + self.mantissa
        if self.kind == "float" and self.name != "tf32" and fields != self.bits:
            raise FormatError(
                f"format {self.name}: sign, exponent and mantissa take {fields} bits, not {self.bits}: one is wrong"
            )

    def __hash__(self) -> int:  # formats are keys of decisions that small products wait for
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def per_word(self) -> int:
        """Elements in a 32-bit register word (1 for f64, which takes two words)."""
        return max(1, 32 // self.bits)

    @property
    def bias(self) -> int:
        """Exponent bias of a float."""
        return (1 << (self.exponent - 1)) - 1

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal, and of every subnormal."""
        return 1 - self.bias

    @property
    def emax(self) -> int:
        """Exponent of the largest finite number."""
        return (self.special - 1 >> self.mantissa) - self.bias

    @property
    def infinite(self) -> bool:
        """Whether infinities exist."""
        return self.specials == "ieee"

    @property
    def special(self) -> int:
        """First code (without sign and ignored bits) that is not a finite number; one past the last if all are.

        >>> [hex(FORMATS[n].special) for n in ("f16", "e4m3", "e2m1")]
        ['0x7c00', '0x7f', '0x8']
        """
        ones = (1 << (self.exponent + self.mantissa)) - 1
        return {"ieee": ones ^ ((1 << self.mantissa) - 1), "nan": ones, "none": ones + 1}[self.specials]

    @property
    def packed(self) -> bool:
        """Whether elements can be packed into uint32 words: those of which several fill a byte exactly."""
        return self.bits < 8 and 8 % self.bits == 0

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The NumPy dtype that carries one element."""
        scalar = getattr(np, self.dtype_name, None)
        if scalar is None:
            import ml_dtypes

            scalar = getattr(ml_dtypes, self.dtype_name)
        found: np.dtype[Any] = np.dtype(scalar)
        return found

    @cached_property
    def bits_dtype(self) -> np.dtype[Any]:
        """Unsigned dtype of the same item size: what crosses into compiled code."""
        return np.dtype(f"u{self.dtype.itemsize}")

    @property
    def low(self) -> int:
        """Least integer value (integer and bit formats)."""
        return -(1 << (self.bits - 1)) if self.signed and self.kind == "int" else 0

    @property
    def high(self) -> int:
        """Greatest integer value (integer and bit formats)."""
        return (1 << (self.bits - 1)) - 1 if self.signed and self.kind == "int" else (1 << self.bits) - 1


f64: Format = Format("f64", 0, "float", 64, 11, 52, dtype_name="float64")
f32: Format = Format("f32", 1, "float", 32, 8, 23, dtype_name="float32")
f16: Format = Format("f16", 2, "float", 16, 5, 10, dtype_name="float16")
bf16: Format = Format("bf16", 3, "float", 16, 8, 7, dtype_name="bfloat16")
tf32: Format = Format("tf32", 4, "float", 32, 8, 10, dtype_name="float32")
e4m3: Format = Format("e4m3", 5, "float", 8, 4, 3, specials="nan", dtype_name="float8_e4m3fn")
e5m2: Format = Format("e5m2", 6, "float", 8, 5, 2, dtype_name="float8_e5m2")
s8: Format = Format("s8", 7, "int", 8, dtype_name="int8")
u8: Format = Format("u8", 8, "int", 8, signed=False, dtype_name="uint8")
s32: Format = Format("s32", 9, "int", 32, dtype_name="int32")
s4: Format = Format("s4", 10, "int", 4, dtype_name="int4")
u4: Format = Format("u4", 11, "int", 4, signed=False, dtype_name="uint4")
b1: Format = Format("b1", 12, "bit", 1, signed=False, dtype_name="bool")

e2m1: Format = Format("e2m1", 14, "float", 4, 2, 1, specials="none", dtype_name="float4_e2m1fn")
e2m3: Format = Format("e2m3", 15, "float", 6, 2, 3, specials="none", dtype_name="float6_e2m3fn")
e3m2: Format = Format("e3m2", 16, "float", 6, 3, 2, specials="none", dtype_name="float6_e3m2fn")
# scales of blocks: no sign; the top bit of a ue4m3's byte is padding
ue8m0: Format = Format(
    "ue8m0", NO_KERNEL, "float", 8, 8, 0, signed=False, specials="nan", zero=False, dtype_name="float8_e8m0fnu"
)
ue4m3: Format = Format("ue4m3", NO_KERNEL, "float", 7, 4, 3, signed=False, specials="nan", dtype_name="float8_e4m3fn")

# where two formats share a dtype the first one is what the dtype means: f32 before tf32, e4m3 before ue4m3
FORMATS: Rows[str, Format] = Rows("formats", {
    f.name: f
    for f in (
        f64, f32, f16, bf16, tf32, e4m3, e5m2, s8, u8, s32, s4, u4, b1, e2m1, e2m3, e3m2, ue8m0, ue4m3,
    )
})  # fmt: skip
