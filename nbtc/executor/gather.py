"""Loads and stores of lanes whose elements lie anywhere: functions of the module, one a space and shape.

If one look at all lanes shows that each is inside of the range where this place of the program was last, and aligned,
the processor's gather does it.  Else lane by lane, each address looked up and checked (`resolve`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, suffix, vector
from nbtc.executor.resolve import ADDRESSES, Access, at_once, for_lanes, resolver

LANES = 32
POINTER = I8.as_pointer()
VOID = ir.VoidType()
POINTERS = ir.VectorType(POINTER, LANES)
WORDS = (8, 16, 32, 64)  # bits of elements that processors gather


class Shape(NamedTuple):
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


def scalar_load(v: VectorBuilder, pointer: Any, i: int, shape: Shape) -> Any:
    """Element i of one lane."""
    size, element = shape.bits // 8, ir.IntType(shape.bits)
    if shape.strong:
        place = v.b.bitcast(v.at(pointer, i * size), element.as_pointer())
        return v.b.load_atomic(place, "acquire", size)
    return v.load(pointer, element, 1, i * size)


def scalar_store(v: VectorBuilder, pointer: Any, value: Any, i: int, shape: Shape) -> None:
    """Element i of one lane."""
    size = shape.bits // 8
    if shape.strong:
        place = v.b.bitcast(v.at(pointer, i * size), value.type.as_pointer())
        v.b.store_atomic(value, place, "release", size)
    else:
        v.store(value, pointer, 1, i * size)


def gather(lanes: Any, shape: Shape, addresses: Any, site: int) -> list[Any]:
    """The elements at each active lane's address, a vector each; 0 in the other lanes."""
    machine = lanes.machine
    kinds = (ADDRESSES, I32, I32, POINTER, POINTER)
    helper = lanes.helper(f"gather_{shape.name}", shape.result, kinds, lambda v, args: _gather(v, machine, shape, args))
    found = lanes.b.call(helper, [addresses, lanes.active, ir.Constant(I32, site), lanes.block, lanes.warp])
    if shape.elements == 1:
        return [found]
    return [lanes.b.extract_value(found, i) for i in range(shape.elements)]


def scatter(lanes: Any, shape: Shape, addresses: Any, values: list[Any], site: int) -> None:
    """Store each active lane's elements; of lanes with one address the highest wins."""
    machine = lanes.machine
    kinds = (ADDRESSES, I32, I32, POINTER, POINTER, *[shape.row] * shape.elements)
    helper = lanes.helper(f"scatter_{shape.name}", VOID, kinds, lambda v, args: _scatter(v, machine, shape, args))
    lanes.b.call(helper, [addresses, lanes.active, ir.Constant(I32, site), lanes.block, lanes.warp, *values])


def _gather(v: VectorBuilder, machine: Any, shape: Shape, args: Any) -> None:
    b = v.b
    _addresses, _mask, _site, _block, _warp = args
    _at_once(v, machine, shape, args, lambda places, active: b.ret(_masked_gather(v, shape, places, active)))
    room = b.alloca(ir.ArrayType(shape.row, shape.elements))
    b.store(ir.Constant(room.type.pointee, None), room)
    cells = b.bitcast(room, POINTER)
    step = shape.bits // 8 * LANES

    def lane(number: Any, pointer: Any) -> None:
        at = b.mul(b.zext(number, I64), v.int(shape.bits // 8))
        for i in range(shape.elements):
            v.store(scalar_load(v, pointer, i, shape), v.at(cells, at), 1, i * step)

    _each(v, machine, Access(shape.space, shape.bytes, False), args, lane)
    rows = [b.load(b.gep(room, [ir.Constant(I32, 0), ir.Constant(I32, i)])) for i in range(shape.elements)]
    if shape.elements == 1:
        b.ret(rows[0])
        return
    whole: Any = ir.Constant(shape.result, ir.Undefined)
    for i, row in enumerate(rows):
        whole = b.insert_value(whole, row, i)
    b.ret(whole)


def _scatter(v: VectorBuilder, machine: Any, shape: Shape, args: Any) -> None:
    b = v.b
    _addresses, _mask, _site, _block, _warp, *values = args

    def at_once(places: Any, active: Any) -> None:
        name = f"llvm.masked.scatter.{suffix(shape.row)}.v{LANES}p0"
        v.call(name, VOID, values[0], places, ir.Constant(I32, 1), active)
        b.ret_void()

    _at_once(v, machine, shape, args[:5], at_once)
    room = b.alloca(ir.ArrayType(shape.row, shape.elements))
    for i, value in enumerate(values):
        b.store(value, b.gep(room, [ir.Constant(I32, 0), ir.Constant(I32, i)]))
    cells = b.bitcast(room, POINTER)
    step = shape.bits // 8 * LANES

    def lane(number: Any, pointer: Any) -> None:
        at = b.mul(b.zext(number, I64), v.int(shape.bits // 8))
        for i in range(shape.elements):
            value = v.load(v.at(cells, at), ir.IntType(shape.bits), 1, i * step)
            scalar_store(v, pointer, value, i, shape)

    _each(v, machine, Access(shape.space, shape.bytes, True), args[:5], lane)
    b.ret_void()


def _each(v: VectorBuilder, machine: Any, access: Access, args: Any, do: Any) -> None:
    """do(lane, pointer) for every lane that may go to its address."""
    b = v.b
    addresses, mask, site, block, warp = args
    out = b.alloca(ADDRESSES)
    good = b.call(resolver(machine, access), [addresses, mask, ir.Constant(I32, access.bytes), site, block, warp, out])
    words = b.bitcast(out, I64.as_pointer())
    for_lanes(v, good, lambda number: do(number, b.inttoptr(b.load(b.gep(words, [number])), POINTER)))


def _at_once(v: VectorBuilder, machine: Any, shape: Shape, args: Any, do: Any) -> None:
    """do(pointers, active lanes), which returns, if all lanes may go to their addresses."""
    if shape.strong or shape.elements > 1 or shape.space == "local" or shape.bits not in WORDS:
        return
    b = v.b
    _addresses, mask, _site, _block, _warp = args
    places, all_fine = at_once(v, machine.options.checked, shape.space, v.int(shape.bytes), args)
    with b.if_then(all_fine, likely=True):
        do(b.inttoptr(places, POINTERS), b.bitcast(mask, vector(I1, LANES)))


def _masked_gather(v: VectorBuilder, shape: Shape, places: Any, active: Any) -> Any:
    name = f"llvm.masked.gather.{suffix(shape.row)}.v{LANES}p0"
    return v.call(name, shape.row, places, ir.Constant(I32, 1), active, ir.Constant(shape.row, None))
