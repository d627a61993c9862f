"""Operands of a warpgroup out of shared memory or registers, into the order in which a fused micro-kernel reads them.

The roles are turned: the columns of B are the rows of the micro-kernel (four to a tile, so no legal N needs padding),
and the 64 rows of A are its panel.  Within sixteen rows the panel has its own order, `LANE`, in which accumulators can
be moved four at a time (`tile`).

Every layout moves 128 bytes a step: eight 16-byte units in, one permutation, and pieces out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I32, I64, VectorBuilder, vector
from nbtc.compiler.jit import jit
from nbtc.compiler.machine_code.emitted import Named, call_emitted
from nbtc.ops.wgmma.general import THREADS, WarpgroupGeometry
from nbtc.ops.wgmma.parts import part

UNIT, UNITS = 16, 8  # bytes of a unit, units a step
ROWS, PANEL = 4, 64  # rows of a tile, columns of a panel of the micro-kernel
DEPTH_BYTES = 32  # bytes of K in every wgmma form
K_MAJOR, MN_MAJOR, REGISTERS = 0, 1, 2  # where an operand comes from
LANE = [4 * (m % 4) + 2 * (m // 4 % 2) + m // 8 for m in range(16)]  # place of a row of A among its sixteen
ROW = [LANE.index(n) for n in range(16)]


@dataclass(frozen=True)
class Step:
    """One permutation of 128 bytes: which units come in, which element goes to each place, where the pieces go.

    units: indices relative to the loop's first.  places: (unit of the eight, element) of each element out.  pieces:
    byte offsets of equal parts of the result.
    """

    units: list[int]
    places: list[tuple[int, int]]
    pieces: list[int]


@dataclass(frozen=True)
class GatherLoop:
    """A loop over steps: how far its units and its results move each time."""

    unit_step: int
    byte_step: int
    steps: list[Step]


def rows_plan(bits: int, source: int) -> GatherLoop:
    """Columns of B to [tile][k][4]."""
    per_unit = 128 // bits
    if source == K_MAJOR:  # four columns, two units each
        places = [(2 * r + k // per_unit, k % per_unit) for k in range(2 * per_unit) for r in range(ROWS)]
        return GatherLoop(UNITS, 128, [Step(list(range(UNITS)), places, [0])])
    steps = []
    for half in (0, 1):  # eight columns are two tiles; eight values of k at once
        places = [(k, ROWS * tile + r) for tile in (0, 1) for k in range(8) for r in range(ROWS)]
        steps.append(Step([8 * half + u for u in range(UNITS)], places, [64 * half, 128 + 64 * half]))
    return GatherLoop(2 * UNITS, 256, steps)


def columns_plan(bits: int, source: int) -> GatherLoop:
    """Rows of A to [k][64], sixteen a turn of the loop: a warp's."""
    per_unit, line = 128 // bits, PANEL * bits // 8
    steps = []
    if source == K_MAJOR:  # eight rows, one unit each
        for part in (0, 8):
            for j in (0, 1):
                units = [2 * ROW[part + n] + j for n in range(8)]
                places = [(n, e) for e in range(per_unit) for n in range(8)]
                steps.append(
                    Step(units, places, [(j * per_unit + e) * line + part * bits // 8 for e in range(per_unit)])
                )
    elif source == MN_MAJOR:  # two groups of eight rows at four values of k
        for k in range(0, 2 * per_unit, 4):
            units = [2 * per_unit * h + k + n for n in range(4) for h in (0, 1)]
            places = [(2 * n + ROW[x] // 8, ROW[x] % 8) for n in range(4) for x in range(16)]
            steps.append(Step(units, places, [(k + n) * line for n in range(4)]))
    else:  # a unit is a thread's four registers, the units of a step those of the eight threads of one column group
        per_word = 32 // bits
        for t in range(4):
            places = [
                (ROW[x] % 8, per_word * (2 * high + ROW[x] // 8) + p)
                for high in (0, 1)
                for p in range(per_word)
                for x in range(16)
            ]
            pieces = [(per_word * t + p + 4 * per_word * high) * line for high in (0, 1) for p in range(per_word)]
            steps.append(Step([4 * g + t for g in range(8)], places, pieces))
    return GatherLoop(4 * UNITS, 2 * bits, steps)


def _emit(v: VectorBuilder, plan: GatherLoop, bits: int, count: Any, unit: Any, destination: Any) -> None:
    """The loop of a plan; unit(i) is the address of unit i (an i64), destination the first byte of the result."""
    b, per_unit, width = v.b, 128 // bits, 512 // bits
    with cgutils.for_range(b, count) as loop:
        first, to = (
            b.mul(loop.index, v.int(plan.unit_step)),
            v.at(destination, b.mul(loop.index, v.int(plan.byte_step))),
        )
        for step in plan.steps:
            parts = [v.load(unit(b.add(first, v.int(u))), vector(I64, 2)) for u in step.units]
            both = v.joined(parts[: len(parts) // 2]), v.joined(parts[len(parts) // 2 :])
            low, high = (v.bits(x, vector(ir.IntType(bits), width)) for x in both)
            lanes = [u * per_unit + e for u, e in step.places]
            halves = [v.shuffle(low, high, lanes[h : h + width]) for h in (0, width)]
            size = 2 * width // len(step.pieces)
            for n, offset in enumerate(step.pieces):
                for q in range(0, size, width):
                    x, at = halves[(n * size + q) // width], n * size % width
                    part = x if size >= width else v.shuffle(x, x, list(range(at, at + size)))
                    v.store(part, to, 1, offset + q * bits // 8)


class Gathering(NamedTuple):
    """Arguments of a gathering: `turns` of its plan's loop.

    Units lie in memory at base plus the addresses units[first ...], those of registers one after the other at base.
    """

    memory: Any
    base: int
    units: Any
    first: int
    turns: int
    raw: Any


@cache
def gathering(bits: int, source: int, columns: bool) -> int:
    """The address of what gathers elements of 8, 16 or 32 bits of A (to [k][64]) or of B (to [tile][k][4])."""
    plan = (columns_plan if columns else rows_plan)(bits, source)

    def write(v: VectorBuilder, given: Named) -> None:
        b, start = v.b, v.at(given["memory"], given["base"])

        def unit(i: Any) -> Any:
            if source == REGISTERS:
                return v.at(start, b.mul(i, v.int(UNIT)))
            at = v.at(given["units"], b.mul(b.add(given["first"], i), v.int(4)))
            return v.at(start, b.sext(v.load(at, I32, 4), I64))

        _emit(v, plan, bits, given["turns"], unit, given["raw"])

    return part(__file__, Gathering, write, bits, source, columns)


@jit
def buffer(size):
    """Uninitialised memory on a 64-byte boundary."""
    raw = np.empty(size + 64, np.uint8)
    first = -np.int64(raw.ctypes.data) & np.int64(63)
    return raw[first : first + size]


class Gatherers(NamedTuple):
    """Addresses of what gathers A and B of a form."""

    a: int
    b: int


@lru_cache(maxsize=256)
def gatherers(geometry: WarpgroupGeometry, bits: int) -> Gatherers:
    """Those of a task, for elements of so many bits or of such pieces of them."""
    a_source = REGISTERS if geometry.a_registers else (MN_MAJOR if geometry.a_mn else K_MAJOR)
    b_source = MN_MAJOR if geometry.b_mn else K_MAJOR
    return Gatherers(gathering(bits, a_source, True), gathering(bits, b_source, False))


@jit(inline=True)
def gather(which, g, geometry, sources, raw_a, raw_b):
    """The elements of a warpgroup: 64 rows of A to [k][64], n columns of B to [tile][k][4]."""
    smem, images, a_units, a_which, a_words, a_from, b_units, b_which = sources
    base, n = images[g] * geometry.smem_bytes, geometry.n
    if geometry.a_registers:
        call_emitted(which.a, Gathering(a_words, UNIT * THREADS * a_from[g], a_units, 0, 4, raw_a))
    else:
        call_emitted(which.a, Gathering(smem, base, a_units, 2 * PANEL * a_which[g], 4, raw_a))
    turns = n >> 3 if geometry.b_mn else n >> 2
    call_emitted(which.b, Gathering(smem, base, b_units, 2 * n * b_which[g], turns, raw_b))
