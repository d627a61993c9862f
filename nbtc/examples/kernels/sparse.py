"""Half of a matrix left out: 2:4 sparsity, from a dense matrix to mma.sp."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import ptx

FORM = "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32"


def pruned(x):
    """`x` (..., k) with the two smallest of every four neighbours set to zero.

    >>> pruned(np.array([[4.0, -1.0, 2.0, 3.0]])).tolist()
    [[4.0, 0.0, 0.0, 3.0]]
    """
    groups = x.reshape(*x.shape[:-1], -1, 4)
    order = np.argsort(np.abs(groups), axis=-1, kind="stable")
    kept = np.ones(groups.shape, bool)
    np.put_along_axis(kept, order[..., :2], False, -1)
    return np.where(kept, groups, 0).astype(x.dtype).reshape(x.shape)


@nbtc.kernel
def sparse_gemm(a, meta, b, d):
    """d = A @ B, where a and meta are the compressed tiles of A: (m / 16, k / 32, 32, 4) and (m / 16, k / 32, 32).

    b: (n / 8, k / 32, 32, 4) registers of B, d: (m, n) float.  One warp makes 16x8 elements.
    """
    i, j, lane = nbtc.block_idx.x, nbtc.block_idx.y, nbtc.lane_id()
    zero = np.uint32(0)
    acc = (zero, zero, zero, zero)
    for k in range(a.shape[1]):
        acc = ptx.mma_sp(FORM, a[i, k, lane], b[j, k, lane], acc, meta[i, k, lane])
    for n in range(4):
        d[16 * i + lane // 4 + 8 * (n // 2), 8 * j + 2 * (lane % 4) + n % 2] = np.uint32(acc[n]).view(np.float32)


def gemm(dense, b):
    """A @ B of a pruned A (m, k) and B (k, n), both half, by `sparse_gemm`.

    >>> rng = np.random.default_rng(3)
    >>> a = pruned(rng.standard_normal((32, 64))).astype(np.float16)
    >>> b = rng.standard_normal((64, 16)).astype(np.float16)
    >>> bool(np.allclose(gemm(a, b), a.astype(float) @ b.astype(float), atol=1e-4))
    True
    """
    form = nbtc.instruction(FORM)
    (m, k), n = dense.shape, b.shape[1]
    stored, meta = nbtc.sparse.compress(dense.reshape(m // 16, 16, k // 32, 32).swapaxes(1, 2), form)
    right = form.pack_b(b.reshape(k // 32, 32, n // 8, 8).transpose(2, 0, 1, 3))
    d = np.zeros((m, n), np.float32)
    sparse_gemm[(m // 16, n // 8), 32](form.pack_a(stored), meta, right, d)
    return d
