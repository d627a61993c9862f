"""Smith-Waterman by a warp: a lane a column, anti-diagonals in step, scores by DPX functions."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import dpx, warp

ALL = 0xFFFFFFFF
NONE = np.int32(-(1 << 29))  # less than any score, far from where int32 wraps


@nbtc.kernel
def local_scores(a, b, match, mismatch, gap_open, gap_extend, best):
    """Best local alignment of a (pairs, m) with b (pairs, 32), residue codes; best int32 (pairs,); a warp a pair.

    Lane j works on column j and, in step i, on row i - j: what it needs of column j - 1 its neighbour made one step
    before.  A gap of L residues scores gap_open + (L - 1) * gap_extend.
    """
    pair, lane = nbtc.block_idx.x, nbtc.lane_id()
    rows, residue = a.shape[1], b[pair, lane]
    zero = np.int32(0)
    score, diagonal, most = zero, zero, zero  # of this column's last cell; of the one up left; best so far
    above, left = NONE, NONE  # the best alignments that end in a gap along the column, and along the row
    for step in range(rows + 31):
        left_score = warp.shfl_up_sync(ALL, score, 1)
        left_gap = warp.shfl_up_sync(ALL, left, 1)
        if lane == 0:
            left_score, left_gap = zero, NONE
        row = step - lane
        if row >= 0 and row < rows:
            worth = match if a[pair, row] == residue else mismatch
            above = dpx.viaddmax_s32(score, gap_open, above + gap_extend)
            left = dpx.viaddmax_s32(left_score, gap_open, left_gap + gap_extend)
            score = dpx.vimax3_s32_relu(diagonal + worth, above, left)
            most = max(most, score)
            diagonal = left_score
    total = warp.reduce_max_sync(ALL, most)
    if lane == 0:
        best[pair] = total


def scores(a, b, match=5, mismatch=-4, gap_open=-11, gap_extend=-1):
    """Best local alignment score of each pair: a (pairs, m), b (pairs, 32).

    >>> from nbtc.examples.alignment import smith_waterman
    >>> a, b = np.random.default_rng(0).integers(0, 4, (2, 3, 32))
    >>> bool((scores(a, b) == smith_waterman(a, b)).all())
    True
    """
    best = np.zeros(len(a), np.int32)
    numbers = (np.int32(n) for n in (match, mismatch, gap_open, gap_extend))
    local_scores[len(a), 32](a.astype(np.int32), b.astype(np.int32), *numbers, best)
    return best
