"""What sparsity metadata says, as compiled code reads it one nibble at a time (PTX ISA, "Sparse matrix storage").

A nibble is of a chunk of a row of A and holds two indices.  Kind UNITS: each stored element has one, in chunks of four
columns; PAIRS: each two adjacent elements, in chunks of eight; HALVES: one tf32 element, whose two 16-bit halves are
indexed, in chunks of two.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit

DENSE, UNITS, PAIRS, HALVES = range(4)  # kinds of sparsity


@jit(inline=True)
def stored_of_chunk(kind):
    """Stored elements of a chunk."""
    return 1 if kind == HALVES else 4 if kind == PAIRS else 2


@jit(inline=True)
def column_of(kind, s, first, second):
    """The column that stored element s of a row belongs to, by the indices of its chunk; kind: UNITS or PAIRS."""
    unit, per_chunk = stored_of_chunk(kind) // 2, stored_of_chunk(kind)
    chunk, within = s // per_chunk, s % per_chunk
    return chunk * 2 * per_chunk + unit * (second if within >= unit else first) + within % unit


@jit(inline=True)
def indices(words, at, shift):
    """The two indices, of 2 bits, in the nibble from bit `shift` of words[at] on."""
    nibble = np.int64(words[at] >> np.uint32(shift))
    return nibble & 3, (nibble >> 2) & 3


@jit(inline=True)
def joined_halves(b, at, step, first, second):
    """The tf32 element of which `first` and `second` choose the lower and the upper half, out of four.

    The halves are those of the elements b[at] and b[at + step].
    """
    low = np.uint64(b[at + (first >> 1) * step]) >> np.uint64(16 * (first & 1)) & np.uint64(0xFFFF)
    high = np.uint64(b[at + (second >> 1) * step]) >> np.uint64(16 * (second & 1)) & np.uint64(0xFFFF)
    return low | high << np.uint64(16)
