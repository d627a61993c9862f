"""Chains of fused multiply-adds in float32: every output of four rows and a block of columns at a time."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.numerics.ieee import hardware_fma

ROWS = 4  # that read a line of B once
COLUMNS = 512  # of four rows: 8 KiB of sums, which stay in the nearest cache


@jit
def fused_chains(a, b, cuts, each, out, sums, top, bottom):
    """out[c] = the chain over a[:, cuts[c]:cuts[c + 1]] and the same lines of b, for rows top..bottom.

    each: after so many elements a chain is added to its sum and starts anew; 0: it is the sum.  sums: ROWS x COLUMNS
    numbers to work in.
    """
    columns = b.shape[1]
    for c in range(len(cuts) - 1):
        for left in range(0, columns, COLUMNS):
            width = min(COLUMNS, columns - left)
            for row in range(top, bottom, ROWS):
                r0, r1, r2, r3 = row, min(row + 1, bottom - 1), min(row + 2, bottom - 1), min(row + 3, bottom - 1)
                start, stop = cuts[c], cuts[c + 1]
                while True:
                    end = min(stop, start + each) if each else stop
                    sums[:, :width] = 0
                    for k in range(start, end):
                        x0, x1, x2, x3 = a[r0, k], a[r1, k], a[r2, k], a[r3, k]
                        for j in range(width):
                            y = b[k, left + j]
                            sums[0, j] = hardware_fma(x0, y, sums[0, j])
                            sums[1, j] = hardware_fma(x1, y, sums[1, j])
                            sums[2, j] = hardware_fma(x2, y, sums[2, j])
                            sums[3, j] = hardware_fma(x3, y, sums[3, j])
                    for r in range(min(ROWS, bottom - row)):
                        for j in range(width):
                            out[c, row + r, left + j] = out[c, row + r, left + j] + sums[r, j] if each else sums[r, j]
                    start = end
                    if start >= stop:
                        break
