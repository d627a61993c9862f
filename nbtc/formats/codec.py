"""Conversions between number formats, bit for bit as the `cvt` instruction does them.

One integer function decodes any float format, rounds in any mode, and encodes any other; what a form may do and what
becomes of a NaN are rows of `conversions.py`.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc._jit import jit
from nbtc.errors import OptionError, UnvalidatedModelWarning
from nbtc.formats.arrays import as_array, as_format, from_bits, to_bits
from nbtc.formats.conversions import ROUNDINGS, Conversion, conversion
from nbtc.formats.table import Format

# index of each entry of the parameter vector
S_EXP, S_MAN, S_FINITE, D_EXP, D_MAN, D_SHIFT, D_FINITE, NAN, ROUNDING, RELU, SATURATE = range(11)
U0, U1 = np.uint64(0), np.uint64(1)


@jit(inline=True)
def bit_length(x):
    """Position of the leading one plus one; 0 for 0."""
    n = np.int64(0)
    step = np.int64(32)
    while step > 0:
        if x >> np.uint64(step) != U0:
            x >>= np.uint64(step)
            n += step
        step >>= 1
    return n + np.int64(x)


@jit(inline=True)
def round_shift(significand, shift, negative, rounding):
    """significand / 2**shift as an integer, rounded: 0 to nearest even, 1 to zero, 2 down, 3 up, 4 to nearest away."""
    if shift <= 0:
        return significand << np.uint64(-shift)
    if shift > 62:  # operands stay below 2**54: all of it is below half a unit
        kept, rest, half = U0, min(significand, U1), np.uint64(2)
    else:
        kept = significand >> np.uint64(shift)
        half = U1 << np.uint64(shift - 1)
        rest = significand & ((half << U1) - U1)
    up = False
    if rounding == 0:
        up = rest > half or (rest == half and kept & U1 != U0)
    elif rounding == 2:
        up = negative and rest != U0
    elif rounding == 3:
        up = not negative and rest != U0
    elif rounding == 4:
        up = rest >= half
    return kept + np.uint64(up)


@jit(inline=True)
def encode(significand, exponent, negative, p):
    """Code without its sign (in units of the last place) of significand * 2**exponent, significand > 0."""
    mantissa = p[D_MAN]
    least = np.int64(2) - (np.int64(1) << (p[D_EXP] - 1)) - mantissa  # exponent of the least subnormal
    unit = max(exponent + bit_length(significand) - 1 - mantissa, least)
    kept = round_shift(significand, unit - exponent, negative, p[ROUNDING])
    # a kept hidden bit adds one to the exponent field, and a carry out of the rounding one more
    code = kept + (np.uint64(unit - least) << np.uint64(mantissa))
    infinity = ((U1 << np.uint64(p[D_EXP])) - U1) << np.uint64(mantissa)
    top = infinity + (U1 << np.uint64(mantissa)) - np.uint64(2) if p[D_FINITE] != 0 else infinity - U1
    if code <= top:
        return code
    r = p[ROUNDING]
    if p[SATURATE] != 0 or r == 1 or (r == 2 and not negative) or (r == 3 and negative):
        return top
    return infinity


@jit(inline=True)
def special(mantissa, negative, p):
    """Code without its sign of an infinity (mantissa 0) or NaN whose payload is kept, cut to the target's width."""
    infinity = ((U1 << np.uint64(p[D_EXP])) - U1) << np.uint64(p[D_MAN])
    drop = p[S_MAN] - p[D_MAN]
    payload = mantissa >> np.uint64(drop) if drop >= 0 else mantissa << np.uint64(-drop)
    code = infinity + payload
    if p[SATURATE] != 0:
        if p[D_FINITE] != 0:
            return infinity + (U1 << np.uint64(p[D_MAN])) - np.uint64(2)
        return code - U1
    return code


@jit(inline=True)
def convert_one(x, p):
    """One element: bits of the source format in a uint64 to bits of the target format in a uint64."""
    ones = (U1 << np.uint64(p[S_EXP])) - U1
    mantissa = x & ((U1 << np.uint64(p[S_MAN])) - U1)
    field = x >> np.uint64(p[S_MAN]) & ones
    negative = x >> np.uint64(p[S_EXP] + p[S_MAN]) != U0
    all_ones = mantissa == (U1 << np.uint64(p[S_MAN])) - U1
    nan = field == ones and (all_ones if p[S_FINITE] != 0 else mantissa != U0)
    if nan and p[NAN] >= 0:
        return np.uint64(p[NAN]) << np.uint64(p[D_SHIFT])
    if field == ones and (p[S_FINITE] == 0 or nan):
        code = special(mantissa, negative, p)
    elif field == U0 and mantissa == U0:
        code = U0
    else:
        exponent = max(np.int64(field), 1) - (np.int64(1) << (p[S_EXP] - 1)) + 1 - p[S_MAN]
        if field != U0:
            mantissa |= U1 << np.uint64(p[S_MAN])
        code = encode(mantissa, exponent, negative, p)
    if negative:
        code = U0 if p[RELU] != 0 else code | U1 << np.uint64(p[D_EXP] + p[D_MAN])
    return code << np.uint64(p[D_SHIFT])


@jit
def convert_words(x, out, p):
    """Every word of the flat array x into the flat array out."""
    for i in range(x.size):
        out[i] = convert_one(np.uint64(x[i]), p)


def parameters(row: Conversion, relu: bool, saturate: bool) -> NDArray[np.int64]:
    """The parameter vector of `convert_one` for a row and its modifiers."""
    s, d = row.source, row.target
    shift = 32 - 1 - d.exponent - d.mantissa if d.name == "tf32" else 0
    fields = (s.exponent, s.mantissa, s.finite_only, d.exponent, d.mantissa, shift, d.finite_only)
    return np.array((*fields, row.nan, ROUNDINGS[row.rounding], relu, saturate), np.int64)


@cache
def _warn(source: Format, target: Format) -> None:
    warnings.warn(
        f"cvt {source.name} -> {target.name} in this form follows the text of the PTX ISA: no recording backs it here",
        UnvalidatedModelWarning,
        stacklevel=4,
    )


def convert_bits(words: NDArray[Any], row: Conversion, relu: bool, saturate: bool) -> NDArray[Any]:
    """Unsigned words of the row's source, of any shape, as unsigned words of its target."""
    if "documented" in (row.evidence, row.saturate_evidence if saturate else ""):
        _warn(row.source, row.target)
    out = np.empty(words.shape, row.target.bits_dtype)
    convert_words(np.ascontiguousarray(words).reshape(-1), out.reshape(-1), parameters(row, relu, saturate))
    return out


def convert(
    x: ArrayLike, fmt: object, rounding: str = "rn", saturate: bool | None = None, relu: bool = False
) -> NDArray[Any]:
    """`x` in another format, bit for bit as the `cvt` instruction converts (PTX ISA, "cvt").

    x: float32, float16, bfloat16 or float8 array of any shape; the result has the same shape and the dtype that carries
    `fmt`.  rounding: "rn" nearest even, "rz" toward zero, "rm" down, "rp" up, "rna" nearest, ties away (tf32 only).
    saturate: overflow and infinities give the largest finite value; None means True for e4m3 and e5m2, else False.
    relu: negative results become +0.  A NaN becomes the canonical NaN of the target (cvt.rna.tf32 and bf16 -> f32 keep
    its payload).  Raises FormatError for a pair the hardware lacks, OptionError for a rounding or modifier it lacks.

    >>> import numpy as np
    >>> convert(np.array([1.06, 1e6, -3.0], np.float32), "e4m3", relu=True).tolist()
    [1.0, 448.0, 0.0]
    >>> convert(np.float32(1.0) + np.float32(2**-11), "tf32", "rna").view(np.uint32).item() == 0x3F802000
    True
    """
    array = as_array(x)
    target = as_format(fmt)
    source = as_format(array.dtype)
    for name, value in (("relu", relu), ("saturate", saturate)):
        if not isinstance(value, bool | np.bool_) and not (name == "saturate" and value is None):
            raise OptionError(f"{name}={value!r} is no truth value: pass {name}=True or {name}=False to nbtc.convert")
    narrow = target.bits == 8 and target.kind == "float"
    saturate = narrow if saturate is None else bool(saturate)
    row = conversion(source, target, rounding, bool(relu), saturate)
    return from_bits(convert_bits(to_bits(array, source), row, bool(relu), saturate), target)
