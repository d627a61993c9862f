"""Elements of lanes that lie side by side in memory: whether they do, and whole vectors of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder, suffix, vector

LANES = 32


class LaneElements(NamedTuple):
    """What an access moves for each lane: `elements` of `bits`; `strong` ones one by one, ordered."""

    space: str
    bits: int
    elements: int
    strong: bool

    @property
    def bytes(self) -> int:
        """Of all elements of a lane."""
        return self.bits // 8 * self.elements

    @property
    def name(self) -> str:
        """For the helpers' names."""
        return f"{self.space}_{self.bits}x{self.elements}{'s' if self.strong else ''}"

    @property
    def row(self) -> ir.Type:
        """One element of every lane."""
        return vector(ir.IntType(self.bits), LANES)

    @property
    def result(self) -> ir.Type:
        """All elements of every lane."""
        return self.row if self.elements == 1 else ir.LiteralStructType([self.row] * self.elements)


def side_by_side(
    v: VectorBuilder, shape: LaneElements, addresses: Any, active: Any, fits: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Whether lanes' elements lie side by side where they may be touched (i1), and where lane 0's do (i64).

    active: the lanes, an i32 mask, or None for all 32, as it has to be where each has several elements.
    fits(first, total): whether so many bytes from there on may be touched.
    """
    b = v.b
    shared = shape.space == "shared"
    places = b.trunc(addresses, vector(I32, LANES)) if shared else addresses
    first = b.extract_element(places, ir.Constant(I32, 0))
    row = b.add(v.splat(first, LANES), ir.Constant(places.type, [shape.bytes * lane for lane in range(LANES)]))
    same = b.icmp_unsigned("==", places, row)
    total: Any = v.int(shape.bytes * LANES)
    if active is not None:
        same = b.or_(same, b.not_(b.bitcast(active, same.type)))
        above = v.call("llvm.ctlz.i32", I32, active, ir.Constant(I1, 0))
        total = b.sub(total, b.zext(b.mul(above, ir.Constant(I32, shape.bytes)), I64))
    together = b.icmp_unsigned("==", b.bitcast(same, I32), ir.Constant(I32, -1))
    first = b.zext(first, I64) if shared else first
    return b.and_(together, fits(first, total)), first


def load_whole(v: VectorBuilder, shape: LaneElements, pointer: Any) -> list[Any]:
    """The elements of lanes that lie side by side, several of each: all of them, then taken apart."""
    count = shape.elements
    whole = v.load(pointer, vector(ir.IntType(shape.bits), LANES * count), 1)
    return [v.shuffle(whole, whole, [lane * count + i for lane in range(LANES)]) for i in range(count)]


def store_whole(v: VectorBuilder, shape: LaneElements, pointer: Any, values: list[Any]) -> None:
    """The inverse of `load_whole`."""
    whole = v.joined(values)  # one shuffle more brings each lane's elements together
    order = [i * LANES + lane for lane in range(LANES) for i in range(shape.elements)]
    v.store(v.shuffle(whole, whole, order), pointer, 1)


def masked_load(v: VectorBuilder, pointer: Any, mask: Any) -> Any:
    """The vector at a pointer where a mask says so, else 0: nothing else is read."""
    row = pointer.type.pointee
    return v.call(f"llvm.masked.load.{suffix(row)}.p0", row, pointer, ir.Constant(I32, 1), mask, ir.Constant(row, None))


def masked_store(v: VectorBuilder, value: Any, pointer: Any, mask: Any) -> None:
    """Store a vector where a mask says so: nothing else is written."""
    v.call(f"llvm.masked.store.{suffix(value.type)}.p0", ir.VoidType(), value, pointer, ir.Constant(I32, 1), mask)
