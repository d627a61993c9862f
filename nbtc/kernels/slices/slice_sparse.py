"""A sparse A of a warp's slice as a dense one: zeros stand where nothing is stored.

Zeros add nothing to a sum, so the sums of a sparse product are those of a dense one twice as deep.  B needs no
selection, which would be another one for each row.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I16, VectorBuilder
from nbtc.kernels.slices.slice_elements import VECTOR, W16
from nbtc.kernels.slices.slice_shape import WORDS


def expanded(v: VectorBuilder, words: list[Any], meta: Any) -> tuple[list[Any], Any]:
    """Words of rows of 8-bit elements, twice as many; i1: some pair of indices is one element of B twice.

    meta: image of the metadata.  Of the four lanes of rows g and g + 8, which hold two bits for each stored element,
    the first two belong to the rows' first four words, the other two to the other four.
    """
    b, image, out, clash = v.b, [v.load(meta, W16, VECTOR, VECTOR * n) for n in (0, 1)], [], v.const(W16, 0)
    for n, x in enumerate(words):
        half, place = divmod(n, WORDS // 2)  # in a vector, word q of a 128-bit lane u is row u + 4q
        rows = [4 * u + 2 * half + q // 2 + W16.count * (q % 2) for u in range(4) for q in range(4)]
        indices = v.shuffle(image[0], image[1], rows)
        for pair in (0, 1):
            (left, first), (right, second) = (
                _placed(v, x, indices, 8 * side, 8 * place + 2 * side) for side in (2 * pair, 2 * pair + 1)
            )
            out.append(b.or_(left, right))
            clash = b.or_(clash, b.zext(b.icmp_unsigned("==", first, second), W16))
    flags = b.icmp_unsigned("!=", clash, v.const(W16, 0))
    return out, b.icmp_unsigned("!=", b.bitcast(flags, I16), ir.Constant(I16, 0))


def _placed(v: VectorBuilder, x: Any, indices: Any, at: int, index_at: int) -> tuple[Any, Any]:
    """The byte of words x from bit `at` on, moved to where its index says; the bits that it is moved by."""
    b = v.b
    byte = b.and_(b.lshr(x, v.const(W16, at)), v.const(W16, 0xFF))
    shift = b.shl(b.and_(b.lshr(indices, v.const(W16, index_at)), v.const(W16, 3)), v.const(W16, 3))
    return b.shl(byte, shift), shift
