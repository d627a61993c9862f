"""What the lanes of a warp tell each other: shuffles, matches, reductions, as vector code on <32 x T>.

(PTX ISA, "shfl.sync", "match.sync", "redux.sync".)  `active` is the i32 of the lanes that
execute; results in other lanes are not to be used.  A source outside of them gives 0, as on the H200.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.executor.emit.form import Op
from nbtc.executor.emit.values import number
from nbtc.executor.scalar.float_select import extreme

LANES, ALL = 32, (1 << 32) - 1
L32, L1 = vector(I32, LANES), vector(I1, LANES)


def lane_numbers(v: VectorBuilder) -> Any:
    """0 .. 31"""
    return ir.Constant(L32, list(range(LANES)))


def flags(v: VectorBuilder, mask: Any) -> Any:
    """The bits of an i32 as <32 x i1>."""
    return v.b.bitcast(mask, L1)


def mask_of(v: VectorBuilder, lanes: Any) -> Any:
    """<32 x i1> as the bits of an i32."""
    return v.b.bitcast(lanes, I32)


def gathered(v: VectorBuilder, x: Any, lane: Any) -> Any:
    """x[lane] in every lane; lane: <32 x i32>, of which five bits count.

    Words by the processor's permutation where it has one; the rest by way of memory.
    """
    element = x.type.element
    if element.width == 32:
        found = lowering(v).picked(x, lane)
        if found is not None:
            return found
    with v.b.goto_entry_block():
        buffer = v.b.alloca(x.type)
        buffer.align = 64
    v.b.store(x, buffer).align = 64
    lane = v.b.and_(lane, v.const(L32, LANES - 1))
    size = max(8, element.width) // 8
    base = v.splat(v.b.ptrtoint(buffer, I64), LANES)
    address = v.b.add(base, v.b.zext(v.b.mul(lane, v.const(L32, size)), vector(I64, LANES)))
    kind = vector(I8.as_pointer(), LANES)
    pointers = v.b.inttoptr(address, kind)
    name = f"llvm.masked.gather.v{LANES}i{element.width}.v{LANES}p0"
    everyone = ir.Constant(L1, [1] * LANES)
    return v.call(name, x.type, pointers, ir.Constant(I32, size), everyone, ir.Constant(x.type, None))


def shuffled(v: VectorBuilder, mode: str, operands: tuple[Any, Any, Any], active: Any) -> tuple[Any, Any]:
    """(values, whether the source is in range) of shfl.sync; all <32 x i32> but active."""
    x, b, c = operands
    ir_b, lane = v.b, lane_numbers(v)
    present = x if number(active) == ALL else ir_b.select(flags(v, active), x, v.const(L32, 0))
    fixed = number(b), number(c)
    if fixed[0] is not None and fixed[1] is not None:
        places, known = _sources(mode, fixed[0], fixed[1])
        return v.shuffle(present, present, places), ir.Constant(L1, known)
    five = v.const(L32, 31)
    source, clamp = ir_b.and_(b, five), ir_b.and_(c, five)
    segment = ir_b.and_(ir_b.lshr(c, v.const(L32, 8)), five)
    outside = ir_b.xor(segment, five)
    least = ir_b.and_(lane, segment)
    most = ir_b.or_(least, ir_b.and_(clamp, outside))
    j = {
        "up": lambda: ir_b.sub(lane, source),
        "down": lambda: ir_b.add(lane, source),
        "bfly": lambda: ir_b.xor(lane, source),
        "idx": lambda: ir_b.or_(least, ir_b.and_(source, outside)),
    }[mode]()
    valid = ir_b.icmp_signed(">=" if mode == "up" else "<=", j, most)
    j = ir_b.select(valid, j, lane)
    return gathered(v, present, j), valid


def _sources(mode: str, b: int, c: int) -> tuple[list[int], list[int]]:
    """(lane that each lane reads, whether that is in range) of a shuffle by constants."""
    source, clamp, segment = b & 31, c & 31, c >> 8 & 31
    places, known = [], []
    for lane in range(LANES):
        least = lane & segment
        most = least | clamp & ~segment
        picks = {"up": lane - source, "down": lane + source, "bfly": lane ^ source, "idx": least | source & ~segment}
        valid = picks[mode] >= most if mode == "up" else picks[mode] <= most
        places.append(picks[mode] if valid else lane)
        known.append(int(valid))
    return places, known


def matched(v: VectorBuilder, mode: str, x: Any, active: Any) -> tuple[Any, Any]:
    """match.sync of <32 x iN>: (lanes with the same bits, whether all are alike: i1, for `all` only)."""
    b = v.b
    if mode == "all":
        leader = v.call("llvm.cttz.i32", I32, active, ir.Constant(I1, 0))
        first = b.extract_element(x, leader)
        same = b.and_(mask_of(v, b.icmp_unsigned("==", x, v.splat(first, LANES))), active)
        alike = b.icmp_unsigned("==", same, active)
        return v.splat(b.select(alike, active, ir.Constant(I32, 0)), LANES), alike
    out = ir.Constant(L32, [0] * LANES)
    for lane in range(LANES):
        one = b.extract_element(x, ir.Constant(I32, lane))
        same = mask_of(v, b.icmp_unsigned("==", x, v.splat(one, LANES)))
        out = b.insert_element(out, b.and_(same, active), ir.Constant(I32, lane))
    return out, None


def reduced_floats(v: VectorBuilder, op: Op, x: Any, active: Any) -> Any:
    """redux.sync.min, .max of f32 bits: one i32.  Lanes that take no part repeat the first that does."""
    first = v.b.extract_element(x, v.call("llvm.cttz.i32", I32, active, ir.Constant(I1, 0)))
    found = v.b.select(flags(v, active), x, v.splat(first, LANES))
    for step in (16, 8, 4, 2, 1):
        found = extreme(v, op, "f32", found, v.shuffle(found, found, [lane ^ step for lane in range(LANES)]))
    return v.b.extract_element(found, ir.Constant(I32, 0))


_IDENTITY = {"add": 0, "or": 0, "xor": 0, "and": -1, "umin": -1, "umax": 0, "smin": (1 << 31) - 1, "smax": -(1 << 31)}


def reduced(v: VectorBuilder, operation: str, x: Any, active: Any) -> Any:
    """redux.sync: one i32; operation: add, and, or, xor, umin, umax, smin, smax."""
    x = v.b.select(flags(v, active), x, v.const(L32, _IDENTITY[operation]))
    return v.call(f"llvm.vector.reduce.{operation}.v{LANES}i32", I32, x)
