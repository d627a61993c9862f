"""The indices in sparsity metadata, as compiled code reads them one nibble at a time.

(PTX ISA, "Sparse matrix storage".)
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit


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
