"""Orders that a library took for the shapes of real models, and which neighbours of a shape speak for it.

`library_shapes.txt.xz` has a line for every recorded product whose bits one order explains: operation, format,
layout, batch, M, N, K, order.  For other shapes speaks what cuBLAS' heuristic answers (`cublas_choices`).
"""

from __future__ import annotations

import lzma
from functools import cache, lru_cache
from importlib.resources import files
from typing import NamedTuple

from nbtc.gemm.cublas.choices import Kind, Size, chosen, nearest
from nbtc.gemm.cublas.fused import PLAIN, PREFIX, lone

ALIGNED = 8  # elements: operands whose rows are not multiples of 16 bytes take other kernels
UNSURE = "the order of cuBLAS' kernel for it, or for shapes near it, is not sure"
NARROW = 16  # rows or columns up to which products of a batch have kernels of their own, as a batch of one has
SAME = {"f16": "bf16", "e5m2": "e4m3"}  # formats with the same kernels, of which the second is recorded


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
    kind: Kind = (op, SAME[name] if name == "e5m2" else name, layout)
    made = chosen(kind, size)
    order, sure = (lone(name), False) if made is None else made[0].found(kind[1], layout, size)
    if size in own and not (sure and order.startswith(PREFIX)):  # recorded with numbers that tf32 holds: not seen there
        return Found(own[size], "recorded", "")
    if not own and not other and name != PLAIN:
        return None
    if made is not None and sure:
        return Found(order, "rule", made[1])
    whole = not any(length % ALIGNED for length in lines(layout, size))
    if own and not whole:
        other = {}  # of rows of no whole 16 bytes the two formats' kernels have different tiles
    if size in other:
        return Found(other[size], "rule", f"recorded{_like(name, other)}")
    if op == "bmm" and whole and name not in ("tf32", PLAIN):
        return Found("seq", "rule", "no recorded batch is split")
    if made is None:
        return _nearest(kind, size, whole)
    return Found(order if made[0].described or name == PLAIN else _next(own, size), "guess", UNSURE)


def _nearest(kind: Kind, size: Size, whole: bool) -> Found:
    """What cuBLAS chose for the nearest shapes: a rule where they agree and lines are whole 16 bytes."""
    op, name, layout = kind
    near = nearest(kind, size)
    if near is None and op == "addmm":  # of which other layouts were not asked for
        near, whole = nearest(("mm", name, layout), size), False
    if near is None:
        return Found(lone(name), "guess", "no shape near it was asked for")
    answers = [choice.found(name, layout, size) for choice in near[0]]
    orders = [order for order, _ in answers]
    if not answers[0][1]:
        return Found(orders[0], "guess", UNSURE)
    if whole and len(set(answers)) == 1 and (op != "bmm" or (size[0] > 1 and min(size[1:3]) > NARROW)):
        return Found(orders[0], "rule", f"cuBLAS' heuristic chose it for the {len(orders)} nearest shapes")
    where = " x ".join(map(str, near[1]))
    return Found(orders[0], "guess", f"as cuBLAS' heuristic chose for {where}, the nearest shape")


def _like(name: str, other: dict[Size, str]) -> str:
    """That it is the format with the same kernels whose products speak for one."""
    return f" as {SAME[name]}" if other and name in SAME else ""


def _next(recorded: dict[Size, str], size: Size) -> str:
    """The order of the next smaller and the next larger recorded M, where they agree; else one chain."""
    batch, m, n, k = size
    other = {s[1]: order for s, order in recorded.items() if (s[0], s[2], s[3]) == (batch, n, k)}
    below, above = max((x for x in other if x < m), default=None), min((x for x in other if x > m), default=None)
    if below is None or above is None or other[below] != other[above]:
        return "seq"
    return other[below]


def lines(layout: str, size: Size) -> tuple[int, int, int]:
    """Elements from line to line of A, B and the result.

    >>> lines("tn", (0, 10, 768, 33))
    (10, 768, 768)
    """
    _, m, n, k = size
    return (m if layout[0] == "t" else k, k if layout[1] == "t" else n, n)
