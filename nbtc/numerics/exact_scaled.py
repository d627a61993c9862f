"""The slow oracle of block-scaled products: one dot product at a time, in Python integers.

It shares no code with the compiled core: scales, elements and groups follow the rows of `models.py` in exact integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import FormatError
from nbtc.formats.table import Format
from nbtc.numerics.exact_float import Term, canonical_nan, compose, decode, infinity, special_sum
from nbtc.numerics.models import Kind, Model

Scale = tuple[int, int] | None  # significand and the exponent of its unit; None is a NaN


def decode_scale(code: int, fmt: Format) -> Scale:
    """A scale as significand * 2**unit: a power of two (ue8m0), or seven bits of an unsigned float (ue4m3)."""
    if not fmt.zero:
        return None if code == fmt.special else (1, code - fmt.bias)
    code &= (1 << fmt.bits) - 1
    if code == fmt.special:
        return None
    field, fraction = code >> fmt.mantissa, code & ((1 << fmt.mantissa) - 1)
    return fraction + (1 << fmt.mantissa if field else 0), max(field, 1) - fmt.bias - fmt.mantissa


class ScaledOracle:
    """A model of block-scaled products applied to one instruction: `step` products and `chunks` scales at a time.

    >>> from nbtc.formats.table import FORMATS
    >>> from nbtc.numerics.models import _ROWS
    >>> f, scale = FORMATS["e2m1"], FORMATS["ue8m0"]
    >>> oracle = ScaledOracle(_ROWS["sm_120", "grouped", "fp4"], f, f, FORMATS["f32"], 64, scale, 2)
    >>> hex(oracle.dot([2, 4], [2, 4], 0, [128, 127], [127, 127]))      # (1 * 1 + 2 * 2) * 2
    '0x41200000'
    """

    def __init__(
        self, row: Model, a: Format, b: Format, acc: Format, step: int, scale: Format, chunks: int
    ) -> None:  # fmt: skip
        if row.kind not in (Kind.SCALED, Kind.GROUPED):
            raise FormatError(f"model {row.id} has no block scales: use nbtc.numerics.exact.Oracle")
        self.row, self.formats, self.acc, self.width, self.scale, self.chunks = row, (a, b), acc, step, scale, chunks

    def dot(self, a: Sequence[int], b: Sequence[int], c: int, xs: Sequence[int], ys: Sequence[int]) -> int:
        """Accumulator bits after the chain over all of K, from the codes of elements and scales."""
        for at in range(0, len(a), self.width):
            s = at // self.width * self.chunks
            scales = [
                (decode_scale(x, self.scale), decode_scale(y, self.scale))
                for x, y in zip(xs[s : s + self.chunks], ys[s : s + self.chunks], strict=True)
            ]
            c = self._step(a[at : at + self.width], b[at : at + self.width], c, scales)
        return c

    def matrix(
        self, a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], xs: NDArray[Any], ys: NDArray[Any]
    ) -> NDArray[Any]:
        """d[i, j] for codes a (M, K), b (K, N), c (M, N), xs (M, S), ys (S, N)."""
        left, right = (
            list(zip(a.tolist(), xs.tolist(), strict=True)),
            list(zip(b.T.tolist(), ys.T.tolist(), strict=True)),
        )
        lines = zip(left, c.tolist(), strict=True)
        out = [[self.dot(x, y, z, s, t) for (y, t), z in zip(right, line, strict=True)] for (x, s), line in lines]
        return np.array(out, c.dtype).reshape(c.shape)

    def _step(self, a: Sequence[int], b: Sequence[int], c: int, scales: list[tuple[Scale, Scale]]) -> int:
        known = [(x, y) for x, y in scales if x is not None and y is not None]
        if len(known) < len(scales):
            return canonical_nan(self.acc)
        x, y = ([decode(code, f) for code in codes] for codes, f in zip((a, b), self.formats, strict=True))
        sc, ec = decode(c, self.acc)
        special = special_sum([(*p, *q) for p, q in zip(x, y, strict=True)], sc, ec)
        if special is not None:
            return infinity(special < 0, self.acc) if special else canonical_nan(self.acc)
        pairs = list(zip(x, y, strict=True))
        if self.row.kind == Kind.SCALED:
            terms = self._products(pairs, known[0])
        else:
            size = self.row.block
            count = self.width // size
            groups = [pairs[g * size : (g + 1) * size] for g in range(count)]
            terms = [self._group(g, known[n * self.chunks // count]) for n, g in enumerate(groups)]
        return self._sum([*terms, (sc, ec - self.acc.mantissa, ec if sc else None)])

    def _products(self, pairs: list[tuple[Term, Term]], scale: Any) -> list[tuple[int, int, int | None]]:
        """(significand, exponent of its unit, exponent it is aligned by) of each product; None: a zero."""
        scale_exponent = scale[0][1] + scale[1][1]
        down = self.formats[0].mantissa + self.formats[1].mantissa
        return [
            (s * t, e + f + scale_exponent - down, e + f + scale_exponent if s * t else None)
            for (s, e), (t, f) in pairs
        ]  # fmt: skip

    def _group(self, pairs: list[tuple[Term, Term]], scale: Any) -> tuple[int, int, int | None]:
        """The exact sum of a group, scaled; aligned by the exponents of the scales' leading places."""
        (mx, ux), (my, uy) = scale
        places = self.formats[0].mantissa + self.formats[1].mantissa
        total = sum(s * t << (e + f) for (s, e), (t, f) in pairs if s * t)
        some = any(s * t for (s, _), (t, _) in pairs) and mx * my
        lead = ux + uy + 2 * (self.scale.mantissa if self.scale.zero else 0)
        return total * mx * my, ux + uy - places, lead if some else None

    def _sum(self, terms: list[tuple[int, int, int | None]]) -> int:
        top = max(self.row.floor32, *(e for _, _, e in terms if e is not None), self.row.floor32)
        unit, total = top - self.row.fraction, 0
        for s, e, _ in terms:
            n = e - unit
            total += s << n if s and n >= 0 else (abs(s) >> -n) * (1 if s > 0 else -1) if s else 0
        if not total:
            return 0
        code = compose(total < 0, abs(total), unit, self.acc, "rz", 24)
        return code if code << 1 & (1 << self.acc.bits) - 1 else 0
