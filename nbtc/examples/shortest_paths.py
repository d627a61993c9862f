"""All-pairs shortest paths (Floyd-Warshall) on DPX functions, and the same in plain NumPy.

The inner step, min(d[i, k] + d[k, j], d[i, j]), is the one function `viaddmin_s32`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc import dpx
from nbtc.compiler.jit import jit
from nbtc.errors import FormatError, RangeError, ShapeError

Array = NDArray[Any]

UNREACHABLE = (1 << 30) - 1  # two of them still add up below 2**31: DPX sums wrap


@jit(inline=True)
def _relax(row, via, through):
    """Every path of a row may go through k: via = d[i, k], through = d[k]."""
    for j in range(row.size):
        row[j] = dpx.viaddmin_s32(via, through[j], row[j])


@jit
def _all_rows(d):
    for k in range(d.shape[0]):
        for i in range(d.shape[0]):
            if i != k:
                _relax(d[i], d[i, k], d[k])


def floyd_warshall(weights: ArrayLike) -> Array:
    """Lengths of the shortest paths between all nodes, int32 (n, n).

    weights: integers (n, n), weights[i, j] the length of the edge from i to j, from 0 to UNREACHABLE (no edge).  Paths
    of UNREACHABLE and more count as none.  Raises FormatError, ShapeError or RangeError.

    >>> far = UNREACHABLE
    >>> floyd_warshall([[0, 3, far], [far, 0, 4], [1, far, 0]])
    array([[0, 3, 7],
           [5, 0, 4],
           [1, 4, 0]], dtype=int32)
    """
    d = _distances(weights)
    _all_rows(d)
    return d


def plain_floyd_warshall(weights: ArrayLike) -> Array:
    """The same with NumPy's add and minimum."""
    d = _distances(weights)
    for k in range(len(d)):
        np.minimum(d, d[:, k, None] + d[k], out=d)
    return d


def _distances(weights: ArrayLike) -> Array:
    """A checked copy to work in."""
    w = np.asarray(weights)
    if w.ndim != 2 or w.shape[0] != w.shape[1]:
        raise ShapeError(
            f"weights have shape {w.shape}, but they must be (n, n), from node i to node j: pass np.zeros((3, 3), int)"
        )
    if w.dtype.kind not in "iu":
        raise FormatError(f"weights are {w.dtype}, but DPX functions take integers; pass weights.astype(np.int32)")
    if w.size and not 0 <= w.min() <= w.max() <= UNREACHABLE:
        raise RangeError(
            f"weights lie outside of 0..{UNREACHABLE}, so that sums could wrap; pass np.minimum(weights, {UNREACHABLE})"
        )
    return np.array(w, np.int32, order="C")
