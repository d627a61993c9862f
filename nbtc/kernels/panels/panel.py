"""Fused sums of a panel, and of two tiles."""

from __future__ import annotations

from typing import Any, NamedTuple

from numba.core import cgutils

from nbtc.compiler.builder import I32, VectorBuilder
from nbtc.kernels.panels.alignment_and_rounding import AlignmentAndRounding, SumShape
from nbtc.kernels.panels.fused_sum import PANEL, ROWS
from nbtc.kernels.panels.panel_operands import Numbers, Packed, Span
from nbtc.kernels.panels.panel_schedules import NUMBERS, Interleaved, Mixed, Plain
from nbtc.kernels.panels.rounding import rounding_down

BLOCKS = 16  # register tiles in a row block: 64 rows
LEAST_BLOCKS = 2  # a tile's start values are made before the tile before is rounded: not the same one
SCRATCH = 16384  # bytes of scratch, 64-byte aligned, of every shape


def fetch_panel(v: VectorBuilder, shape: SumShape, args: dict[str, Any], group: Any, block: Any) -> None:
    """Each of a row block's tiles asks for its share of the next block of products of B.

    The first tile reads all of it within the time of its own sums; from the last-level cache that took as long again
    as a third of the block's sums.
    """
    b = v.b
    following = b.add(group, v.int(1))
    for name, size in (("b", 8 if shape.in_f64 else 4), ("eb", shape.exponent_bytes)):
        bytes_ = PANEL * shape.block * size
        first = v.at(args[name], b.mul(following, v.int(bytes_)), b.mul(block, v.int(bytes_ // BLOCKS)))
        for line in range(0, bytes_ // BLOCKS, 64):
            v.prefetch(first, line, level=2)


def emit_sums(v: VectorBuilder, shape: SumShape, args: dict[str, Any], interleaved: Interleaved = fetch_panel) -> None:
    """Call the micro-kernel of a shape with these pointers and numbers."""
    schedule = Mixed if shape.target.mixed else Plain
    name = f"sums_{interleaved.__name__}_{shape.key}"
    rounding_down(v, name, args, lambda v, args: schedule(v, shape, args, interleaved).emit(), shape.mode)


class SumArguments(NamedTuple):
    """Of the sums of a span's blocks of products, for up to 64 rows and 64 columns, into the tile."""

    a: Packed
    b: Packed
    span: Span
    tile: Any
    numbers: Numbers
    scratch: Any


def write_sums(v: VectorBuilder, shape: SumShape, x: dict[str, Any]) -> None:
    """The body of a function of `SumArguments`."""
    left, right, at, numbers = x["a"], x["b"], x["span"], x["numbers"]
    named = {"a": left["values"], "ea": left["exponents"], "sa": left["signs"]}
    named |= {"b": right["values"], "eb": right["exponents"], "sb": right["signs"]}
    _locate(v, shape, named, at)
    named |= {"groups": at["groups"], "tile": x["tile"], "blocks": at["tiles"]}
    emit_sums(v, shape, named | {name: numbers[name] for name in NUMBERS} | {"scratch": x["scratch"]})


class AddArguments(NamedTuple):
    """Of total += tile, 4 * blocks rows of 64 scaled accumulators, each by one IEEE addition.

    An Inf stays one to the end, where it is seen: nothing need watch for it here, as the sums of blocks do.
    """

    tile: Any
    total: Any
    blocks: int
    scale: int


def write_addition(v: VectorBuilder, shape: SumShape, x: dict[str, Any]) -> None:
    """The body of a function of `AddArguments`."""
    b, width = v.b, shape.target.bytes
    splats = dict.fromkeys(NUMBERS, v.splat(b.trunc(x["scale"], I32), shape.target.lanes))
    sums = AlignmentAndRounding(v, shape, splats)
    with cgutils.for_range(b, b.mul(x["blocks"], v.int(4 * ROWS * PANEL // width))) as loop:
        at = b.mul(loop.index, v.int(width))
        y = sums.added(*(v.load(v.at(p, at), sums.floats, width) for p in (x["total"], x["tile"])))
        v.store(y, v.at(x["total"], at), width)


def _locate(v: VectorBuilder, shape: SumShape, args: dict[str, Any], span: dict[str, Any]) -> None:
    """Move the operand pointers to the first block of a span."""
    b, size = v.b, 8 if shape.in_f64 else 4
    rows = b.mul(b.mul(span["group"], span["tiles"]), v.int(ROWS))
    at = b.mul(rows, v.int(shape.block))
    args["a"], args["ea"] = v.at(args["a"], b.mul(at, v.int(size))), v.at(args["ea"], b.mul(at, v.int(4)))
    args["sa"] = v.at(args["sa"], b.mul(rows, v.int(4)))
    at = b.add(span["first"], b.mul(span["group"], v.int(PANEL * shape.block)))
    args["b"] = v.at(args["b"], b.mul(at, v.int(size)))
    args["eb"] = v.at(args["eb"], b.mul(at, v.int(shape.exponent_bytes)))
    args["sb"] = v.at(args["sb"], b.mul(b.udiv(at, v.int(shape.block)), v.int(shape.sign_bytes)))
