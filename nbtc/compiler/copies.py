"""Copies between arrays inside compiled code."""

from __future__ import annotations

from nbtc.compiler.jit import jit


@jit(inline=True)
def copied(out, x):
    """out[:] = x, both of one dimension.

    That statement itself makes Numba compile the text of an error about shapes: a third of the first product's time.
    """
    for i in range(x.size):
        out[i] = x[i]
