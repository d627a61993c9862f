"""Outputs one at a time by `fused.chain`: tiny products, models without a fast kernel, and repairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.compiler.threads import ThreadTeam
from nbtc.numerics.fused import chain

MACS_PER_TASK = 1 << 21  # about 20 ms: an interrupt waits no longer


@jit
def chain_outputs(arrays, chosen, whole, sizes, maps, params, first, last):
    """d[t] = chain of output t for t in first..last (whole), or for those positions of `chosen`.

    arrays: a (batch, M, K), b (batch, K, N), c (batch, M, N) and d, flat.  sizes = M, N, K.  maps: which matrix of a, b
    and c belongs to a batch item (-1: no c).
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
            start = np.uint64(c[ic[item] * m * n + rest])
        d[at] = chain(a, (ia[item] * m + i) * k, 1, b, ib[item] * k * n + j, n, k, start, params)


def run(
    a: NDArray[Any], b: NDArray[Any], c: NDArray[Any] | None, d: NDArray[Any], maps: tuple[Any, Any, Any],
    params: NDArray[np.int64], team: ThreadTeam, chosen: NDArray[np.int64] | None = None,
) -> None:  # fmt: skip
    """Bits of a (X, M, K), b (Y, K, N), c (Z, M, N) or None, into d (batch, M, N), C order; maps: item -> X, Y, Z."""
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    count = d.size if chosen is None else chosen.size
    flat = [np.ascontiguousarray(x).reshape(-1) for x in (a, b, np.zeros(0, d.dtype) if c is None else c)]
    flat = [x if x.flags.writeable else x.copy() for x in flat]
    out = d.reshape(-1)
    positions = np.zeros(0, np.int64) if chosen is None else chosen
    sizes = np.array([m, n, k])
    per = max(1, min(MACS_PER_TASK // max(1, k), -(-count // team.threads)))
    shares = [(t, min(count, t + per)) for t in range(0, count, per)]
    team.run(chain_outputs, ((*flat, out), positions, chosen is None, sizes, maps, params), shares, per * k)
