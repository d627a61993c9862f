"""Random operands of several distributions, fast enough for billions: element bits of a format, drawn in place.

Random bits alone find little, since sums of random exponents are one term; so exponents are also drawn close together,
elements from the few at which arithmetic changes, and whole matrices by `nbtc.testing.strategies`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format
from nbtc.isa.spec import Operand

Array = NDArray[Any]
Rng = np.random.Generator
# what A, B and C are drawn as; every mixture comes about equally often
MIXTURES = (
    ("bits", "bits", "bits"), ("near", "near", "near"), ("near", "near", "wide"), ("wide", "wide", "wide"),
    ("edges", "edges", "edges"), ("near", "edges", "near"), ("low", "low", "low"), ("near", "near", "bits"),
)  # fmt: skip
TF32_LOW = 13  # bits of a tf32 register below its significand


def words(rng: Rng, shape: tuple[int, ...], dtype: Any = np.uint32) -> Array:
    """Random bits."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape).copy()


def elements(rng: Rng, shape: tuple[int, ...], fmt: Format, kind: str) -> Array:
    """Element bits of a format, in words of its size (a byte where it is smaller)."""
    return _KINDS[kind](rng, shape, fmt)


def _bits(rng: Rng, shape: tuple[int, ...], fmt: Format) -> Array:
    x = words(rng, shape, fmt.bits_dtype)
    return x if fmt.bits >= 8 else x & np.uint8((1 << fmt.bits) - 1)


def _fields(fmt: Format) -> tuple[int, int]:
    """Where the exponent starts in a register, and its width."""
    return fmt.mantissa + (TF32_LOW if fmt.name == "tf32" else 0), fmt.exponent


def _exponents(rng: Rng, shape: tuple[int, ...], fmt: Format, spread: int, centre: int) -> Array:
    """Random signs and significands under exponents of a range; integers are small ones."""
    x = _bits(rng, shape, fmt)
    if fmt.kind != "float":
        return _small(x, fmt, spread)
    low, width = _fields(fmt)
    mask = (1 << width) - 1
    field = words(rng, shape, np.uint8) % np.uint8(min(spread, mask)) + np.uint8(0)
    centre = max(0, min(centre, mask - spread))
    word = fmt.bits_dtype.type
    kept = word(((1 << fmt.bits) - 1) ^ (mask << low))
    return np.asarray((x & kept) | ((field.astype(fmt.bits_dtype) + word(centre)) << word(low)))


def _small(x: Array, fmt: Format, spread: int) -> Array:
    if fmt.bits < 8:
        return x
    signed = x.view(f"i{x.dtype.itemsize}") >> (fmt.bits - min(fmt.bits, spread.bit_length() + 2))
    return np.asarray(signed).view(x.dtype)


def _near(rng: Rng, shape: tuple[int, ...], fmt: Format) -> Array:
    spread = int(rng.integers(1, 6))
    return _exponents(rng, shape, fmt, spread, fmt.bias + int(rng.integers(-3, 3)) if fmt.kind == "float" else 0)


def _wide(rng: Rng, shape: tuple[int, ...], fmt: Format) -> Array:
    spread = int(rng.integers(8, 60))
    centre = fmt.bias - spread // 2 + int(rng.integers(-20, 20)) if fmt.kind == "float" else 0
    return _exponents(rng, shape, fmt, spread, centre)


def _low(rng: Rng, shape: tuple[int, ...], fmt: Format) -> Array:
    """Subnormals and the smallest normals, for narrow formats; products that underflow, for wide ones."""
    half = fmt.bias // 2 if fmt.kind == "float" and fmt.exponent == 8 else 0
    return _exponents(rng, shape, fmt, 4, max(0, half - int(rng.integers(0, 12))) if half else 0)


@cache
def edge_values(fmt: Format) -> Array:
    """256 elements at which something changes: zeros, ends of ranges, powers of two and their neighbours, Inf, NaN."""
    top = 1 << fmt.bits
    found = [0, 1, 2, 3, top - 1, top // 2, top // 2 - 1, top // 2 + 1]
    if fmt.kind == "float":
        low, width = _fields(fmt)
        last, one = (1 << width) - 1, 1 << low
        fields = sorted(
            {0, 1, 2, fmt.bias - 1, fmt.bias, fmt.bias + 1, fmt.bias + fmt.mantissa, last - 2, last - 1, last}
        )
        parts = (0, 0, 1, one - 1, one >> 1, (one >> 1) + 1)
        found += [max(0, f) << low | p for f in fields for p in parts]
        found = [x | s for x in found for s in (0, top // 2)]
    some = np.array([x % top for x in found], np.uint64).astype(fmt.bits_dtype)
    return np.resize(some, 256)


def _edges(rng: Rng, shape: tuple[int, ...], fmt: Format) -> Array:
    return edge_values(fmt)[words(rng, shape, np.uint8)]


_KINDS: dict[str, Callable[[Rng, tuple[int, ...], Format], Array]] = {
    "bits": _bits, "near": _near, "wide": _wide, "low": _low, "edges": _edges,
}  # fmt: skip


def register_image(rng: Rng, blocks: int, operand: Operand, kind: str) -> Array:
    """A register image (blocks, lanes, registers) whose elements are drawn one by one."""
    width = operand.format.bits
    if width < 8:
        return words(rng, (blocks, operand.lanes, operand.registers))
    shape = (blocks, operand.lanes, operand.registers * 32 // width)
    return np.ascontiguousarray(elements(rng, shape, operand.format, kind)).view(np.uint32)


def mixture(rng: Rng) -> tuple[str, str, str]:
    """A distribution for each of A, B and C."""
    return MIXTURES[int(rng.integers(len(MIXTURES)))]
