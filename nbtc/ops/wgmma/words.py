"""Whole dense warpgroup products of 8-bit integers (four a word, VPDPBUSD) and bits (32 a word), on AVX-512.

Roles and order as in `fused`: a tile has four columns of B and the 64 rows of A, every form eight words of K.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nbtc.compiler.builder import I32, VectorBuilder, vector
from nbtc.compiler.host import has_avx512
from nbtc.compiler.jit import jit
from nbtc.numerics.models import BIT_OP, BIT_OPS, KIND, Kind
from nbtc.ops.wgmma import tile as tile_of
from nbtc.ops.wgmma.gather import DEPTH_BYTES, K_MAJOR, PANEL, ROWS, gathers, room, source_of
from nbtc.ops.wgmma.general import SMEM_BYTES, THREADS, N
from nbtc.ops.wgmma.tile import WHOLE, fetch

WORDS, CHUNKS = DEPTH_BYTES // 4, PANEL // 16
W = vector(I32, 16)
TOP = 0x80808080  # the sign bits of four bytes: what makes signed bytes unsigned ones that are 128 larger, and back
BITS = 2  # instead of a signedness: bits, not bytes
_HOST = ("avx512vnni",)


def serves(params: NDArray[np.int64]) -> bool:
    """True when `kernel` does a dense form on this machine."""
    bits = params[KIND] == Kind.BITS and params[BIT_OP] == BIT_OPS["and"]
    return bool(bits or params[KIND] == Kind.INTEGER) and has_avx512(*_HOST)


class _Words:
    """Writes the sums of all tiles.  VPDPBUSD multiplies unsigned by signed bytes; other pairs are corrected."""

    def __init__(self, v: VectorBuilder, a_signed: int, b_signed: int, saturate: bool, args: dict[str, Any]) -> None:
        self.v, self.b, self.args, self.saturate = v, v.b, args, saturate
        self.bits, self.swapped = a_signed == BITS, bool(a_signed) and not b_signed
        self.both = None if self.bits or a_signed != b_signed else ("signed" if a_signed else "unsigned")

    def dot(self, total: Any, unsigned: Any, signed: Any) -> Any:
        # of words, as its first LLVM had it: every later one knows it
        return self.v.call("llvm.x86.avx512.vpdpbusd.512", W, total, unsigned, signed)

    def step(self, total: Any, a: Any, b: Any) -> Any:
        """total and the products of a word of A and one of B."""
        if self.bits:
            return self.b.add(total, self.v.popcount(self.b.and_(a, b)))
        return self.dot(total, b, a) if self.swapped else self.dot(total, a, b)

    def a(self, k: int, c: int) -> Any:
        """A word of sixteen rows of A."""
        x = self.v.load(self.args["a"], W, 64, 4 * PANEL * k + 64 * c)
        return self.b.xor(x, self.v.const(W, TOP)) if self.both == "signed" else x

    def across(self) -> list[Any]:
        """What the sums of a place of the panel lack: 128 times the sum of its bytes of A, if B's are 128 less."""
        v, zero = self.v, self.v.const(W, 0)
        if self.both != "unsigned":
            return [zero] * CHUNKS
        sums = [zero] * CHUNKS
        for k in range(WORDS):
            sums = [self.dot(x, self.a(k, c), v.const(W, 0x01010101)) for c, x in enumerate(sums)]
        return [self.b.shl(x, v.const(W, 7)) for x in sums]

    def down(self, p: Any) -> list[Any]:
        """What the sums of a column of B have too much: 128 times the sum of its bytes, if A's are 128 more."""
        v, zero = self.v, self.v.const(W, 0)
        if self.both != "signed":
            return [zero] * ROWS
        x = zero
        for n in (0, 64):
            x = self.dot(x, v.const(W, 0x01010101), v.load(p, W, 64, n))
        while x.type.count > ROWS:
            n = x.type.count // 2
            x = self.b.add(v.shuffle(x, x, list(range(n))), v.shuffle(x, x, list(range(n, 2 * n))))
        x = self.b.shl(x, v.const(x.type, 7))
        return [v.shuffle(x, x, [r] * 16) for r in range(ROWS)]

    def emit(self) -> None:
        v, b = self.v, self.b
        across = self.across()
        with cgutils.for_range(b, self.args["tiles"]) as loop:
            fetch(v, self.args["ahead"], loop.index, False)
            p = v.at(self.args["b"], b.mul(loop.index, v.int(4 * ROWS * WORDS)))
            to = v.at(self.args["tile"], b.mul(loop.index, v.int(4 * ROWS * PANEL)))
            down = self.down(p)
            keys = [(r, c) for r in range(ROWS) for c in range(CHUNKS)]
            sums = {(r, c): b.sub(across[c], down[r]) for r, c in keys}
            for k in range(WORDS):
                words = [self.a(k, c) for c in range(CHUNKS)]
                for r in range(ROWS):
                    x = v.splat(self.b_word(p, k, r), 16)
                    for c in range(CHUNKS):
                        sums[r, c] = self.step(sums[r, c], words[c], x)
            for r, c in keys:
                old, at = v.load(to, W, 64, 4 * PANEL * r + 64 * c), 4 * PANEL * r + 64 * c
                v.store(v.over("sadd.sat", old, sums[r, c]) if self.saturate else b.add(old, sums[r, c]), to, 64, at)

    def b_word(self, p: Any, k: int, r: int) -> Any:
        x = self.v.load(p, I32, 4, 4 * (ROWS * k + r))
        return self.b.xor(x, self.v.const(I32, TOP)) if self.both == "unsigned" else x


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _sum_words(typing, a_signed, b_signed, saturate, a, b, tiles, tile, words, ahead):
    """tile += the products of [k][64] words of A and [tile][k][4] words of B; the first three are literals.

    words[ahead] is where the accumulators to fetch begin.
    """
    fixed = (a_signed, b_signed, saturate)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    left, right, clamped = (x.literal_value for x in fixed)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        named = {"a": v.pointer(a, args[3]), "b": v.pointer(b, args[4]), "tiles": args[5]}
        named["tile"] = v.pointer(tile, args[6])
        named["ahead"] = v.at(v.pointer(words, args[7]), builder.mul(args[8], v.int(4)))
        _Words(v, left, right, bool(clamped), named).emit()
        return context.get_dummy_value()

    return types.void(*fixed, a, b, types.int64, tile, words, types.int64), codegen


@cache
def kernel(a_signed: int, b_signed: int, saturate: int) -> Any:
    """Compiled loop over warpgroups, arguments as `fused.kernel`; BITS on both sides: and, popcount."""
    rows, columns = gathers(32)

    @jit
    def run(first, last, geometry, floor, smem, images, a_units, a_which, a_words, a_from, b_units, b_which, d, d_from,
            keep, out_words, left):  # fmt: skip
        n = geometry[N]
        raw_a, raw_b = room(PANEL * DEPTH_BYTES), room(n * DEPTH_BYTES)
        tile = room(4 * n * PANEL).view(np.uint32)
        a_source, size = source_of(geometry), (n >> 1) * THREADS
        lines = n % 32 == 0 and (np.int64(out_words.ctypes.data) & 63) == 0
        for g in range(first, last):
            base = images[g] * geometry[SMEM_BYTES]
            columns(a_source, smem, base, a_units, 2 * PANEL * a_which[g], a_words, 4 * THREADS * a_from[g], raw_a)
            rows(K_MAJOR, smem, base, b_units, 2 * n * b_which[g], n, raw_b)
            if keep[g]:
                tile_of.load(WHOLE, d, d_from[g] * size, tile, n, np.float32(1.0), False)
            else:
                tile[:] = np.uint32(0)
            ahead = d_from[min(g + 1, last - 1)] * size
            _sum_words(a_signed, b_signed, saturate, raw_a, raw_b, n >> 2, tile, d, ahead)
            tile_of.store(WHOLE, out_words, g * size, tile, n, np.float32(1.0), lines)
            left[g] = np.uint8(0)

    return run
