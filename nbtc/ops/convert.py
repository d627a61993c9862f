"""The `cvt` instruction on register words: conversions around tensor cores, and integer packing.

A form is read into a `Form` (what each register holds, how it is rounded); elements are then converted by
`nbtc.formats.conversions`.  In packed forms the first source operand lands in the high half of the destination.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, OptionError, ParseError, RangeError, ShapeError, UnsupportedInstructionError, shown
from nbtc.formats.arrays import as_array, significant
from nbtc.formats.conversions import ROUNDINGS, Conversion, conversion, convert_bits
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.parse import row

WORKS = 'for example nbtc.ptx.cvt("cvt.rn.f16x2.f32", a, b) with uint32 words'


@dataclass(frozen=True)
class ConversionForm:
    """One form of cvt.  pack: bits of a field of cvt.pack (0: a float conversion, described by the other fields)."""

    operands: int
    source_bits: int
    target_bits: int
    pairs: bool = False  # the destination holds two elements
    source_pairs: bool = False  # so does the one source operand
    how: Conversion | None = None
    relu: bool = False
    saturate: bool = False
    pack: int = 0
    signed: bool = False


def cvt(mnemonic: str, *words: ArrayLike, threads: int | None = None) -> NDArray[Any]:
    """The instruction `mnemonic` on register words (PTX ISA, "cvt" and "cvt.pack").

    words: one array for each source operand, uint32 for 32-bit registers (f32, tf32, f16x2, s32), uint16 for 16-bit
    ones (f16, bf16, pairs of fp8, fp6 and ue8m0, each in a byte) and uint8 for e2m1x2 (two in a byte), of any shapes
    that broadcast; signed words and Python integers are taken as bits.  Returns uint32, uint16 or uint8 words of the
    broadcast shape.  With two operands the first goes to the high half.  threads: accepted as everywhere in nbtc.ptx;
    the result does not depend on it.  Raises ParseError for a form the ISA lacks, UnsupportedInstructionError for
    stochastic rounding (.rs), ShapeError and FormatError for operands that don't fit.

    >>> import numpy as np
    >>> one, two = np.array([1.0, 2.0], np.float32).view(np.uint32)
    >>> hex(cvt("cvt.rn.f16x2.f32", one, two))
    '0x3c004000'
    """
    form = parse(mnemonic if isinstance(mnemonic, str) else row(mnemonic).mnemonic)
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise OptionError(
            f"threads={shown(threads)} is not a count of threads: pass threads=1 or more, or None for the default"
        )
    if len(words) != form.operands:
        raise ShapeError(f"{mnemonic} takes {form.operands} source operands, {len(words)} were given; {WORKS}")
    given = [register_words(w, form.source_bits, i, mnemonic) for i, w in enumerate(words)]
    try:
        given = list(np.broadcast_arrays(*given))
    except ValueError:
        shapes = ", ".join(str(g.shape) for g in given)
        raise ShapeError(f"operands of {mnemonic} have shapes {shapes}, which do not broadcast; {WORKS}") from None
    out = _pack(form, given) if form.pack else _convert(form, given)
    return out[()]


def register_words(x: ArrayLike, bits: int, index: int, mnemonic: str, works: str = WORKS) -> NDArray[Any]:
    """Source operand `index` of an instruction as unsigned words of its register's width; works: a call that would."""
    word = np.dtype(f"u{bits // 8}")
    array = as_array(x)
    if array.dtype.kind in "ui" and not isinstance(x, np.ndarray | np.generic):
        low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
        if low < -(1 << (bits - 1)) or high >= 1 << bits:
            raise RangeError(f"operand {index} of {mnemonic} is a {bits}-bit word, {x!r} does not fit; {works}")
        array = array.astype(word)
    if array.dtype.kind not in "ui" or array.dtype.itemsize != word.itemsize:
        raise FormatError(
            f"operand {index} of {mnemonic} is a {bits}-bit register: pass {word} words, not {array.dtype} "
            f"(x.view(np.{word}) for the bits of an array; nbtc.convert takes values)"
        )
    return array.view(word)


def _convert(form: ConversionForm, words: list[NDArray[Any]]) -> NDArray[Any]:
    how = form.how
    if how is None:
        raise ParseError("a cvt form without a conversion row cannot be executed; parse it with nbtc.ops.convert.parse")
    if form.source_pairs:
        part = how.source.bits_dtype
        upper = words[0] >> words[0].dtype.type(form.source_bits // 2)
        words = [significant(w.astype(part), how.source) for w in (upper, words[0])]
    parts = [convert_bits(w, how, form.relu, form.saturate) for w in words]
    if not form.pairs:
        return parts[0]
    out = np.dtype(f"u{form.target_bits // 8}")
    high, low = (p.astype(out) for p in parts)
    return np.asarray(high << out.type(form.target_bits // 2) | low)


def _pack(form: ConversionForm, words: list[NDArray[Any]]) -> NDArray[np.uint32]:
    width = form.pack
    low = -(1 << (width - 1)) if form.signed else 0
    high = low + (1 << width) - 1
    mask = np.uint32((1 << width) - 1)
    a, b = (np.clip(w.view(np.int32), low, high).view(np.uint32) & mask for w in words[:2])
    above = words[2] << np.uint32(2 * width) if len(words) == 3 else np.uint32(0)
    return np.asarray(above | a << np.uint32(width) | b)


@lru_cache(maxsize=1024)
def parse(mnemonic: str) -> ConversionForm:
    """What the form that a mnemonic (or whole line) names does with its operands.

    Raises ParseError when the ISA has no such form, UnsupportedInstructionError when nobody recorded what it computes.
    """
    found = row(mnemonic)
    if found.family != "cvt":
        raise ParseError(
            f"{shown(mnemonic)} is not a form of cvt (cvt.ROUNDING.TARGET.SOURCE or cvt.pack.sat...); {WORKS}"
        )
    if not found.executable:
        raise UnsupportedInstructionError(
            f"{found.mnemonic}: no recorded arithmetic ({found.min_arch}): how the random bits meet those that "
            f"they round away is not known; use a form with .rn, {WORKS}"
        )
    _, *modifiers, target, source = found.mnemonic.removesuffix(".b32").split(".")
    if modifiers[:1] == ["pack"]:
        width = int(target[1:])
        return ConversionForm(2 if width == 16 else 3, 32, 32, pack=width, signed=target[0] == "s")
    pairs, source_pairs = target.endswith("x2"), source.endswith("x2")
    to, s = FORMATS[target.removesuffix("x2")], FORMATS[source.removesuffix("x2")]
    relu, saturate = "relu" in modifiers, "satfinite" in modifiers
    rounding = next((m for m in modifiers if m in ROUNDINGS), "rn")  # widening to f32 names none
    how = conversion(s, to, rounding, relu, saturate)
    operands = 2 if pairs and not source_pairs else 1
    widths = _slot(s) * (1 + source_pairs), _slot(to) * (1 + pairs)
    return ConversionForm(operands, *widths, pairs, source_pairs, how, relu, saturate)


def _slot(fmt: Format) -> int:
    """Bits that an element takes in a register of cvt: those of 6 and 7 bits take a byte."""
    return fmt.bits if fmt.packed else -(-fmt.bits // 8) * 8
