"""Fused sums of a panel, as compiled code calls them."""

from __future__ import annotations

from typing import Any

from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc.compiler.builder import I32, VectorBuilder
from nbtc.compiler.processors import host_processor
from nbtc.kernels.alignment_and_rounding import AlignmentAndRounding, Shape
from nbtc.kernels.fused_sum import PANEL, ROWS
from nbtc.kernels.panel_schedules import FLAG_WORD, Beside, Mixed, Plain
from nbtc.kernels.rounding import rounding_down
from nbtc.numerics.models import OUTS

BLOCKS = 16  # register tiles in a row block: 64 rows
LEAST_BLOCKS = 2  # a tile's start values are made before the tile before is rounded: not the same one
SCRATCH = 16384  # bytes of scratch, 64-byte aligned, of every shape
_NAMES = tuple("a ea sa a0 b eb sb b0 g groups tile blocks floor least scale reference scratch".split())  # noqa: SIM905


def fetch_panel(v: VectorBuilder, shape: Shape, args: dict[str, Any], group: Any, block: Any) -> None:
    """Each of a row block's tiles asks for its share of the next block of products of B.

    The first tile reads all of it within the time of its own sums; from the last-level cache that took as long again
    as a third of the block's sums.
    """
    b = v.b
    following = b.add(group, v.int(1))
    for name, size in (("b", 8 if shape.wide else 4), ("eb", shape.exponent_bytes)):
        bytes_ = PANEL * shape.block * size
        first = v.at(args[name], b.mul(following, v.int(bytes_)), b.mul(block, v.int(bytes_ // BLOCKS)))
        for line in range(0, bytes_ // BLOCKS, 64):
            v.prefetch(first, line, level=2)


def emit_sums(v: VectorBuilder, shape: Shape, args: dict[str, Any], beside: Beside = fetch_panel) -> None:
    """Call the micro-kernel of a shape with these pointers and numbers."""
    schedule = Mixed if shape.target.mixed else Plain
    name = f"nbtc_sums_{beside.__name__}_{shape.key}"
    rounding_down(v, name, args, lambda v, args: schedule(v, shape, args, beside).emit())


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def sum_block(
    typing, wide, block, fraction, out, full_range, checked, zero, each_watched,
    a, ea, sa, a0, b, eb, sb, b0, g, groups, tile, blocks, floor, least, scale, reference, scratch,
):  # fmt: skip
    """Sum blocks g .. g + groups - 1 for up to 64 rows and 64 columns; the first eight arguments are literals."""
    fixed = (wide, block, fraction, out, full_range, checked, zero, each_watched)
    target = host_processor()
    if target is None or not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    values = [x.literal_value for x in fixed]
    name = {code: text for text, code in OUTS.items()}[values[3]]
    shape = Shape(target, bool(values[0]), values[1], values[2], name, *(bool(x) for x in values[4:]))
    rest = (a, ea, sa, a0, b, eb, sb, b0, g, groups, tile, blocks, floor, least, scale, reference, scratch)
    rest = tuple(types.int64 if isinstance(t, types.Integer) else t for t in rest)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        named = dict(zip(_NAMES, args[len(fixed) :], strict=True))
        for key, t in zip(_NAMES, rest, strict=True):
            if isinstance(t, types.Array):
                named[key] = v.pointer(t, named[key])
        _locate(v, shape, named)
        for key in ("a0", "b0", "g"):
            del named[key]
        emit_sums(v, shape, named)
        return context.get_dummy_value()

    return types.void(*fixed, *rest), codegen


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def add_tile(typing, out, full_range, each_watched, tile, total, blocks, scale, scratch):
    """total += tile, 4 * blocks rows of 64 scaled accumulators, each by one IEEE addition; three literals first."""
    fixed, target = (out, full_range, each_watched), host_processor()
    if target is None or not all(isinstance(x, types.IntegerLiteral) for x in fixed):
        return None
    name = {code: text for text, code in OUTS.items()}[out.literal_value]
    full, each = bool(full_range.literal_value), bool(each_watched.literal_value)
    shape = Shape(target, False, 0, 0, name, full, False, each_watched=each)

    def codegen(context, builder, sig, args):
        v, b = VectorBuilder(context, builder), builder
        x, c, scratch = (v.pointer(sig.args[i], args[i]) for i in (3, 4, 7))
        splats = dict.fromkeys(("floor", "least", "scale", "reference"), v.splat(b.trunc(args[6], I32), target.lanes))
        sums = AlignmentAndRounding(v, shape, splats)
        with cgutils.for_range(b, b.mul(args[5], v.int(4 * ROWS * PANEL // target.bytes))) as loop:
            at = b.mul(loop.index, v.int(target.bytes))
            y = sums.added(*(v.load(v.at(p, at), sums.floats, target.bytes) for p in (c, x)))
            sums.watch(v.at(scratch, 4 * FLAG_WORD + 64), y)
            v.store(y, v.at(c, at), target.bytes)
        return context.get_dummy_value()

    return types.void(*fixed, tile, total, types.int64, types.int64, scratch), codegen


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
