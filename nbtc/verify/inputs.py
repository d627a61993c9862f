"""Inputs of recorded programs from their description: the same bits with every version of NumPy.

A description names a generator with a seed and parameters.  Randomness is raw 64-bit words of PCG64; what is made of
them are integer and correctly rounded operations.  `GENERATORS` has one row a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nbtc.errors import RecordingError

Array = NDArray[Any]
Entry = Mapping[str, Any]
NUMBERS = {f"{kind}{bits}": f"<{letter}{bits // 8}" for kind, letter in (("u", "u"), ("s", "i"), ("b", "u"))
           for bits in (8, 16, 32, 64)}  # fmt: skip
DTYPES = {**NUMBERS, "f16": "<f2", "f32": "<f4", "f64": "<f8", "tf32": "<f4", "bf16": "<u2", "e4m3": "u1", "e5m2": "u1"}
NARROW = {"bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
FIELDS = {"f16": (5, 10), "bf16": (8, 7), "f32": (8, 23), "tf32": (8, 23), "f64": (11, 52), "e4m3": (4, 3),
          "e5m2": (5, 2)}  # bits of exponent and fraction  # fmt: skip
LEGAL_PAIRS = (0x4, 0x8, 0x9, 0xC, 0xD, 0xE)  # 2:4 metadata nibbles: two different places, ascending
NORMAL_SCALE = 53510.0  # standard deviation of the sum of eight uniform 16-bit draws: 65536 * sqrt(8 / 12), rounded


class Wanted(NamedTuple):
    """One array to make: its type, number of elements, the generator's seed and parameters."""

    type: str
    size: int
    seed: Any
    parameters: Entry

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the array."""
        return np.dtype(DTYPES[self.type])

    def words(self, values: Any) -> Array:
        """Whole numbers, wrapped to the array's element."""
        return np.asarray(values).astype(np.uint64).astype(f"<u{self.dtype.itemsize}").view(self.dtype)

    def rounded(self, values: Array) -> Array:
        """float64 values rounded to nearest even; bf16 by way of float32."""
        if self.type in NARROW:
            return values.astype(np.float32).astype(NARROW[self.type]).view(self.dtype)
        with np.errstate(over="ignore"):
            return values.astype(self.dtype)

    def numbers(self, values: Array) -> Array:
        """int64 values in the array's type: rounded floats, or wrapped integers."""
        return self.rounded(values.astype(np.float64)) if self.type in FIELDS else self.words(values)


def draws(seed: Any, count: int) -> Array:
    """Raw words of PCG64, seeded by one integer or a list of them."""
    return np.random.PCG64(np.random.SeedSequence(seed)).random_raw(count).astype(np.uint64)


def _bytes(w: Wanted, raw: bytes) -> Array:
    return np.frombuffer(raw[: w.size * w.dtype.itemsize], w.dtype)


def _poison(w: Wanted) -> Array:
    return _bytes(w, b"\xa5" * (w.size * w.dtype.itemsize))


def _fill(w: Wanted) -> Array:
    if "bits" in w.parameters:
        return w.words(np.full(w.size, w.parameters["bits"], np.uint64))
    return w.rounded(np.full(w.size, w.parameters["value"], np.float64))


def _arange(w: Wanted) -> Array:
    p = w.parameters
    values = int(p.get("start", 0)) + int(p.get("step", 1)) * np.arange(w.size, dtype=np.int64)
    return w.numbers(values % p["mod"] if "mod" in p else values)


def _bits(w: Wanted) -> Array:
    return _bytes(w, draws(w.seed, -(-w.size * w.dtype.itemsize // 8)).astype("<u8").tobytes())


def _integers(w: Wanted) -> Array:
    low, high = int(w.parameters["lo"]), int(w.parameters["hi"])
    return w.numbers((draws(w.seed, w.size) % np.uint64(high - low)).astype(np.int64) + low)


def _uniform(w: Wanted) -> Array:
    low, high = float(w.parameters["lo"]), float(w.parameters["hi"])
    return w.rounded(low + (high - low) * np.ldexp((draws(w.seed, w.size) >> np.uint64(11)).astype(np.float64), -53))


def _normal(w: Wanted) -> Array:
    """The sum of eight 16-bit draws, centred, of unit variance times `scale`."""
    parts = draws(w.seed, 2 * w.size).astype("<u8").view("<u2").astype(np.int64).reshape(w.size, 8)
    centred = (parts.sum(1) - 4 * 0xFFFF).astype(np.float64)
    return w.rounded(centred * (float(w.parameters.get("scale", 1.0)) / NORMAL_SCALE))


def _wide(w: Wanted) -> Array:
    """Random sign and fraction, and an exponent of lo to hi."""
    low, high = int(w.parameters["lo"]), int(w.parameters["hi"])
    words = draws(w.seed, w.size)
    fraction = 1.0 + np.ldexp((words >> np.uint64(12)).astype(np.float64), -52)
    exponent = low + (draws([int(w.seed), 1], w.size) % np.uint64(high - low + 1)).astype(np.int64)
    return w.rounded(np.where(words & np.uint64(1), -1.0, 1.0) * np.ldexp(fraction, exponent))


def _fp8(w: Wanted) -> Array:
    """Random sign, and a magnitude code of lo to hi - 1."""
    low, high = (np.uint64(w.parameters[name]) for name in ("lo", "hi"))
    words = draws(w.seed, w.size)
    return w.words((words & np.uint64(1)) << np.uint64(7) | low + (words >> np.uint64(8)) % (high - low))


def specials(kind: str) -> Array:
    """Bit patterns of every class of a type's numbers."""
    if kind not in FIELDS:
        bits = 8 * np.dtype(DTYPES[kind]).itemsize
        top, half = (1 << bits) - 1, (1 << bits) - 1 >> 1
        near = [top, top - 1, top - 2, half, half + 1, half + 2, half - 1]
        patterns = (0x5555555555555555, 0xAAAAAAAAAAAAAAAA, 0x0123456789ABCDEF, 0xFEDCBA9876543210)
        small = [0, 1, 2, 3, 5, 7, bits - 1, bits, bits + 1, 10, 100]
        return np.array(small + near + [p & top for p in patterns] + [1 << bits // 2, (1 << bits // 2) - 1], np.uint64)
    exponent, fraction = FIELDS[kind]
    bias, ones = (1 << exponent - 1) - 1, (1 << fraction) - 1

    def number(power: int, low: int = 0) -> int:
        return (bias + power << fraction) + low

    infinity, half = ((1 << exponent) - 1) << fraction, 1 << fraction - 1
    quarter = 1 << exponent - 2
    found = [0, 1, ones, number(1 - bias), number(1 - bias, 1), number(0), number(0, 1), number(0) - 1, number(1, half),
             number(-1), number(-1, 1), number(fraction), number(fraction + 1, 1), number(quarter) | 5,
             number(-quarter) | 3, infinity - 1, infinity, infinity | half, infinity | half | 1,
             infinity | 1]  # fmt: skip
    if fraction > 8:
        found += [number(-4) | 0x999999999999A >> 52 - fraction, number(31), number(30, ones)]
    sign = 1 << exponent + fraction
    return np.array([x | s for x in found for s in (0, sign)], np.uint64)


def _specials(w: Wanted) -> Array:
    """All of them, or all pairs or triples (`of`), of which this array is the `role`-th operand; then random bits."""
    found, of, role = specials(w.type), int(w.parameters.get("of", 1)), int(w.parameters.get("role", 1))
    every = np.tile(np.repeat(found, len(found) ** (of - role)), len(found) ** (role - 1))
    return w.words(np.concatenate([every, draws(w.seed, max(0, w.size - len(every)))])[: w.size])


def _table(w: Wanted) -> Array:
    return w.words(np.resize(np.array([int(text, 16) for text in w.parameters["hex"]], np.uint64), w.size))


def _permutation(w: Wanted) -> Array:
    return w.words(np.argsort(draws(w.seed, w.size), kind="stable"))


def _text(w: Wanted) -> Array:
    return w.words(np.resize(np.frombuffer(w.parameters["text"].encode("latin-1"), np.uint8), w.size))


def _metadata(w: Wanted) -> Array:
    """Words of eight legal 2:4 metadata nibbles."""
    choices = draws(w.seed, w.size).astype("<u8").view("<u1").reshape(w.size, 8)
    nibbles = np.array(LEGAL_PAIRS, np.uint64)[choices % len(LEGAL_PAIRS)]
    return w.words((nibbles << (4 * np.arange(8, dtype=np.uint64))).sum(1, dtype=np.uint64))


GENERATORS: dict[str, Callable[[Wanted], Array]] = {
    "poison": _poison,
    "zeros": lambda w: np.zeros(w.size, w.dtype),
    "fill": _fill,
    "arange": _arange,
    "bits": _bits,
    "ints": _integers,
    "uniform": _uniform,
    "normal": _normal,
    "wide": _wide,
    "fp8": _fp8,
    "specials": _specials,
    "table": _table,
    "perm": _permutation,
    "text": _text,
    "meta24": _metadata,
}


def make(entry: Entry) -> Array:
    """The array that an entry of a manifest describes, on a boundary of 256 bytes as device memory is."""
    generator = entry.get("generator") or {"name": "poison"}
    build = GENERATORS.get(generator["name"])
    if build is None or entry["dtype"] not in DTYPES:
        raise RecordingError(f"{entry.get('name')}: no generator {generator['name']!r} of {entry['dtype']!r} is known")
    shape = tuple(entry["shape"])
    wanted = Wanted(
        entry["dtype"], int(np.prod(shape, dtype=np.int64)), generator.get("seed", 0), generator.get("params", {})
    )
    raw = np.empty(wanted.size * wanted.dtype.itemsize + 256, np.uint8)
    start = -raw.ctypes.data % 256
    out = raw[start : start + wanted.size * wanted.dtype.itemsize].view(wanted.dtype)
    out[:] = build(wanted)
    return out.reshape(shape)
