"""Outputs one at a time by `fused.chain`: tiny products, models without a fast kernel, and repairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.compiler.threads import ThreadTeam
from nbtc.numerics.fused import chain

PIECE = 16  # bits of the smallest accumulator
NO_C, ALL = np.zeros(0, np.uint16), np.zeros(0, np.int64)  # in the place of what there is none of
MACS_PER_TASK = 1 << 21  # about 20 ms: an interrupt waits no longer


@jit
def chain_outputs(arrays, chosen, whole, sizes, maps, params, first, last):
    """d[t] = chain of output t for t in first..last (whole), or for those positions of `chosen`.

    arrays: a (batch, M, K), b (batch, K, N), c (batch, M, N) and d, flat; accumulators as pieces of 16 bits, so that
    each word size of the multiplicands is compiled once.  sizes = M, N, K, pieces of an element of c and of d.
    maps: which matrix of a, b and c belongs to a batch item (-1: no c).
    """
    a, b, c, d = arrays
    ia, ib, ic = maps
    m, n, k = sizes[0], sizes[1], sizes[2]
    for t in range(first, last):
        at = t if whole else chosen[t]
        item, rest = at // (m * n), at % (m * n)
        i, j = rest // n, rest % n
        start = np.uint64(0)
        if ic[item] >= 0:
            for q in range(sizes[3]):
                piece = c[(ic[item] * m * n + rest) * sizes[3] + q]
                start |= np.uint64(piece) << np.uint64(PIECE * q)
        result = chain(a, (ia[item] * m + i) * k, 1, b, ib[item] * k * n + j, n, k, start, params)
        for q in range(sizes[4]):
            d[at * sizes[4] + q] = np.uint16(result >> np.uint64(PIECE * q) & np.uint64((1 << PIECE) - 1))


def run(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, d: NDArray[Any], maps: tuple[Any, Any, Any],
    params: NDArray[np.int64], team: ThreadTeam, chosen: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Bits of a (X, M, K), b (Y, K, N), c (Z, M, N) or None, into d (batch, M, N), C order; maps: item -> X, Y, Z."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    count = d.size if chosen is None else chosen.size
    arrays = _flat(a), _flat(b), NO_C if c is None else _flat(c).view(np.uint16), d.reshape(-1).view(np.uint16)
    sizes = np.array((m, n, k, 0 if c is None else 8 * c.itemsize // PIECE, 8 * d.itemsize // PIECE))
    per = max(1, min(MACS_PER_TASK // max(1, k), -(-count // team.threads)))
    shares = [(t, min(count, t + per)) for t in range(0, count, per)]
    fixed = arrays, ALL if chosen is None else chosen, chosen is None, sizes, maps, params
    team.run(chain_outputs, fixed, shares, per * k)


def _flat(x: NDArray[Any]) -> NDArray[Any]:
    """C order, writeable: compiled code has one specialisation, whatever came in."""
    x = np.ascontiguousarray(x).reshape(-1)
    return x if x.flags.writeable else x.copy()
