"""The fast fused dot product: 64 columns a panel, four rows a register tile, one multiply-add per product.

Truncating every product to a multiple of q = 2**(E-F) and summing exactly is what one fused multiply-add does when it
rounds *down* into an accumulator whose unit in the last place is q.  The accumulator starts at M = 1.5 * 2**p * q, and
b is stored as b * (1 + eps), so that a negative product always lands one unit below its truncation and a positive one
on it; counting the negative products (a popcount of sign bits) corrects the sum.  Zeros are stored as +-tiny, so they
obey the same rule.

elements F64: p = 52, every F and exponent of f16, bf16 and tf32; only the low 32 bits of the sum are kept, and a sum
that left them flags its tile.  elements F32: p = 23, enough for F = 13 (the fp8 units).

Rejected: an exact product in f32, scaled by an integer add and truncated by a conversion (four operations a product
instead of two; 0.38x of a float32 product instead of 0.45x).
"""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc.compiler.builder import F32, F64, I8, I16, I32, ROUND_DOWN, VectorBuilder, vector
from nbtc.kernels.alignment_and_rounding import BIAS, CHUNK, FV, IV, WRAP_MARGIN, Narrow, Shape, Wide
from nbtc.numerics.models import OUTS

ROWS = 4  # rows of a register tile
BLOCKS = 16  # register tiles in a row block: 64 rows
LEAST_BLOCKS = 2  # a tile's start values are made before the tile before is rounded: not the same one
PANEL = 64  # columns of a panel


SCRATCH = 16384  # bytes of scratch, 64-byte aligned, of every shape
FLAG_WORD = 3072  # where in it the flags are: the smallest distance from a wrapped sum, the largest magnitude


class Emitter:
    """Writes the body of one micro-kernel: a stream of multiply-adds with the bookkeeping of its neighbours mixed in.

    A step is one row block and one block of products; row blocks run fastest, so that B stays in the first-level
    cache.  While register tile t is summed, the exponent maxima of the step after next, the start values of tile t + 1
    and (of f64 elements) the rounding of tile t - 1 are computed between its multiply-adds; one after the other they
    cost a tenth more.
    """

    def __init__(self, v: VectorBuilder, shape: Shape, args: dict[str, Any]) -> None:
        self.v, self.b, self.s, self.args = v, v.b, shape, args
        self.tiles = [(r, c) for r in range(ROWS) for c in range(shape.chunks)]
        self.element = F64 if shape.wide else F32
        self.vector = vector(self.element, 8 if shape.wide else 16)
        self.parts = 2 if shape.wide else 1  # element vectors in a chunk
        self.size = 8 if shape.wide else 4
        n = ROWS * shape.chunks
        self.exponent_row = PANEL * shape.exponent_bytes
        self.o_start = 2 * ROWS * self.exponent_row
        self.o_saved = self.o_start + 64 * n
        self.o_raw = self.o_saved + 128 * n
        self.o_dump = self.o_raw + 64 * n
        self.o_flag = 4 * FLAG_WORD
        self.scratch = args["scratch"]
        self.steps = v.b.mul(args["groups"], args["blocks"])
        names = ("floor", "least", "scale", "reference")
        splats = {name: v.splat(v.b.trunc(args[name], I32), CHUNK) for name in names}
        self.books: Narrow | Wide = (Wide if shape.far else Narrow)(v, shape, splats)

    # --- addresses ----------------------------------------------------------------------------------------------------
    def row(self, step: Any) -> dict[str, Any]:
        """Pointers of a step (a row block of one block of products): A, its panel of B, both accumulator tiles."""
        v, b, a, s = self.v, self.b, self.args, self.s
        group = b.udiv(step, a["blocks"])
        block = b.sub(step, b.mul(group, a["blocks"]))
        per, deep = b.mul(step, v.int(ROWS * s.block)), b.mul(group, v.int(PANEL))
        return {
            "a": v.at(a["a"], b.mul(per, v.int(self.size))),
            "e": v.at(a["ea"], b.mul(per, v.int(4))),
            "s": v.at(a["sa"], b.mul(step, v.int(4 * ROWS))),
            "b": v.at(a["b"], b.mul(deep, v.int(self.size * s.block))),
            "eb": v.at(a["eb"], b.mul(deep, v.int(s.exponent_bytes * s.block))),
            "sb": v.at(a["sb"], b.mul(deep, v.int(4))),
            "c": v.at(a["tile"], b.mul(block, v.int(256 * ROWS))),
            "d": v.at(a["sum"], b.mul(block, v.int(256 * ROWS))),
        }

    def clamp(self, step: Any) -> Any:
        """The last step stands in for those after it (its values are not used)."""
        b = self.b
        return b.select(b.icmp_unsigned("<", step, self.steps), step, b.sub(self.steps, self.v.int(1)))

    def maxima(self, block: Any) -> Any:
        """Where the exponent maxima of a row block are kept (two buffers)."""
        b, v = self.b, self.v
        return v.at(self.scratch, b.mul(b.and_(block, v.int(1)), v.int(ROWS * self.exponent_row)))

    def saved(self, block: Any, part: int) -> Any:
        """Where the alignment exponents of a register tile wait for its rounding."""
        b, v, n = self.b, self.v, 64 * len(self.tiles)
        if self.s.passes % 2 == 0:
            return v.at(self.scratch, self.o_saved + n * (part & 1))
        return v.at(self.scratch, self.o_saved, b.mul(b.and_(block, v.int(1)), v.int(n)))

    # --- pieces of the stream -----------------------------------------------------------------------------------------
    def exponent_step(self, best: list[Any], row: dict[str, Any], k: int) -> list[Any]:
        """Fold the exponents of products k into the running maxima of four rows."""
        v, b, n = self.v, self.b, self.s.exponent_bytes
        lanes = vector(I8 if n == 1 else I16, 64 // n)
        out = []
        for r in range(ROWS):
            ea = v.splat(v.load(row["e"], I32, 4, 4 * (ROWS * k + r)), CHUNK)
            parts = []
            for h in range(n):
                eb = v.load(row["eb"], IV, 64, self.exponent_row * k + 64 * h)
                # a 32-bit add serves bytes and halves: no carry crosses, since sums stay in range
                parts.append(v.umax(best[r][h], v.bits(b.add(ea, eb), lanes)))
            out.append(parts)
        return out

    def empty(self) -> list[Any]:
        n = self.s.exponent_bytes
        zero = self.v.const(vector(I8 if n == 1 else I16, 64 // n), 0)
        return [[zero] * n for _ in range(ROWS)]

    def keep_maxima(self, best: list[Any], p: Any) -> None:
        for r in range(ROWS):
            for h, x in enumerate(self.books.settle(best[r])):
                self.v.store(x, p, 64, self.exponent_row * r + 64 * h)

    def begin(self, row: dict[str, Any], maxima: Any, saved: Any, part: int, r: int, c: int) -> None:
        """What a chunk starts from, less M: the truncated accumulator plus the number of negative products."""
        v, b, books = self.v, self.b, self.books
        column, t = (part * self.s.chunks + c) * CHUNK, r * self.s.chunks + c
        acc = None if self.s.from_zero else v.load(row["c"], IV, 64, 256 * r + 4 * column)
        e = books.alignment(v.at(maxima, self.exponent_row * r + self.s.exponent_bytes * column), acc)
        signs = b.xor(v.load(row["sb"], IV, 64, 4 * column), v.splat(v.load(row["s"], I32, 4, 4 * r), CHUNK))
        low = v.popcount(signs)
        if acc is not None:
            low = b.add(low, books.truncated(acc, e))
        v.store(e, saved, 64, 64 * t)
        v.store(low, self.scratch, 64, self.o_start + 64 * t)

    def total(self, sums: list[Any]) -> Any:
        """The sum modulo 2**32 from the accumulators of a chunk (f32: still with M)."""
        if not self.s.wide:
            return self.v.bits(sums[0], IV)
        lanes = [x for q in range(4) for x in (4 * q, 4 * q + 2, 16 + 4 * q, 18 + 4 * q)]
        return self.v.shuffle(self.v.bits(sums[0], IV), self.v.bits(sums[1], IV), lanes)

    def notice(self, sums: list[Any], low: Any, saved: Any, t: int) -> None:
        """Flag sums of more products than 16 that left 32 bits: their high words are not M's, carried or borrowed."""
        v, b = self.v, self.b
        lanes = [x for q in range(4) for x in (4 * q + 1, 4 * q + 3, 17 + 4 * q, 19 + 4 * q)]
        high = v.shuffle(v.bits(sums[0], IV), v.bits(sums[1], IV), lanes)
        above = b.sub(high, self.books.magic(v.load(saved, IV, 64, 64 * t)))
        inside = b.sext(b.icmp_signed("==", above, b.ashr(low, v.const(IV, 31))), IV)
        flag = v.at(self.scratch, self.o_flag)
        v.store(v.umin(v.load(flag, IV, 64), inside), flag, 64)

    def finish(self, row: dict[str, Any], saved: Any, part: int, r: int, c: int) -> None:
        """Round a chunk's sum that was put aside."""
        n = self.v.load(self.scratch, IV, 64, self.o_raw + 64 * (r * self.s.chunks + c))
        self.round(row, saved, part, r, c, n)

    def round(self, row: dict[str, Any], saved: Any, part: int, r: int, c: int, n: Any) -> None:
        """Round a chunk's sum once and store it (or add it to the second tile)."""
        v, b, books = self.v, self.b, self.books
        column, t = (part * self.s.chunks + c) * CHUNK, r * self.s.chunks + c
        e = v.load(saved, IV, 64, 64 * t)
        if not self.s.wide:
            n = b.sub(n, books.magic(e))
        flag = v.at(self.scratch, self.o_flag)
        if self.s.checked and not self.s.many:
            edge = b.sub(n, v.const(IV, (1 << 31) - WRAP_MARGIN))
            v.store(v.umin(v.load(flag, IV, 64), edge), flag, 64)
        x = books.round(n, e)
        if self.s.add:
            x = books.sum(v.load(row["d"], FV, 64, 256 * r + 4 * column), x)
        books.watch(v.at(flag, 64), x)
        v.store(x, row["d" if self.s.add else "c"], 64, 256 * r + 4 * column)

    # --- the stream ---------------------------------------------------------------------------------------------------
    def warm_up(self) -> None:
        v = self.v
        for i in (0, 1):
            row, best = self.row(self.clamp(v.int(i))), self.empty()
            for k in range(self.s.block):
                best = self.exponent_step(best, row, k)
            self.keep_maxima(best, self.maxima(v.int(i)))
        first = self.row(v.int(0))
        start = v.const(IV, BIAS if self.s.far else BIAS << 23)
        for i in (0, 1):  # the rounding of the tile before the first reads these: keep it from raising flags
            for t in range(len(self.tiles)):
                v.store(start, self.scratch, 64, self.o_saved + 64 * (i * len(self.tiles) + t))
        for r, c in self.tiles:
            self.begin(first, self.maxima(v.int(0)), self.saved(v.int(0), 0), 0, r, c)
        idle = self.books.magic(start) if not self.s.wide else v.const(IV, 0)
        for t in range(len(self.tiles)):
            v.store(idle, self.scratch, 64, self.o_raw + 64 * t)

    def body(self, block: Any) -> None:
        """All register tiles of one row block."""
        v, b, s = self.v, self.b, self.s
        row, after = self.row(block), self.row(self.clamp(b.add(block, v.int(1))))
        ahead = self.row(self.clamp(b.add(block, v.int(2))))
        first = b.icmp_unsigned("==", block, v.int(0))
        before_index = b.select(first, block, b.sub(block, v.int(1)))
        before, dump = self.row(before_index), v.at(self.scratch, self.o_dump)
        before["c"], before["d"] = (b.select(first, dump, before[x]) for x in "cd")
        best, steps, done = self.empty(), 0, 0
        for part in range(s.passes):
            last = part + 1 == s.passes
            nxt = (after, b.add(block, v.int(1)), 0) if last else (row, block, part + 1)
            prev = (row, block, part - 1) if part else (before, b.sub(block, v.int(1)), s.passes - 1)
            work = self.neighbours(nxt, prev)
            queued = 0
            saved = self.saved(block, part)
            sums = self.starts(saved)
            for k in range(s.block):
                self.multiply(sums, row, part, k)
                done += 1
                while queued < len(work) * (k + 1) // s.block:
                    work[queued]()
                    queued += 1
                if steps < s.block * done // (s.passes * s.block):
                    best, steps = self.exponent_step(best, ahead, steps), steps + 1
            for r, c in self.tiles:
                t, parts = r * s.chunks + c, [sums[r, c, h] for h in range(self.parts)]
                raw = self.total(parts)
                if s.many:
                    self.notice(parts, raw, saved, t)
                if s.deferred:
                    v.store(raw, self.scratch, 64, self.o_raw + 64 * t)
                else:
                    self.round(row, saved, part, r, c, raw)
        self.keep_maxima(best, self.maxima(block))

    def neighbours(self, nxt: tuple[Any, Any, int], prev: tuple[Any, Any, int]) -> list[Any]:
        """Rounding of the tile before and start values of the tile after, chunk by chunk."""
        prev_saved, next_saved = self.saved(prev[1], prev[2]), self.saved(nxt[1], nxt[2])
        next_maxima = self.maxima(nxt[1])

        def one(r: int, c: int) -> Any:
            def run() -> None:
                if self.s.deferred:
                    self.finish(prev[0], prev_saved, prev[2], r, c)
                self.begin(nxt[0], next_maxima, next_saved, nxt[2], r, c)

            return run

        return [one(r, c) for r, c in self.tiles]

    def starts(self, saved: Any) -> dict[tuple[int, int, int], Any]:
        """Accumulators of a register tile.  M is made here, not stored: a 64-byte store costs more than making it."""
        v, b = self.v, self.b
        out = {}
        for r, c in self.tiles:
            t = r * self.s.chunks + c
            low = v.load(self.scratch, IV, 64, self.o_start + 64 * t)
            high = self.books.magic(v.load(saved, IV, 64, 64 * t))
            if not self.s.wide:
                out[r, c, 0] = v.bits(b.add(high, low), self.vector)
                continue
            if self.s.many:  # a negative start borrows from M: `notice` looks at the high words
                high = b.add(high, b.ashr(low, v.const(IV, 31)))
            for h in range(2):
                even = [4 * q + 2 * h for q in range(4)]
                lanes = [x for at in even for x in (at, 16 + at, at + 1, 17 + at)]
                out[r, c, h] = v.bits(v.shuffle(low, high, lanes), self.vector)
        return out

    def multiply(self, sums: dict[tuple[int, int, int], Any], row: dict[str, Any], part: int, k: int) -> None:
        v, width = self.v, 64 * self.parts
        base = PANEL * self.size * k + part * self.s.chunks * width
        bs = {
            (c, h): v.load(row["b"], self.vector, 64, base + width * c + 64 * h)
            for c in range(self.s.chunks)
            for h in range(self.parts)
        }
        for r in range(ROWS):
            a = v.splat(v.load(row["a"], self.element, self.size, self.size * (ROWS * k + r)), self.vector.count)
            for (c, h), x in bs.items():
                sums[r, c, h] = v.fma512(a, x, sums[r, c, h], ROUND_DOWN)

    def emit(self) -> None:
        v, b = self.v, self.b
        self.warm_up()
        with cgutils.for_range(b, self.steps) as loop:
            self.body(loop.index)
        if not self.s.deferred:
            return
        last = b.sub(self.steps, v.int(1))
        row = self.row(last)
        for r, c in self.tiles:
            self.finish(row, self.saved(last, self.s.passes - 1), self.s.passes - 1, r, c)


_NAMES = tuple("a ea sa a0 b eb sb b0 g groups tile sum blocks floor least scale reference scratch".split())  # noqa: SIM905


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_block(
    typing, wide, block, fraction, out, far, checked, zero, add, each,
    a, ea, sa, a0, b, eb, sb, b0, g, groups, tile, total, blocks, floor, least, scale, reference, scratch,
):  # fmt: skip
    """Sum blocks g .. g + groups - 1 for up to 64 rows and 64 columns; the first nine arguments are literals."""
    fixed = (wide, block, fraction, out, far, checked, zero, add, each)
    if not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    values = [x.literal_value for x in fixed]
    name = {code: text for text, code in OUTS.items()}[values[3]]
    shape = Shape(bool(values[0]), values[1], values[2], name, *(bool(x) for x in values[4:]))
    rest = (a, ea, sa, a0, b, eb, sb, b0, g, groups, tile, total, blocks, floor, least, scale, reference, scratch)
    rest = tuple(types.int64 if isinstance(t, types.Integer) else t for t in rest)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        named = dict(zip(_NAMES, args[9:], strict=True))
        for key, t in zip(_NAMES, rest, strict=True):
            if isinstance(t, types.Array):
                named[key] = v.pointer(t, named[key])
        _locate(v, shape, named)
        Emitter(v, shape, named).emit()
        return context.get_dummy_value()

    return types.void(*fixed, *rest), codegen


def _locate(v: VectorBuilder, shape: Shape, args: dict[str, Any]) -> None:
    """Move the operand pointers to block g of the panels that start at element a0 and b0."""
    b, size = v.b, 8 if shape.wide else 4
    rows = b.mul(b.mul(args["g"], args["blocks"]), v.int(ROWS))
    at = b.add(args["a0"], b.mul(rows, v.int(shape.block)))
    args["a"], args["ea"] = v.at(args["a"], b.mul(at, v.int(size))), v.at(args["ea"], b.mul(at, v.int(4)))
    args["sa"] = v.at(args["sa"], b.mul(b.add(b.udiv(args["a0"], v.int(shape.block)), rows), v.int(4)))
    at = b.add(args["b0"], b.mul(args["g"], v.int(PANEL * shape.block)))
    args["b"] = v.at(args["b"], b.mul(at, v.int(size)))
    args["eb"] = v.at(args["eb"], b.mul(at, v.int(shape.exponent_bytes)))
    args["sb"] = v.at(args["sb"], b.mul(b.udiv(at, v.int(shape.block)), v.int(4)))
