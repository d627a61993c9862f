"""The columns of B as vectors in the order of C's image, read from B's image."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I32, VectorBuilder, vector

Table = list[list[list[int]]]


def columns(v: VectorBuilder, p: Any, table: Table) -> list[Any]:
    """Vectors of sixteen words of the image at p: vector q holds in its 128-bit lane u the words table[q][u]."""
    sources = []
    for u in range(4):
        places = [place for row in table for place in row[u]]
        first, size = min(places), max(places) - min(places) + 1
        sources.append((first, v.load(p, vector(I32, size), 4, 4 * first)))
    out = []
    for n in range(0, len(table), 4):
        lanes = [
            v.shuffle(x, x, [place - first for row in table[n : n + 4] for place in row[u]])
            for u, (first, x) in enumerate(sources)
        ]
        out += _exchanged(v, lanes)
    return out


def _exchanged(v: VectorBuilder, rows: list[Any]) -> list[Any]:
    """The 4 x 4 matrix of 128-bit lanes, transposed."""

    def lanes(x: Any, y: Any, chosen: list[int]) -> Any:
        return v.shuffle(x, y, [4 * n + i for n in chosen for i in range(4)])

    out = []
    for half in ([0, 4, 1, 5], [2, 6, 3, 7]):
        x, y = lanes(rows[0], rows[1], half), lanes(rows[2], rows[3], half)
        out += [lanes(x, y, [0, 1, 4, 5]), lanes(x, y, [2, 3, 6, 7])]
    return out
