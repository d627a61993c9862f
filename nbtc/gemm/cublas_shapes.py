"""Orders that a library took for the shapes of real models, and which neighbours of a shape speak for it.

`library_shapes.txt.xz` has a line for every recorded product whose bits one order explains: operation, format,
layout, batch, M, N, K, order.  On an H200 bfloat16 products are split over K as the name of cuBLAS' kernel says
("splitK"): into as many parts as blocks of threads stand at one tile, each of a whole number of 64 elements.
"""

from __future__ import annotations

import lzma
import math
import re
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

STEP = 64  # elements of K that those kernels take at a time
# The smallest K of a product that was split, of 17,977 in half precision and 3,234 in e4m3 with whole lines of 16 bytes
UNSPLIT = {"bf16": 2688, "e4m3": 5632}
ALIGNED = 8  # elements: operands whose rows are not multiples of 16 bytes take other kernels
SAME = {"f16": "bf16", "e5m2": "e4m3"}  # formats with the same kernels, of which the second is recorded
# Distances between shapes, in doublings of the batch, M, N and K, and for each way in which lines are aligned
# otherwise, or a vector is none.  Of recorded shapes, 700 of each kind taken away in turn: rules and the nearest other
# shape have the order of 656 in bfloat16, 677 in float16, 691 in e4m3 and 635 in tf32 (the nearest alone: of 96, 24, 32
# and 276 the order of 63, 12, 24 and 217), and with lines of no whole 16 bytes in half precision the chains of 606.
WEIGHTS = (1, 1, 1, 4)
OTHERWISE = 3

Size = tuple[int, int, int, int]  # batch (0: none), M, N, K


class Found(NamedTuple):
    """An order's name, and what speaks for it: "recorded", "rule" or "guess"."""

    order: str
    kind: str
    why: str


@cache
def shapes() -> dict[tuple[str, str, str], dict[Size, str]]:
    """Recorded orders by (operation, format, layout), then by size."""
    packed = files("nbtc").joinpath("data", "library_shapes.txt.xz").read_bytes()
    table: dict[tuple[str, str, str], dict[Size, str]] = {}
    for line in lzma.decompress(packed).decode().splitlines():
        op, name, layout, batch, m, n, k, order = line.split()
        table.setdefault((op, name, layout), {})[int(batch), int(m), int(n), int(k)] = order
    return table


@lru_cache(maxsize=1 << 12)  # a model asks again at every step, and a guess looks at all shapes
def find(op: str, name: str, layout: str, size: Size) -> Found | None:
    """What is known of a product; None for a kind of product that was never recorded.

    >>> find("mm", "bf16", "nt", (0, 4, 4096, 4096))
    Found(order='split2x2048', kind='recorded', why='')
    >>> find("mm", "bf16", "nt", (0, 3, 4096, 4096)).kind
    'rule'
    """
    own, other = shapes().get((op, name, layout), {}), shapes().get((op, SAME.get(name, name), layout), {})
    if size in own:
        return Found(own[size], "recorded", "")
    whole = not any(length % ALIGNED for length in lines(layout, size))
    if own and not whole:
        other = {}  # of rows of no whole 16 bytes the two formats' kernels have different tiles
    if size in other:
        return Found(other[size], "rule", f"recorded{_like(name, other)}")
    recorded, like = {**other, **own}, _like(name, other)
    if not recorded:
        return None
    between = _between(recorded, size)
    if between is not None:
        return Found(between, "rule", f"the next smaller and larger recorded M have it{like}")
    k = size[3]
    below = UNSPLIT.get(name, UNSPLIT.get(SAME.get(name, name), 0))
    if k < below and whole:
        return Found("seq", "rule", f"no recorded K below {below} is split")
    nearest = _nearest(recorded, size, layout, 4 if name == "tf32" else ALIGNED)
    order = scaled(recorded[nearest], nearest[3], k)
    return Found(
        order, "guess", f"the nearest recorded shape, {nearest[1]} x {nearest[2]} x {nearest[3]}, has its kind{like}"
    )


def _like(name: str, other: dict[Size, str]) -> str:
    """That it is the format with the same kernels whose products speak for one."""
    return f" as {SAME[name]}" if other and name in SAME else ""


def _between(recorded: dict[Size, str], size: Size) -> str | None:
    """The order of the next smaller and the next larger M, where they agree."""
    batch, m, n, k = size
    other = {s[1]: order for s, order in recorded.items() if (s[0], s[2], s[3]) == (batch, n, k)}
    below, above = max((x for x in other if x < m), default=None), min((x for x in other if x > m), default=None)
    if below is None or above is None or other[below] != other[above]:
        return None
    return other[below]


def lines(layout: str, size: Size) -> tuple[int, int, int]:
    """Elements from line to line of A, B and the result.

    >>> lines("tn", (0, 10, 768, 33))
    (10, 768, 768)
    """
    _, m, n, k = size
    return (m if layout[0] == "t" else k, k if layout[1] == "t" else n, n)


def _nearest(recorded: dict[Size, str], size: Size, layout: str, aligned: int) -> Size:
    """The recorded shape at the smallest distance; aligned: elements of 16 bytes."""

    def kind(s: Size) -> tuple[bool, ...]:  # rows of no whole 4 bytes take other kernels again
        lengths = lines(layout, s)
        return (
            s[1] == 1,
            *(x % aligned == 0 for x in lengths),
            *(x % (aligned // 4) == 0 for x in lengths),
        )

    def distance(other: Size) -> float:
        doublings = (abs(math.log2(x + 1) - math.log2(y + 1)) for x, y in zip(other, size, strict=True))
        unlike = sum(x != y for x, y in zip(kind(other), kind(size), strict=True))
        return sum(w * d for w, d in zip(WEIGHTS, doublings, strict=True)) + OTHERWISE * unlike

    return min(recorded, key=distance)


def scaled(order: str, before: int, k: int) -> str:
    """The order for another K: as many parts, each of whole steps.

    >>> scaled("split3x2752", 8192, 4096), scaled("seq", 64, 128)
    ('split3x1408', 'seq')
    """
    if segments := re.fullmatch(r"segment(\d+)x(\d+)", order):
        parts = min(int(segments[1]), -(-k // int(segments[2])))
        return f"segment{parts}x{segments[2]}" if parts > 1 else "seq"
    found = re.search(r"split(\d+)x(\d+)", order)
    if not found or k == before:
        return order
    unit = STEP if int(found[2]) % STEP == 0 else 4
    part = max(unit, -(-k // (int(found[1]) * unit)) * unit)
    return order.replace(found[0], f"split{-(-k // part)}x{part}") if part < k else "seq"
