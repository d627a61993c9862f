"""One row per number format.

A row is everything the rest of nbtc knows about a format: widths, bias, which codes are special, the NumPy dtype that
carries it.  `code` is the number that stands for the row inside compiled kernels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from nbtc.errors import FormatError

Kind = Literal["float", "int", "bit"]


@dataclass(frozen=True)
class Format:
    """A number format.

    name: nbtc's and PTX's name.  kind: "float", "int" or "bit".  bits: significant storage bits of an element.
    exponent, mantissa: field widths of a float (0 otherwise).  container: bits of the word that holds one element in a
    register (tf32 sits in 32).  finite_only: no infinities, the all-ones code is NaN (e4m3).  dtype_name: NumPy or
    ml_dtypes scalar that carries it.  code: its number inside kernels.

    >>> import nbtc
    >>> nbtc.e4m3.emin, nbtc.e4m3.bits, str(nbtc.bf16)
    (-6, 8, 'bf16')
    """

    name: str
    code: int
    kind: Kind
    bits: int
    exponent: int = 0
    mantissa: int = 0
    signed: bool = True
    finite_only: bool = False
    dtype_name: str = ""

    def __post_init__(self) -> None:
        if self.kind == "float" and self.name != "tf32" and 1 + self.exponent + self.mantissa != self.bits:
            raise FormatError(f"format {self.name}: 1 + {self.exponent} + {self.mantissa} bits are not {self.bits}")

    def __hash__(self) -> int:  # formats are keys of decisions that small products wait for
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    @property
    def container(self) -> int:
        """Bits of a packed register slot or memory element."""
        return self.bits

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
    def packed(self) -> bool:
        """True for formats below a byte, which also travel as packed uint32 words."""
        return self.bits < 8

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


f64 = Format("f64", 0, "float", 64, 11, 52, dtype_name="float64")
f32 = Format("f32", 1, "float", 32, 8, 23, dtype_name="float32")
f16 = Format("f16", 2, "float", 16, 5, 10, dtype_name="float16")
bf16 = Format("bf16", 3, "float", 16, 8, 7, dtype_name="bfloat16")
tf32 = Format("tf32", 4, "float", 32, 8, 10, dtype_name="float32")
e4m3 = Format("e4m3", 5, "float", 8, 4, 3, finite_only=True, dtype_name="float8_e4m3fn")
e5m2 = Format("e5m2", 6, "float", 8, 5, 2, dtype_name="float8_e5m2")
s8 = Format("s8", 7, "int", 8, dtype_name="int8")
u8 = Format("u8", 8, "int", 8, signed=False, dtype_name="uint8")
s32 = Format("s32", 9, "int", 32, dtype_name="int32")
s4 = Format("s4", 10, "int", 4, dtype_name="int4")
u4 = Format("u4", 11, "int", 4, signed=False, dtype_name="uint4")
b1 = Format("b1", 12, "bit", 1, signed=False, dtype_name="bool")

FORMATS: dict[str, Format] = {f.name: f for f in (f64, f32, f16, bf16, tf32, e4m3, e5m2, s8, u8, s32, s4, u4, b1)}
