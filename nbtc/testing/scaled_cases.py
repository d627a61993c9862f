"""Inputs of block-scaled products that reach every rule of their arithmetic, for tests and soaks."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format, f32
from nbtc.testing.strategies import floats

Bits = NDArray[np.uint64]


class Drawn(NamedTuple):
    """Codes of a (M, K), b (K, N), c (M, N) and of the scales xs (M, S), ys (S, N)."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    c: NDArray[np.uint32]
    xs: NDArray[np.uint8]
    ys: NDArray[np.uint8]


ELEMENTS = ("bits", "spread", "cancel", "hollow", "zeros", "special")
SCALES = ("one", "near", "wide", "bits", "low", "high")
SUMS = ("zero", "close", "far", "bits")


def elements(rng: np.random.Generator, shape: tuple[int, int], fmt: Format, kind: str) -> Bits:
    """Codes of one operand: finite ones unless the kind is "special"."""
    sign = np.uint64(1 << (fmt.bits - 1))
    codes = rng.integers(0, fmt.special, shape, dtype=np.uint64)
    if kind == "spread":  # all exponents alike
        codes = floats(rng, fmt, rng.integers(fmt.emin - fmt.mantissa, fmt.emax + 1, shape))
    if kind == "special" and fmt.specials != "none":
        codes = np.where(rng.random(shape) < 0.01, np.uint64(fmt.special), codes)
        codes = np.where(rng.random(shape) < 0.002, np.uint64(int(sign) - 1), codes)
    if kind in ("zeros", "special"):
        codes = np.where(rng.random(shape) < 0.6, np.uint64(0), codes)
    codes = (codes & (sign - np.uint64(1))) | rng.integers(0, 2, shape, dtype=np.uint64) * sign
    return codes


def scales(rng: np.random.Generator, shape: tuple[int, int], fmt: Format, kind: str) -> Bits:
    """Codes of scales; NaNs now and then in "bits"."""
    one, top = fmt.bias << fmt.mantissa, fmt.special - 1
    if kind == "one":
        return np.full(shape, one, np.uint64)
    reach = {"near": 3, "wide": 24}.get(kind, 0) << fmt.mantissa
    if reach:
        return rng.integers(max(0, one - reach), min(top, one + reach) + 1, shape).astype(np.uint64)
    if kind == "bits":
        codes = rng.integers(0, top + 1, shape).astype(np.uint64)
        return np.where(rng.random(shape) < 0.003, np.uint64(fmt.special), codes)
    near = rng.integers(0, 4, shape)
    return (near if kind == "low" else top - near).astype(np.uint64)


def sums(rng: np.random.Generator, shape: tuple[int, int], kind: str, middle: int) -> NDArray[np.uint32]:
    """f32 bits of the accumulator, `middle` being the exponent of a typical product."""
    if kind == "zero":
        return (rng.integers(0, 2, shape) << 31).astype(np.uint32)
    if kind == "bits":
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    reach = 6 if kind == "close" else 45
    return floats(rng, f32, middle + rng.integers(-reach, reach + 1, shape)).astype(np.uint32)


def draw(
    rng: np.random.Generator, shape: tuple[int, int, int], formats: tuple[Format, Format, Format], count: int
) -> Drawn:
    """A product of `shape` (M, N, K) of formats (a, b, scale), `count` scales a row and column, of kinds drawn too."""
    (m, n, k), (fa, fb, fs) = shape, formats
    kind = str(rng.choice(ELEMENTS))
    a, b = elements(rng, (m, k), fa, kind), elements(rng, (k, n), fb, kind)
    if kind in ("cancel", "hollow"):  # neighbours cancel: all of them, or all but some
        a[:, 1::2] = a[:, : k - 1 : 2]
        b[1::2] = b[: k - 1 : 2] ^ np.uint64(1 << (fb.bits - 1))
        if kind == "cancel":
            b[rng.integers(0, k, max(1, k // 8))] = 0
    left, right = str(rng.choice(SCALES)), str(rng.choice(SCALES))
    xs, ys = scales(rng, (m, count), fs, left), scales(rng, (count, n), fs, right)
    middle = int((np.median(xs) // (1 << fs.mantissa)) + (np.median(ys) // (1 << fs.mantissa))) - 2 * fs.bias
    c = sums(rng, (m, n), str(rng.choice(SUMS)), middle + fa.emax + fb.emax)
    return Drawn(a.astype(np.uint8), b.astype(np.uint8), c, xs.astype(np.uint8), ys.astype(np.uint8))
