"""Elements of lanes that lie side by side in memory: whether they do, and whole vectors of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder, suffix, vector
from nbtc.compiler.cpu.lowering import lowering

LANES = 32
# Spaces of which each thread has its own, or whose addresses are not the host's: lanes never form a row in them.
OWN_SPACES = frozenset({"local", "const", "param", "param::entry", "param::func"})


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


class LaneRow(NamedTuple):
    """Addresses of lanes that are known to lie in a row: `first`, of lane 0, and so many bytes further in each next one
    while `holds` (i1; None: always).  vector: emits all of them, for code that hardly ever runs.
    """

    step: int
    first: Any
    holds: Any
    vector: Callable[[], Any]


def vector_of(addresses: Any) -> Any:
    """The address of each lane."""
    return addresses.vector() if isinstance(addresses, LaneRow) else addresses


def side_by_side(
    v: VectorBuilder, shape: LaneElements, addresses: Any, active: Any, fits: Callable[[Any, Any], Any]
) -> tuple[Any, Any]:
    """Whether lanes' elements lie side by side where they may be touched (i1), and where lane 0's do (i64).

    active: the lanes, an i32 mask, or None for all 32, as it has to be where each has several elements.
    fits(first, total): whether so many bytes from there on may be touched.
    """
    b = v.b
    total: Any = v.int(shape.bytes * LANES)
    if active is not None:
        above = v.call("llvm.ctlz.i32", I32, active, ir.Constant(I1, 0))
        total = b.sub(total, b.zext(b.mul(above, ir.Constant(I32, shape.bytes)), I64))
    if isinstance(addresses, LaneRow):
        together, first = addresses.holds, addresses.first
        if shape.space == "shared":
            first = b.and_(first, v.int(0xFFFFFFFF))
        inside = fits(first, total)
        return inside if together is None else b.and_(together, inside), first
    shared = shape.space == "shared"
    places = b.trunc(addresses, vector(I32, LANES)) if shared else addresses
    first = b.extract_element(places, ir.Constant(I32, 0))
    row = b.add(v.splat(first, LANES), ir.Constant(places.type, [shape.bytes * lane for lane in range(LANES)]))
    same = b.icmp_unsigned("==", places, row)
    if active is not None:
        same = b.or_(same, b.not_(b.bitcast(active, same.type)))
    together = b.icmp_unsigned("==", b.bitcast(same, I32), ir.Constant(I32, -1))
    first = b.zext(first, I64) if shared else first
    return b.and_(together, fits(first, total)), first


def load_whole(v: VectorBuilder, shape: LaneElements, pointer: Any) -> list[Any]:
    """The elements of lanes that lie side by side, several of each: all of them, then taken apart."""
    count = shape.elements
    if _turns_quads(v, shape):
        return _load_quads(v, shape, pointer)
    whole = v.load(pointer, vector(ir.IntType(shape.bits), LANES * count), 1)
    return [v.shuffle(whole, whole, [lane * count + i for lane in range(LANES)]) for i in range(count)]


def store_whole(v: VectorBuilder, shape: LaneElements, pointer: Any, values: list[Any]) -> None:
    """The inverse of `load_whole`."""
    if _turns_quads(v, shape):
        _store_quads(v, shape, pointer, values)
        return
    whole = v.joined(values)  # one shuffle more brings each lane's elements together
    order = [i * LANES + lane for lane in range(LANES) for i in range(shape.elements)]
    v.store(v.shuffle(whole, whole, order), pointer, 1)


# Four words of each lane where no instruction takes any words of two registers (AVX2): registers of which each half has
# a lane's four are turned by instructions that pair the words of two registers, half by half.  LLVM moves words across
# halves instead, two to three times as many operations: a sum of vectors took 1.4 times as long.
QUAD, EIGHT = 4, 8
LOW_PAIRS, HIGH_PAIRS = [0, 8, 1, 9, 4, 12, 5, 13], [2, 10, 3, 11, 6, 14, 7, 15]
LOW_HALVES, HIGH_HALVES = [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15]
LOWER, UPPER = [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15]  # of two registers


def _turns_quads(v: VectorBuilder, shape: LaneElements) -> bool:
    row = lowering(v).row
    return row.x86 and row.lanes == EIGHT and shape.bits == 32 and shape.elements % QUAD == 0


def _turned(v: VectorBuilder, x: list[Any]) -> list[Any]:
    """Four registers of eight words as rows of a square of four in each half: its columns."""
    low, high = [[v.shuffle(x[n], x[n + 1], order) for n in (0, 2)] for order in (LOW_PAIRS, HIGH_PAIRS)]
    return [v.shuffle(a, c, order) for a, c in (low, high) for order in (LOW_HALVES, HIGH_HALVES)]


def _load_quads(v: VectorBuilder, shape: LaneElements, pointer: Any) -> list[Any]:
    found: list[list[Any]] = [[] for _ in range(shape.elements)]
    quad = vector(I32, QUAD)
    for first in range(0, shape.elements, QUAD):
        for lane in range(0, LANES, EIGHT):
            rows = [v.load(pointer, quad, 1, (lane + n) * shape.bytes + 4 * first) for n in range(EIGHT)]
            halves = [v.joined([rows[n], rows[n + QUAD]]) for n in range(QUAD)]
            for i, column in enumerate(_turned(v, halves)):
                found[first + i].append(column)
    return [v.joined(parts) for parts in found]


def _store_quads(v: VectorBuilder, shape: LaneElements, pointer: Any, values: list[Any]) -> None:
    for lane in range(0, LANES, EIGHT):
        lanes = list(range(lane, lane + EIGHT))
        for first in range(0, shape.elements, QUAD):
            rows = _turned(v, [v.shuffle(x, x, lanes) for x in values[first : first + QUAD]])
            # each has a lane's quad in its lower half, and that of the fourth lane after in its upper one
            for n, order in ((0, LOWER), (QUAD, UPPER)):
                for k in (0, 2):
                    both = v.shuffle(rows[k], rows[k + 1], order)
                    at = (lane + n + k) * shape.bytes + 4 * first
                    if shape.elements == QUAD:
                        v.store(both, pointer, 1, at)
                        continue
                    for half in (0, 1):
                        words = list(range(QUAD * half, QUAD * half + QUAD))
                        v.store(v.shuffle(both, both, words), pointer, 1, at + half * shape.bytes)


def masked_load(v: VectorBuilder, pointer: Any, mask: Any) -> Any:
    """The vector at a pointer where a mask says so, else 0: nothing else is read."""
    row = pointer.type.pointee
    return v.call(f"llvm.masked.load.{suffix(row)}.p0", row, pointer, ir.Constant(I32, 1), mask, ir.Constant(row, None))


def masked_store(v: VectorBuilder, value: Any, pointer: Any, mask: Any) -> None:
    """Store a vector where a mask says so: nothing else is written."""
    v.call(f"llvm.masked.store.{suffix(value.type)}.p0", ir.VoidType(), value, pointer, ir.Constant(I32, 1), mask)


def store_among(v: VectorBuilder, value: Any, place: Any, mask: Any) -> None:
    """Store a vector's lanes of a mask (i32, not 0) among others."""
    b, at = v.b, v.b.bitcast(place, value.type.as_pointer())
    if lowering(v).row.masks:
        masked_store(v, value, at, b.bitcast(mask, vector(I1, LANES)))
        return
    with b.if_else(b.icmp_unsigned("==", mask, ir.Constant(I32, -1)), likely=True) as (every, some):
        with every:
            b.store(value, at, align=4)
        with some:
            masked_store(v, value, at, b.bitcast(mask, vector(I1, LANES)))
