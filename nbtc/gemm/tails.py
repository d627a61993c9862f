"""Which tiles of a result a kernel divides over K because its last wave has too few of them for all blocks of threads.

A kernel takes tiles in clusters, and clusters band by band: along one band and back along the next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tile = tuple[slice, slice]
FOUR = 4  # bands of at least so many clusters leave three over as one band


@dataclass(frozen=True)
class Tail:
    """The last `count` tiles that a kernel takes.

    tile: its rows and columns.  cluster: tiles that are taken together, down and across.  axis: "rows" where a band is
    of rows of clusters, "columns" where it is of columns.  band: how many of them.

    >>> [(x.start, x.stop, y.start, y.stop) for x, y in Tail(3, (64, 128), (1, 1), "rows", 1).blocks(128, 512)]
    [(64, 128, 0, 384)]
    """

    count: int
    tile: tuple[int, int]
    cluster: tuple[int, int]
    axis: str
    band: int

    def blocks(self, m: int, n: int) -> list[Tile]:
        """These tiles of a result of m x n as few blocks of rows and columns."""
        high, wide = (tile * cluster for tile, cluster in zip(self.tile, self.cluster, strict=True))
        size = -(-m // high), -(-n // wide)
        minor, major = size if self.axis == "rows" else size[::-1]
        last = visits(minor, major, self.band)[-(self.count // (self.cluster[0] * self.cluster[1])) :]
        across: dict[int, list[int]] = {}
        for i, j in last.tolist() if self.axis == "rows" else last[:, ::-1].tolist():
            across.setdefault(i, []).append(j)
        runs: dict[tuple[int, int], list[int]] = {}
        for i, columns in sorted(across.items()):
            for first, end in _runs(sorted(columns)):
                runs.setdefault((first, end), []).append(i)
        return [
            (slice(top * high, min(m, (bottom + 1) * high)), slice(first * wide, min(n, (end + 1) * wide)))
            for (first, end), rows in runs.items()
            for top, bottom in _runs(rows)
        ]


def visits(minor: int, major: int, band: int, exact: bool = True) -> NDArray[np.int64]:
    """Clusters (minor, major) in the order in which they are taken, in bands along the major axis.

    exact: False has the bands by which the width is chosen, in which three clusters left over are two and one.

    >>> visits(3, 2, 2).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1], [2, 1], [2, 0]]
    """
    found, start, there = [], 0, np.arange(major)
    for index, width in enumerate(_bands(minor, band, exact)):
        along = there[::-1] if index % 2 else there
        own = np.arange(start, start + width)
        found.append(np.stack([np.tile(own, major), np.repeat(along, width)], 1))
        start += width
    return np.concatenate(found)


def _bands(count: int, band: int, exact: bool) -> list[int]:
    """Widths of all bands: what is left in the end makes bands of smaller powers of two."""
    found, width = [band] * (count // band), band
    left = count - sum(found)
    if exact and count > FOUR - 1 and band >= FOUR and left % FOUR == FOUR - 1:
        return [*_bands(count - left % FOUR, band, exact), FOUR - 1]
    while left:
        while width > left:
            width //= 2
        found.append(width)
        left -= width
    return found


def _runs(values: list[int]) -> list[tuple[int, int]]:
    """First and last of each run of neighbours in ascending numbers.

    >>> _runs([1, 2, 3, 7, 8])
    [(1, 3), (7, 8)]
    """
    starts = [x for x, before in zip(values, [None, *values], strict=False) if before is None or x != before + 1]
    ends = [x for x, after in zip(values, [*values[1:], None], strict=True) if after is None or x != after - 1]
    return list(zip(starts, ends, strict=True))
