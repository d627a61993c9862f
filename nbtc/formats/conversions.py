"""One row per conversion the hardware has: formats, rounding, which modifiers it takes, what becomes of a NaN.

The rows are those of the PTX `cvt` instruction around tensor cores (PTX ISA, "Data Movement and Conversion
Instructions: cvt").  `nbtc.convert` and `nbtc.ptx.cvt` both look their work up here, so neither knows a special case.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.errors import FormatError, OptionError, UnvalidatedModelWarning, shown, warn
from nbtc.formats import table
from nbtc.formats.arrays import as_array, as_format, as_given, from_bits, to_bits
from nbtc.formats.codec import convert_floats, convert_words
from nbtc.formats.table import Format

KEEP = -1  # a NaN keeps its sign and the payload bits that fit, which may leave none and give an infinity
RNA = "rna"
ROUNDINGS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3, RNA: 4}


@dataclass(frozen=True)
class Conversion:
    """A conversion from `source` to `target` with one rounding.

    relu: negative results may be made +0.  saturate: the legal values of .satfinite.  nan: the code a NaN becomes (in
    units of the target's last place), or KEEP.  evidence: "recorded" (compared with an H200), or "documented" (the PTX
    ISA defines it; no recording of the newer chip is at hand).  saturate_evidence:
    the same for the form with .satfinite.
    """

    source: Format
    target: Format
    rounding: str
    relu: bool
    saturate: tuple[bool, ...]
    nan: int
    evidence: str = "recorded"
    saturate_evidence: str = "recorded"

    @property
    def widening(self) -> bool:
        """Every value of the source is one of the target: nothing is rounded."""
        return self.target.mantissa >= self.source.mantissa and self.target.exponent >= self.source.exponent


def _rows() -> tuple[Conversion, ...]:
    f32, f16, bf16, tf32 = table.f32, table.f16, table.bf16, table.tf32
    any_, no, must, documented = (False, True), (False,), (True,), ("documented", "documented")
    rows = [Conversion(f32, t, r, True, any_, 0x7FFF) for t in (f16, bf16) for r in ("rn", "rz")]
    rows += [Conversion(f32, f16, r, False, no, 0x7FFF) for r in ("rm", "rp")]
    # tf32 counts in units of bit 13: 0x3FFFF is 0x7FFFE000
    rows += [Conversion(f32, tf32, r, True, any_, 0x3FFFF, saturate_evidence="documented") for r in ("rn", "rz")]
    rows.append(Conversion(f32, tf32, RNA, False, any_, KEEP))
    for fp8 in (table.e4m3, table.e5m2):
        rows += [Conversion(s, fp8, "rn", True, must, 0x7F) for s in (f32, f16)]
        rows.append(Conversion(bf16, fp8, "rn", True, must, 0x7F, *documented))
        rows.append(Conversion(fp8, f16, "rn", True, no, 0x7FFF))
        rows.append(Conversion(fp8, bf16, "rn", True, no, 0x7FFF, *documented))
    for fp6_fp4 in (table.e2m1, table.e2m3, table.e3m2):  # a NaN becomes the largest number, whatever its sign
        nan = fp6_fp4.special - 1
        rows += [Conversion(s, fp6_fp4, "rn", True, must, nan, *documented) for s in (f32, f16, bf16)]
        rows += [Conversion(fp6_fp4, t, "rn", True, no, KEEP, *documented) for t in (f16, bf16)]
    rows += [Conversion(s, table.ue8m0, r, False, any_, 0xFF, *documented) for s in (f32, bf16) for r in ("rz", "rp")]
    rows.append(Conversion(table.ue8m0, bf16, "rn", False, no, 0x7FFF, *documented))
    rows.append(Conversion(f16, f32, "rn", False, no, 0x7FFFFFFF))
    rows.append(Conversion(bf16, f32, "rn", False, no, KEEP))
    return tuple(rows)


CONVERSIONS = _rows()
_BY_KEY = {(c.source, c.target, c.rounding): c for c in CONVERSIONS}


def conversion(
    source: Format, target: Format, rounding: str = "rn", relu: bool = False, saturate: bool = False
) -> Conversion:
    """The row for a pair, rounding and modifiers; FormatError or OptionError, naming what exists, when there is none.

    >>> from nbtc.formats.table import FORMATS
    >>> conversion(FORMATS["f32"], FORMATS["bf16"], "rz").evidence
    'recorded'
    """
    found = _BY_KEY.get((source, target, rounding)) if isinstance(rounding, str) else None
    name = f"{source.name} -> {target.name}"
    if found is None:
        pair = [c for c in CONVERSIONS if c.source == source and c.target == target]
        if not pair:
            raise FormatError(_no_pair(source, target))
        have = " ".join(c.rounding for c in pair)
        raise OptionError(
            f'rounding={shown(rounding)}: no such rounding for {name}, only {have}; pass rounding="{pair[0].rounding}"'
        )
    if relu and not found.relu:
        raise OptionError(f"relu=True: cvt.{rounding} {name} takes no .relu; convert first, then clamp with np.maximum")
    if saturate not in found.saturate:
        rule = "always saturates (.satfinite is part of the form)" if True in found.saturate else "takes no .satfinite"
        raise OptionError(f"saturate={saturate}: cvt.{rounding} {name} {rule}; pass saturate={not saturate}")
    return found


def _no_pair(source: Format, target: Format) -> str:
    to = sorted({c.target.name for c in CONVERSIONS if c.source == source})
    into = sorted({c.source.name for c in CONVERSIONS if c.target == target})
    here = f"{source.name} converts to {' '.join(to)}" if to else f"{source.name} converts to nothing here"
    there = f"{target.name} comes from {' '.join(into)}" if into else f"nothing converts to {target.name}"
    by_hand = f'nbtc.convert(x.astype(np.float32), "{target.name if into else "f16"}")'
    call = f'nbtc.convert(x, "{to[0]}")' if to else by_hand
    return f"cvt has no form {source.name} -> {target.name}: {here}; {there}. A call that works: {call}"


def parameters(row: Conversion, relu: bool, saturate: bool) -> NDArray[np.int64]:
    """The parameter vector of `convert_one` for a row and its modifiers."""
    s, d = row.source, row.target
    shift = 32 - 1 - d.exponent - d.mantissa if d.name == "tf32" else 0
    source = (s.exponent, s.mantissa, s.special, s.infinite, s.zero)
    target = (d.exponent, d.mantissa, shift, d.special, d.infinite, d.signed, d.zero)
    return np.array((*source, *target, row.nan, ROUNDINGS[row.rounding], relu, saturate), np.int64)


@cache
def _warn(source: Format, target: Format) -> None:
    warn(
        f"cvt {source.name} -> {target.name} in this form follows the text of the PTX ISA: no recording backs it here",
        UnvalidatedModelWarning,
    )


def convert_bits(words: NDArray[Any], row: Conversion, relu: bool, saturate: bool) -> NDArray[Any]:
    """Unsigned words of the row's source, of any shape, as unsigned words of its target."""
    if "documented" in (row.evidence, row.saturate_evidence if saturate else ""):
        _warn(row.source, row.target)
    out = np.empty(words.shape, row.target.bits_dtype)
    run = convert_floats if row.source.name == "f32" and row.target.signed and row.nan != KEEP else convert_words
    run(np.ascontiguousarray(words).reshape(-1), out.reshape(-1), parameters(row, relu, saturate))
    return out


def _source(dtype: np.dtype[Any]) -> Format:
    """The format that a dtype holds; FormatError where it holds none."""
    try:
        return as_format(dtype)
    except FormatError:
        raise FormatError(
            f"x has elements of {dtype}, which no cvt takes: convert takes float32, float16 and ml_dtypes' narrower "
            "floats; for whole or real numbers pass x.astype(np.float32)"
        ) from None


def convert(
    x: ArrayLike, fmt: object, rounding: str = "rn", saturate: bool | None = None, relu: bool = False
) -> NDArray[Any]:
    """`x` in another format, bit for bit as the `cvt` instruction converts (PTX ISA, "cvt").

    x: float32, float16, bfloat16, float8, float6 or float4 array of any shape; the result has the same shape and the
    dtype of `fmt`.  rounding: "rn" to nearest even, "rz" toward zero, "rm" down, "rp" up, "rna" to nearest, ties away
    from zero (tf32 only).  saturate: overflow and infinities give the largest finite value; None means True for number
    formats of 8 or fewer bits, otherwise False.  relu: negative results become +0.

    A NaN becomes the canonical NaN of the target (cvt.rna.tf32 and bf16 -> f32 keep its payload); fp6 and fp4, which
    have no NaN, get their largest number.  ue8m0 scales are the absolute value rounded to a power of two.  Raises
    FormatError for a pair that the hardware lacks, OptionError for a rounding or modifier that it lacks.

    >>> import numpy as np
    >>> convert(np.array([1.06, 1e6, -3.0], np.float32), "e4m3", relu=True).tolist()
    [1.0, 448.0, 0.0]
    >>> convert(np.float32(1.0) + np.float32(2**-11), "tf32", "rna").view(np.uint32).item() == 0x3F802000
    True
    """
    array = as_array(x)
    target = as_format(fmt)
    source = _source(array.dtype)
    for name, value in (("relu", relu), ("saturate", saturate)):
        if not isinstance(value, bool | np.bool_) and not (name == "saturate" and value is None):
            raise OptionError(
                f"{name}={shown(value)} is not a truth value: pass {name}=True or {name}=False to nbtc.convert"
            )
    narrow = target.bits <= 8 and target.kind == "float" and target.signed
    saturate = narrow if saturate is None else bool(saturate)
    row = conversion(source, target, rounding, bool(relu), saturate)
    result: NDArray[Any] = as_given(
        from_bits(convert_bits(to_bits(array, source), row, bool(relu), saturate), target), x
    )
    return result


refuse_in_compiled_code((convert,), "convert arrays before or after the call")
