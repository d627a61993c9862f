"""Sequence alignment with affine gaps on DPX functions: Smith-Waterman (local) and Needleman-Wunsch (global).

Cells of an anti-diagonal do not depend on each other, so one loop over an anti-diagonal is vector code.  In each cell
`viaddmax_s32` extends or opens a gap and `vimax3_s32` (local: `vimax3_s32_relu`) picks the best of three ways to end.
Pairs are independent: threads share them out.  The `plain_*` functions do the same in NumPy, on all pairs at once.

A gap of L residues scores gap_open + (L - 1) * gap_extend.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc import dpx
from nbtc.compiler.jit import jit
from nbtc.errors import FormatError, RangeError, ShapeError

Array = NDArray[Any]

_PAD = 32  # anti-diagonals are rounded up to this many cells: whole vectors, no scalar rest
_LIMIT = 1 << 29  # scores stay below it, far from where int32 wraps


class Scores(NamedTuple):
    """What a column of an alignment is worth.  All but `match` must not be positive."""

    match: int = 5
    mismatch: int = -4
    gap_open: int = -11
    gap_extend: int = -1


PROTEIN = Scores()


def smith_waterman(a: ArrayLike, b: ArrayLike, scores: Scores = PROTEIN, threads: int | None = None) -> Array:
    """Best local alignment score of each pair.

    a, b: residue codes, non-negative integers of shapes (pairs, m) and (pairs, n).  Returns int32 (pairs,).
    Raises FormatError, ShapeError or RangeError.

    >>> a = np.frombuffer(b"TACGGGCCCGCTAC", np.uint8)
    >>> b = np.frombuffer(b"TAGCCCTATCGGTCA", np.uint8)
    >>> int(smith_waterman([a], [b], Scores(match=3, mismatch=-3, gap_open=-5, gap_extend=-1))[0])
    12
    """
    return _align(_local, a, b, scores, threads)


def needleman_wunsch(a: ArrayLike, b: ArrayLike, scores: Scores = PROTEIN, threads: int | None = None) -> Array:
    """Best global alignment score of each pair; arguments and result as in `smith_waterman`.

    >>> a, b = np.frombuffer(b"GATTACA", np.uint8), np.frombuffer(b"GCATGCT", np.uint8)
    >>> int(needleman_wunsch([a], [b], Scores(match=1, mismatch=-1, gap_open=-1, gap_extend=-1))[0])
    0
    """
    return _align(_global, a, b, scores, threads)


@jit(inline=True)
def _best_of(local, x, y, z):
    return dpx.vimax3_s32_relu(x, y, z) if local else dpx.vimax3_s32(x, y, z)


@jit(inline=True)
def _border(local, k, opening, extend):
    """H of row 0 and column 0."""
    return np.int32(0) if local or k == 0 else np.int32(opening + (k - 1) * extend)


@jit(inline=True)
def _diagonal(local, a, b, h, e, f, count, scores):
    """All cells of an anti-diagonal, in place; returns their best score.

    h comes in as H of the cells one up and one left; e and f as the best that ends in a gap at this cell, along its
    row and along its column, and go out as the same for the next cell of that row and column.
    """
    match, mismatch, opening, extend = scores
    best = np.int32(0)
    for t in range(count):
        score = match if a[t] == b[t] else mismatch
        here = _best_of(local, np.int32(h[t] + score), e[t], f[t])
        opened = np.int32(here + opening)
        h[t] = here
        e[t] = dpx.viaddmax_s32(e[t], extend, opened)
        f[t] = dpx.viaddmax_s32(f[t], extend, opened)
        best = max(best, here)
    return best


@jit(inline=True)
def _pair(local, a, b, m, n, match, mismatch, opening, extend):
    """One pair; b comes reversed, so that both residues, e (by row) and f (by column) run forward on a diagonal.

    H of cell (i, j) lies at i - j + n, halved, in the row of h for its parity: where its neighbour (i-1, j-1) was.

    Rounding a diagonal up computes cells with a row beyond m or a column below 1.  No real cell reads those but the
    border ones, which are set again after each diagonal; with penalties that are not positive none can be the best.
    """
    h = np.zeros((2, (m + n) // 2 + _PAD + 1), np.int32)
    e, f = np.zeros(m + _PAD, np.int32), np.zeros(n + _PAD, np.int32)
    for j in range(1, n + 1):
        f[n - j] = _border(local, j, opening, extend) + opening
    best = np.int32(0)
    for d in range(1, m + n + 1):
        low, high = max(1, d - n), min(m, d - 1)
        diagonal = h[(n - d) & 1]
        i, j = low - 1, low + n - d
        count = (high - low + _PAD) // _PAD * _PAD
        cells = diagonal[(2 * low - d + n) // 2 :]
        top = _diagonal(local, a[i:], b[j:], cells, e[i:], f[j:], count, (match, mismatch, opening, extend))
        best = max(best, top)
        edge = _border(local, d, opening, extend)
        if d <= n:
            diagonal[(n - d) // 2] = edge
        if d <= m:
            diagonal[(n + d) // 2] = edge
            e[d - 1] = edge + opening
    return best if local else h[m & 1, m // 2]


def _kernel(local: bool) -> Any:
    """The compiled loop over pairs; `local` is a constant in it, so that neither kind pays for the other."""

    def pairs(a, b, m, n, match, mismatch, opening, extend, out):
        for p in range(out.size):
            out[p] = _pair(local, a[p], b[p], m, n, match, mismatch, opening, extend)

    return jit(pairs)


_local, _global = _kernel(True), _kernel(False)


def _workers(threads: int | None) -> int:
    """Threads asked for, or one a CPU that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return threads or allowed or 1


def _align(kernel: Any, a: ArrayLike, b: ArrayLike, scores: Scores, threads: int | None) -> Array:
    x, y = _residues("a", a), _residues("b", b)
    _check(x, y, scores)
    (count, m), n = x.shape, y.shape[1]
    out = np.zeros(count, np.int32)
    if count == 0:
        return out
    # Beyond their ends the sequences hold two residues that match nothing, not even each other.
    dtype = np.uint8 if max(x.max(initial=0), y.max(initial=0)) < 254 else np.uint32
    last = np.iinfo(dtype).max
    padded_a = np.full((count, m + _PAD), last, dtype)
    padded_b = np.full((count, n + _PAD), last - 1, dtype)
    padded_a[:, :m], padded_b[:, :n] = x, y[:, ::-1]
    numbers = [np.int32(s) for s in scores]
    workers = min(_workers(threads), count)
    parts = [slice(count * i // workers, count * (i + 1) // workers) for i in range(workers)]

    def run(part: slice) -> None:
        kernel(padded_a[part], padded_b[part], m, n, *numbers, out[part])

    if workers == 1:
        run(parts[0])
    else:
        with ThreadPoolExecutor(workers) as pool:  # the kernel releases the GIL
            list(pool.map(run, parts))
    return out


def _residues(label: str, x: ArrayLike) -> Array:
    array = np.asarray(x)
    if array.ndim != 2:
        raise ShapeError(
            f"{label} has shape {array.shape}, but it must be (pairs, residues); pass {label}[None] for one sequence"
        )
    if array.size and array.dtype.kind not in "iu":
        raise FormatError(
            f"{label} is {array.dtype}, but residues are integer codes; pass np.frombuffer(text, np.uint8)[None]"
        )
    if array.size and not 0 <= array.min() <= array.max() < 2**31:
        raise RangeError(
            f"{label} holds residue codes outside of 0..2**31-1; number the residues from 0, as in 0, 1, 2, 3"
        )
    return array.astype(np.int32)


def _check(a: Array, b: Array, scores: Scores) -> None:
    if len(a) != len(b):
        raise ShapeError(f"a holds {len(a)} sequences and b {len(b)}, but they are paired; pass as many of both")
    if max(scores[1:]) > 0:
        raise RangeError(f"{scores}: only match may be positive; pass for example Scores(5, -4, -11, -1)")
    if (a.shape[1] + b.shape[1] + 1) * max(map(abs, scores)) >= _LIMIT:
        raise RangeError(
            f"sequences of {a.shape[1]} and {b.shape[1]} residues with {scores} could overflow 32-bit scores; "
            "pass smaller scores or shorter sequences"
        )


def plain_smith_waterman(a: Array, b: Array, scores: Scores = PROTEIN) -> Array:
    """Smith-Waterman in NumPy: the anti-diagonals of all pairs at once, in int32."""
    return _plain(a, b, scores, True)


def plain_needleman_wunsch(a: Array, b: Array, scores: Scores = PROTEIN) -> Array:
    """Needleman-Wunsch in NumPy: the anti-diagonals of all pairs at once, in int32."""
    return _plain(a, b, scores, False)


def _plain(a: Array, b: Array, scores: Scores, local: bool) -> Array:
    match, mismatch, opening, extend = (np.int32(s) for s in scores)
    (pairs, m), n = a.shape, b.shape[1]
    border = np.arange(-1, m + n + 1, dtype=np.int32) * extend + opening
    border[0] = 0
    border *= not local
    reverse = b[:, ::-1]
    before, last = np.zeros((2, pairs, m + 1), np.int32)
    last[:, :2] = border[1]
    e, f = np.full((pairs, m + 1), -_LIMIT, np.int32), np.full((pairs, n + 1), -_LIMIT, np.int32)  # f by n - column
    best = np.zeros(pairs, np.int32)
    for d in range(2, m + n + 1):
        low, high = max(1, d - n), min(m, d - 1) + 1
        rows, above = slice(low, high), slice(low - 1, high - 1)
        columns = slice(low + n - d, high + n - d)
        score = np.where(a[:, above] == reverse[:, columns], match, mismatch)
        e[:, rows] = np.maximum(e[:, rows] + extend, last[:, rows] + opening)
        f[:, columns] = np.maximum(f[:, columns] + extend, last[:, above] + opening)
        new = np.zeros_like(last)
        new[:, rows] = np.maximum(before[:, above] + score, np.maximum(e[:, rows], f[:, columns]))
        if local:
            np.maximum(new, 0, out=new)
            np.maximum(best, new.max(axis=1), out=best)
        if d <= n:
            new[:, 0] = border[d]
        if d <= m:
            new[:, d] = border[d]
        before, last = last, new
    return best if local else (last[:, m] if m + n else best)
