"""Attention without the matrix of scores: a tile of queries, keys and values in blocks, one warp."""

from __future__ import annotations

import math

import numpy as np

import nbtc
from nbtc import ptx, warp

FORM = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
ALL = 0xFFFFFFFF
KEYS = 16  # of a block
DEPTH = 16  # elements of a query, key or value


@nbtc.device
def row_maximum(x):
    """Of the four lanes that share a row of an accumulator."""
    x = max(x, warp.shfl_xor_sync(ALL, x, 1))
    return max(x, warp.shfl_xor_sync(ALL, x, 2))


@nbtc.device
def row_sum(x):
    """Of the same four lanes."""
    x += warp.shfl_xor_sync(ALL, x, 1)
    return x + warp.shfl_xor_sync(ALL, x, 2)


@nbtc.device
def rescale(score, result, most, total, r):
    """Scores of row g + 8 r become exponentials, and what was summed before shrinks where the maximum grows."""
    seen = max(max(score[0, 2 * r], score[0, 2 * r + 1]), max(score[1, 2 * r], score[1, 2 * r + 1]))
    new = max(most[r], row_maximum(seen))
    shrink = math.exp(most[r] - new)
    most[r] = new
    for half in range(2):
        for e in range(2):
            score[half, 2 * r + e] = math.exp(score[half, 2 * r + e] - new)
            result[half, 2 * r + e] *= shrink
    row = score[0, 2 * r] + score[0, 2 * r + 1] + score[1, 2 * r] + score[1, 2 * r + 1]
    total[r] = total[r] * shrink + row_sum(row)


@nbtc.kernel
def attention(q, k, v, out, scale):
    """out = softmax(scale * q @ k.T) @ v for 16 queries a block: q, out (m, 16), k, v (n, 16), half; n in sixteens.

    The running maximum and sum of each row are kept while blocks of 16 keys pass, and the result is rescaled when the
    maximum grows.  A lane holds rows g, g + 8, columns 2t, 2t + 1 of each 16x8 tile (g = lane // 4, t = lane % 4).
    """
    values = nbtc.shared((KEYS, DEPTH), nbtc.f16)
    lane = nbtc.lane_id()
    g, t, first = lane // 4, lane % 4, 16 * nbtc.block_idx.x
    fq, fk = nbtc.local(8, nbtc.f16), nbtc.local(4, nbtc.f16)
    score, result = nbtc.local((2, 4), nbtc.f32), nbtc.local((2, 4), nbtc.f32)
    most, total = nbtc.local(2, nbtc.f32), nbtc.local(2, nbtc.f32)
    for n in range(4):
        for e in range(2):
            fq[2 * n + e] = q[first + g + 8 * (n % 2), 8 * (n // 2) + 2 * t + e]
            result[e, n] = 0.0
    for r in range(2):
        most[r], total[r] = -math.inf, 0.0
    for block in range(0, k.shape[0], KEYS):
        for n in range(lane, KEYS * DEPTH, 32):
            values[n // DEPTH, n % DEPTH] = v[block + n // DEPTH, n % DEPTH]
        nbtc.syncwarp()
        for half in range(2):  # scores of 8 keys each
            for n in range(2):
                for e in range(2):
                    fk[2 * n + e] = k[block + 8 * half + g, 8 * n + 2 * t + e]
            s = ptx.mma_sync(FORM, fq, fk, (0, 0, 0, 0))
            for n in range(4):
                score[half, n] = scale * np.uint32(s[n]).view(np.float32)
        for r in range(2):
            rescale(score, result, most, total, r)
        # an accumulator of two 16x8 tiles has the layout of A: only the type changes
        p0 = ptx.cvt("cvt.rn.f16x2.f32", score[0, 1], score[0, 0])
        p1 = ptx.cvt("cvt.rn.f16x2.f32", score[0, 3], score[0, 2])
        p2 = ptx.cvt("cvt.rn.f16x2.f32", score[1, 1], score[1, 0])
        p3 = ptx.cvt("cvt.rn.f16x2.f32", score[1, 3], score[1, 2])
        fv = ptx.ldmatrix(values, 2 * DEPTH * (lane % 16) + 16 * (lane // 16), num=4, trans=True)
        for half in range(2):
            right = (fv[0], fv[1]) if half == 0 else (fv[2], fv[3])
            o = ptx.mma_sync(FORM, (p0, p1, p2, p3), right, result[half])
            for n in range(4):
                result[half, n] = np.uint32(o[n]).view(np.float32)
        nbtc.syncwarp()
    for half in range(2):
        for n in range(4):
            out[first + g + 8 * (n // 2), 8 * half + 2 * t + n % 2] = result[half, n] / total[n // 2]


def attend(q, k, v):
    """Attention of queries q to keys k with values v: half (m, 16), (n, 16), (n, 16).

    >>> rng = np.random.default_rng(1)
    >>> q, k, v = (rng.standard_normal((n, 16)).astype(np.float16) for n in (32, 48, 48))
    >>> s = q.astype(float) @ k.astype(float).T / 4
    >>> p = np.exp(s - s.max(axis=1, keepdims=True))
    >>> bool(np.allclose(attend(q, k, v), p @ v.astype(float) / p.sum(axis=1, keepdims=True), atol=3e-3))
    True
    """
    out = np.zeros_like(q)
    attention[len(q) // 16, 32](q, k, v, out, np.float32(1 / math.sqrt(DEPTH)))
    return out
