"""The slow oracle: one dot product at a time, in Python integers.

It shares no code with the compiled core: what is summed in which order follows the rows of `models.py`, every sum is an
exact integer, and every rounding is spelled out (`exact_float.py`).  An `Oracle` is one row applied to one instruction
step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError
from nbtc.formats.table import FORMATS, Format
from nbtc.numerics.exact_float import (
    Number,
    Term,
    add,
    add_product,
    canonical_nan,
    compose,
    decode,
    infinity,
    narrow,
    number,
    special_sum,
    table,
    through_f16,
    widen,
)
from nbtc.numerics.models import Kind, Model


class _Kind(Protocol):
    """How one kind of arithmetic reads operands and runs one instruction step."""

    def left(self, bits: Sequence[int]) -> Any: ...
    def right(self, bits: Sequence[int]) -> Any: ...
    def step(self, a: Any, b: Any, c: int) -> int: ...


class Fused:
    """T(L, F, EF, OUT): blocks aligned to their largest exponent, truncated, summed, rounded once."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, block: int, c: Format | None = None) -> None:
        self.formats, self.acc, self.block, self.fraction = (a, b), acc, block, row.fraction
        self.first = c or acc
        f16_acc = acc.name == "f16"
        self.floor = row.floor16 if f16_acc else row.floor32
        self.mode, self.digits = ("rn", 11) if f16_acc else ("rz", 14 if row.out == "rz14" else 24)
        self.widen = row.fraction - a.mantissa - b.mantissa

    def left(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return _decoded(bits, self.formats[0])

    def right(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return _decoded(bits, self.formats[1])

    def step(self, a: list[Term], b: list[Term], c: int) -> int:
        """The blocks of one instruction in ascending k."""
        for at in range(0, len(a), self.block):
            c = self.sum(a[at : at + self.block], b[at : at + self.block], c, self.acc if at else self.first)
        return c

    def sum(self, a: list[Term], b: list[Term], c: int, c_format: Format) -> int:
        """One block."""
        sc, ec = decode(c, c_format)
        terms = [(sa * sb, ea + eb) for (sa, ea), (sb, eb) in zip(a, b, strict=True)]
        # a zero term counts as the floor; 0 * Inf and 0 * NaN keep their marks
        top = max([e if s or e > 1 << 16 else self.floor for s, e in terms])
        top = max(top, ec if sc else self.floor)
        if top > 1 << 16:
            return self._special(a, b, sc, ec)
        total = _cut(sc, ec - top + self.fraction - c_format.mantissa)
        shift = self.widen - top
        for s, e in terms:
            n = e + shift
            total += s << n if n >= 0 else (s >> -n if s >= 0 else -(-s >> -n))
        if not total:
            return 0
        code = compose(total < 0, abs(total), top - self.fraction, self.acc, self.mode, self.digits)
        return code if code << 1 & (1 << self.acc.bits) - 1 else 0  # an underflow is +0

    def _special(self, a: list[Term], b: list[Term], sc: int, ec: int) -> int:
        found = special_sum([(*x, *y) for x, y in zip(a, b, strict=True)], sc, ec)
        return infinity(found < 0, self.acc) if found else canonical_nan(self.acc)


def _decoded(bits: Sequence[int], fmt: Format) -> list[Term]:
    if fmt.bits <= 16:
        known = table(fmt.name)
        return [known[x] for x in bits]
    return [decode(x, fmt) for x in bits]


def _cut(s: int, n: int) -> int:
    """s * 2**n cut toward zero."""
    if n >= 0:
        return s << n
    return s >> -n if s >= 0 else -(-s >> -n)


class EmulatedFp8:
    """fp8 on f16 units: two fused sums over interleaved columns from +0, then one IEEE addition of c."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, step: int) -> None:
        f16 = FORMATS["f16"]
        self.tables, self.acc = (through_f16(a.name), through_f16(b.name)), acc
        self.fused = Fused(row, f16, f16, acc, step // 2)

    def left(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return [self.tables[0][x] for x in bits]

    def right(self, bits: Sequence[int]) -> list[Term]:
        """Decoded multiplicands."""
        return [self.tables[1][x] for x in bits]

    def step(self, a: list[Term], b: list[Term], c: int) -> int:
        """Columns 0, 1 of every four, then columns 2, 3."""
        x = 0
        for first in (0, 2):
            picked = [t for t in range(len(a)) if t & 2 == first]
            x = self.fused.sum([a[t] for t in picked], [b[t] for t in picked], x, self.acc)
        return add(c, x, self.acc)


class ScalarFma:
    """f16 m8n8k4 of chips without its tensor core: f32 fma chains of four."""

    def __init__(self, row: Model, a: Format, b: Format, acc: Format, step: int) -> None:
        self.acc = acc

    def left(self, bits: Sequence[int]) -> list[Number]:
        """Decoded multiplicands."""
        return [number(x, FORMATS["f16"]) for x in bits]

    right = left

    def step(self, a: list[Number], b: list[Number], c: int) -> int:
        """s = a chain from +0, then c + s (f32); two chains of two, then (c + u0) + u1 rounded to f16 (f16)."""
        f16, f32 = FORMATS["f16"], FORMATS["f32"]
        if self.acc == f32:
            s = 0
            for x, y in zip(a, b, strict=True):
                s = add_product(x, y, s, f16, f32)
            return add(c, s, f32)
        total = widen(c)
        for k in (0, 2):
            # starting from -0 leaves the first product, signed zeros included, as it is
            first = add_product(a[k], b[k], 1 << 31, f16, f32)
            total = add(total, add_product(a[k + 1], b[k + 1], first, f16, f32), f32)
        return narrow(total)


class Fma64:
    """IEEE double: one fma after the other in ascending k."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def left(self, bits: Sequence[int]) -> list[Number]:
        """Decoded multiplicands."""
        return [number(x, FORMATS["f64"]) for x in bits]

    right = left

    def step(self, a: list[Number], b: list[Number], c: int) -> int:
        """The chain; of several NaNs that of b wins, then c, then a, made quiet."""
        f64 = FORMATS["f64"]
        for x, y in zip(a, b, strict=True):
            nans = [v for v in (y[0], c, x[0]) if v & (1 << 63) - 1 > 0x7FF << 52]
            c = nans[0] | 1 << 51 if nans else add_product(x, y, c, f64, f64, self.mode)
        return c


class Integer:
    """The exact sum of a step and c, then two's complement wrap or one clamp."""

    def __init__(self, a: Format, b: Format, multiply: Callable[[int, int], int], saturate: bool) -> None:
        self.formats, self.multiply, self.saturate = (a, b), multiply, saturate

    def left(self, bits: Sequence[int]) -> list[int]:
        """Integer values."""
        return [_integer(x, self.formats[0]) for x in bits]

    def right(self, bits: Sequence[int]) -> list[int]:
        """Integer values."""
        return [_integer(x, self.formats[1]) for x in bits]

    def step(self, a: list[int], b: list[int], c: int) -> int:
        """One instruction."""
        total = sum(map(self.multiply, a, b)) + _integer(c, FORMATS["s32"])
        if self.saturate:
            total = max(-(1 << 31), min(total, (1 << 31) - 1))
        return total & 0xFFFFFFFF


def _integer(bits: int, fmt: Format) -> int:
    value = bits & (1 << fmt.bits) - 1
    return value - (1 << fmt.bits) if fmt.low < 0 and value > fmt.high else value


def _kind(
    row: Model, a: Format, b: Format, acc: Format, step: int, c: Format | None, saturate: bool, rounding: str, op: str
) -> _Kind:
    if row.kind == Kind.FUSED:
        return Fused(row, a, b, acc, min(row.block, step), c)
    if row.kind == Kind.EMULATED_FP8:
        return EmulatedFp8(row, a, b, acc, step)
    if row.kind == Kind.SCALAR_FMA:
        return ScalarFma(row, a, b, acc, step)
    if row.kind == Kind.FMA64:
        return Fma64(rounding)
    if row.kind == Kind.INTEGER:
        return Integer(a, b, int.__mul__, saturate)
    if row.kind == Kind.BITS:
        return Integer(a, b, int.__xor__ if op == "xor" else int.__and__, saturate)
    raise FormatError(f"the oracle has no arithmetic of kind {row.kind!r} (model {row.id}); add a class beside Fused")


class Oracle:
    """A model applied to one instruction: `step` products at a time, the last step padded with zeros.

    row, a, b, acc, step, c, saturate, rounding, op: as of `nbtc.numerics.models.params`; but C is given in its own
    format.

    >>> from nbtc.numerics.models import model
    >>> f16, f32 = FORMATS["f16"], FORMATS["f32"]
    >>> oracle = Oracle(model("sm_90", "mma", f16), f16, f16, f32, 16)
    >>> hex(oracle.dot([0x3C00, 0x4000], [0x3C00, 0x4000], 0))  # 1 * 1 + 2 * 2
    '0x40a00000'
    """

    acc: Format
    width: int
    convert: bool
    kind: _Kind
    first: _Kind

    def __init__(
        self, row: Model, a: Format, b: Format, acc: Format, step: int,
        *, c: Format | None = None, saturate: bool = False, rounding: str = "rn", op: str = "xor",
    ) -> None:  # fmt: skip
        self.acc, self.width = acc, step
        own = c is not None and c != acc and row.c_as_given
        self.convert = c is not None and c != acc and not own
        self.kind = _kind(row, a, b, acc, step, None, saturate, rounding, op)
        # the first instruction's C; the sums that later ones take have the accumulator's format
        self.first = _kind(row, a, b, acc, step, c, saturate, rounding, op) if own else self.kind

    def dot(self, a: Sequence[int], b: Sequence[int], c: int) -> int:
        """Accumulator bits after the chain over all of K, from the bits of a, b (one element each) and c."""
        return self._run(self.kind.left(self._padded(a)), self.kind.right(self._padded(b)), c)

    def matrix(self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any]) -> NDArray[Any]:
        """d[i, j] for bits a (M, K), b (K, N), c (M, N); unsigned arrays, the result of the
        accumulator's size."""
        rows = [self.kind.left(self._padded(x)) for x in a.tolist()]
        columns = [self.kind.right(self._padded(x)) for x in b.T.tolist()]
        lines = zip(rows, c.tolist(), strict=True)
        out = [[self._run(x, y, z) for y, z in zip(columns, line, strict=True)] for x, line in lines]
        return np.array(out, self.acc.bits_dtype).reshape(c.shape)

    def _run(self, a: Any, b: Any, c: int) -> int:
        c = widen(c) if self.convert else c
        for at in range(0, len(a), self.width):
            c = (self.kind if at else self.first).step(a[at : at + self.width], b[at : at + self.width], c)
        return c

    def _padded(self, bits: Sequence[int]) -> list[int]:
        return [*bits, *[0] * (-len(bits) % self.width)]
