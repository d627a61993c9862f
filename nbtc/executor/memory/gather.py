"""Loads and stores of lanes whose elements lie anywhere: functions of the module, one a space and shape.

If one look at all lanes shows that each is inside of the range where this place of the program was last, and aligned,
whole vectors do it where lanes lie 16 bytes apart (each thread has 16 bytes of a row, element by element), else the
processor's gather.  Else lane by lane, each address looked up and checked (`resolve`).

Where lanes lie side by side code looks for that itself (`memory`), but where it hardly ever runs: there a function does
that too, for a look that is spelled out at each place is most of what LLVM has to compile of a small program.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder, suffix, vector
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit.fields import load_field
from nbtc.executor.memory.resolve import ADDRESSES, Access, at_once, fits, fits_shared, resolved
from nbtc.executor.memory.side_by_side import (
    LANES,
    LaneElements,
    load_whole,
    masked_load,
    masked_store,
    side_by_side,
    store_whole,
)

POINTER = I8.as_pointer()
VOID = ir.VoidType()
POINTERS = ir.VectorType(POINTER, LANES)
WORDS = (8, 16, 32, 64)  # bits of elements that processors gather
VECTOR = 64  # bytes
LINE_BYTES = 128  # that a warp's store takes at a time
APART = 16  # bytes from lane to lane that have a way of their own: what compilers give each thread of a row


def scalar_load(v: VectorBuilder, pointer: Any, i: int, shape: LaneElements) -> Any:
    """Element i of one lane."""
    size, element = shape.bits // 8, ir.IntType(shape.bits)
    if shape.strong:
        place = v.b.bitcast(v.at(pointer, i * size), element.as_pointer())
        return v.b.load_atomic(place, "acquire", size)
    return v.load(pointer, element, 1, i * size)


def scalar_store(v: VectorBuilder, pointer: Any, value: Any, i: int, shape: LaneElements) -> None:
    """Element i of one lane."""
    size = shape.bits // 8
    if shape.strong:
        place = v.b.bitcast(v.at(pointer, i * size), value.type.as_pointer())
        v.b.store_atomic(value, place, "release", size)
    else:
        v.store(value, pointer, 1, i * size)


def gather(lanes: Any, shape: LaneElements, addresses: Any, site: int, near: bool = False) -> list[Any]:
    """The elements at each active lane's address, a vector each; 0 in the other lanes.

    near: the function is to look for lanes side by side, which code that runs often has done.
    """
    helpers, near = lanes.machine.helpers, near and _may_be_near(shape)
    kinds = (ADDRESSES, I32, I32, POINTER, POINTER)
    body = _load_row if near else _gather
    name = f"{'load' if near else 'gather'}_{shape.name}"
    helper = lanes.helper(name, shape.result, kinds, lambda v, args: body(v, helpers, shape, args))
    found = lanes.b.call(helper, [addresses, lanes.active, ir.Constant(I32, site), lanes.block, lanes.warp])
    if shape.elements == 1:
        return [found]
    return [lanes.b.extract_value(found, i) for i in range(shape.elements)]


def scatter(lanes: Any, shape: LaneElements, addresses: Any, values: list[Any], site: int, near: bool = False) -> None:
    """Store each active lane's elements; of lanes with one address the lowest wins of the last group (`_group`)."""
    helpers, near = lanes.machine.helpers, near and _may_be_near(shape)
    kinds = (ADDRESSES, I32, I32, POINTER, POINTER, *[shape.row] * shape.elements)
    body = _store_row if near else _scatter
    name = f"{'store' if near else 'scatter'}_{shape.name}"
    helper = lanes.helper(name, VOID, kinds, lambda v, args: body(v, helpers, shape, args))
    lanes.b.call(helper, [addresses, lanes.active, ir.Constant(I32, site), lanes.block, lanes.warp, *values])


def _may_be_near(shape: LaneElements) -> bool:
    """Whether lanes may lie side by side: one plain element of each."""
    return shape.elements == 1 and shape.space != "local" and not shape.strong


def _load_row(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    """Lanes side by side, or as `gather` has it."""
    _row(v, helpers, shape, args, _Gather(v, shape))
    kinds = tuple(a.type for a in args)
    anywhere = helpers.function(f"gather_{shape.name}", shape.result, kinds, lambda v, a: _gather(v, helpers, shape, a))
    v.b.ret(v.b.call(anywhere, args, tail=True))


def _store_row(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    """Lanes side by side, or as `scatter` has it."""
    _row(v, helpers, shape, args[:5], _Scatter(v, shape, list(args[5:])))
    kinds = tuple(a.type for a in args)
    anywhere = helpers.function(f"scatter_{shape.name}", VOID, kinds, lambda v, a: _scatter(v, helpers, shape, a))
    v.b.call(anywhere, args, tail=True)
    v.b.ret_void()


def _row(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any, ways: _Gather | _Scatter) -> None:
    """Do it and return if the active lanes lie side by side, or if there is one alone, as after a reduction."""
    if not lowering(v).row.masks:  # where masks are free, a look at all addresses takes as long
        _one(v, helpers, shape, args, ways)
    together, pointer = _side_by_side(v, helpers.checked, shape, args, args[1])
    with v.b.if_then(together, likely=True):
        ways.row(pointer, v.b.bitcast(args[1], vector(I1, LANES)))


def _one(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any, ways: _Gather | _Scatter) -> None:
    """Do it and return if one lane alone is active, and its element may be touched."""
    b = v.b
    addresses, mask, _site, _block, _warp = args
    rest = b.and_(mask, b.sub(mask, ir.Constant(I32, 1)))
    with b.if_then(b.icmp_unsigned("==", rest, ir.Constant(I32, 0))):
        lane = v.call("llvm.cttz.i32", I32, mask, ir.Constant(I1, 1))
        inside, pointer = _reached(v, helpers.checked, shape, b.extract_element(addresses, lane), args)
        with b.if_then(inside, likely=True):
            ways.one(pointer, lane)


def _gather(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    _at_once(v, helpers, shape, args, _Gather(v, shape))
    kinds = tuple(a.type for a in args)
    slow = helpers.function(
        f"gather_each_{shape.name}", shape.result, kinds, lambda v, a: _load_each(v, helpers, shape, a)
    )
    v.b.ret(v.b.call(slow, args, tail=True))


def _load_each(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    """Lane by lane; a function of its own, so that the fast way needs no stack."""
    b = v.b
    buffer = b.alloca(ir.ArrayType(shape.row, shape.elements))
    b.store(ir.Constant(buffer.type.pointee, None), buffer)
    start = b.bitcast(buffer, POINTER)
    step = shape.bits // 8 * LANES

    def lane(number: Any, pointer: Any) -> None:
        at = b.mul(b.zext(number, I64), v.int(shape.bits // 8))
        for i in range(shape.elements):
            v.store(scalar_load(v, pointer, i, shape), v.at(start, at), 1, i * step)

    _each(v, helpers, Access(shape.space, shape.bytes, False), args, lane)
    rows = [b.load(b.gep(buffer, [ir.Constant(I32, 0), ir.Constant(I32, i)])) for i in range(shape.elements)]
    if shape.elements == 1:
        b.ret(rows[0])
        return
    b.ret(_struct(v, shape, rows))


def _scatter(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    _at_once(v, helpers, shape, args[:5], _Scatter(v, shape, list(args[5:])))
    kinds = tuple(a.type for a in args)
    slow = helpers.function(f"scatter_each_{shape.name}", VOID, kinds, lambda v, a: _store_each(v, helpers, shape, a))
    v.b.call(slow, args, tail=True)
    v.b.ret_void()


def _store_each(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any) -> None:
    """Lane by lane."""
    b, values = v.b, args[5:]
    buffer = b.alloca(ir.ArrayType(shape.row, shape.elements))
    for i, value in enumerate(values):
        b.store(value, b.gep(buffer, [ir.Constant(I32, 0), ir.Constant(I32, i)]))
    start = b.bitcast(buffer, POINTER)
    step = shape.bits // 8 * LANES

    def lane(number: Any, pointer: Any) -> None:
        at = b.mul(b.zext(number, I64), v.int(shape.bits // 8))
        for i in range(shape.elements):
            value = v.load(v.at(start, at), ir.IntType(shape.bits), 1, i * step)
            scalar_store(v, pointer, value, i, shape)

    _each(v, helpers, Access(shape.space, shape.bytes, True), args[:5], lane)
    b.ret_void()


def _group(size: int) -> int:
    """Lanes that a GPU stores at once: as many as 128 bytes are, all of those with up to 4.

    Groups follow each other, and in one the lowest lane wins: 2,048 patterns of addresses in global and shared memory,
    elements of 1 to 16 bytes, on an H200 (golden/collisions.npz has some).
    """
    return min(LANES, max(1, LINE_BYTES // size))


def _last_wins(v: VectorBuilder, x: Any, size: int) -> Any:
    """A vector of lanes in the order in which the last of those with one address wins."""
    return v.shuffle(x, x, [lane ^ (_group(size) - 1) for lane in range(LANES)])


def _each(v: VectorBuilder, helpers: Any, access: Access, args: Any, do: Any) -> None:
    """do(lane, pointer) for every lane that may go to its address."""
    b = v.b
    addresses, mask, site, block, warp = args
    out = b.alloca(ADDRESSES)
    good = resolved(v, helpers, access, (addresses, mask), (site, block, warp), out)
    words = b.bitcast(out, I64.as_pointer())
    turned = b.bitcast(_last_wins(v, b.bitcast(good, vector(I1, LANES)), access.bytes), I32)

    def one(place: Any) -> None:
        number = b.xor(place, ir.Constant(I32, _group(access.bytes) - 1))
        do(number, b.inttoptr(b.load(b.gep(words, [number])), POINTER))

    for_lanes(v, turned, one)


def _at_once(v: VectorBuilder, helpers: Any, shape: LaneElements, args: Any, ways: _Gather | _Scatter) -> None:
    """Do it and return if all lanes may go to their addresses."""
    if shape.strong or shape.space == "local":
        return
    b, checked = v.b, helpers.checked
    addresses, mask, _site, _block, _warp = args
    if shape.elements > 1:
        together, pointer = _side_by_side(v, checked, shape, args)
        with b.if_then(b.and_(together, b.icmp_unsigned("==", mask, ir.Constant(I32, -1)))):
            ways.together(pointer)
        return
    if shape.bits not in WORDS:
        return
    if shape.space != "shared":
        first = b.extract_element(addresses, ir.Constant(I32, 0))
        row = b.add(v.splat(first, LANES), ir.Constant(ADDRESSES, [APART * lane for lane in range(LANES)]))
        same = b.bitcast(b.icmp_unsigned("==", addresses, row), I32)
        total = APART * (LANES - 1) + shape.bytes
        apart = b.and_(
            b.icmp_unsigned("==", b.and_(same, mask), ir.Constant(I32, -1)), fits(v, checked, first, v.int(total), args)
        )
        apart = b.and_(apart, b.icmp_unsigned("==", b.and_(first, v.int(shape.bytes - 1)), v.int(0)))
        with b.if_then(apart):
            ways.apart(b.inttoptr(first, POINTER))
    places, all_fine = at_once(v, checked, shape.space, v.int(shape.bytes), args)
    with b.if_then(all_fine, likely=True):
        ways.anywhere(b.inttoptr(places, POINTERS), b.bitcast(mask, vector(I1, LANES)))


def _side_by_side(
    v: VectorBuilder, checked: bool, shape: LaneElements, args: Any, active: Any = None
) -> tuple[Any, Any]:
    """The same in a function: (whether, pointer to lane 0's)."""
    together, first = side_by_side(
        v, shape, args[0], active, lambda first, total: _inside(v, checked, shape, first, total, args)
    )
    return together, _host_pointer(v, shape, first, args)


def _reached(v: VectorBuilder, checked: bool, shape: LaneElements, address: Any, args: Any) -> tuple[Any, Any]:
    """Whether an element at one address (i64) may be touched, and its pointer."""
    if shape.space == "shared":
        address = v.b.and_(address, v.int(0xFFFFFFFF))
    inside = _inside(v, checked, shape, address, v.int(shape.bytes), args)
    return inside, _host_pointer(v, shape, address, args)


def _inside(v: VectorBuilder, checked: bool, shape: LaneElements, first: Any, total: Any, args: Any) -> Any:
    """Whether so many bytes from an address on may be touched, and are aligned."""
    b = v.b
    if shape.space == "shared":
        found = fits_shared(v, checked, first, total, args[3])
    else:
        found = fits(v, checked, first, total, args)
    if not checked:
        return found
    return b.and_(found, b.icmp_unsigned("==", b.and_(first, v.int(shape.bytes - 1)), v.int(0)))


def _host_pointer(v: VectorBuilder, shape: LaneElements, address: Any, args: Any) -> Any:
    if shape.space == "shared":
        address = v.b.add(load_field(v, "block", args[3], "shared"), address)
    return v.b.inttoptr(address, POINTER)


def _struct(v: VectorBuilder, shape: LaneElements, rows: list[Any]) -> Any:
    """What a function of several elements returns."""
    whole: Any = ir.Constant(shape.result, ir.Undefined)
    for i, row in enumerate(rows):
        whole = v.b.insert_value(whole, row, i)
    return whole


class _Ways:
    """An access of all lanes at once, which ends its function.

    together: several elements of each, side by side.  row: one element of each, of lanes that a mask has.  one: of one
    lane alone.
    apart: lanes lie `APART` bytes from each other; no byte but theirs is touched.  anywhere: at these pointers.
    """

    def __init__(self, v: VectorBuilder, shape: LaneElements) -> None:
        self.v, self.b, self.shape = v, v.b, shape
        self.per_vector, self.step = (
            VECTOR // APART,
            APART * 8 // shape.bits,
        )  # lanes of a vector, elements between them
        self.whole = vector(ir.IntType(shape.bits), self.per_vector * self.step)
        chosen = [int(n % self.step == 0) for n in range(self.whole.count)]
        self.chosen = ir.Constant(vector(I1, self.whole.count), chosen)

    def at(self, pointer: Any, n: int) -> Any:
        """Where vector n of whole ones lies."""
        return self.b.bitcast(self.v.at(pointer, VECTOR * n), self.whole.as_pointer())


class _Gather(_Ways):
    """Returns the elements."""

    def together(self, pointer: Any) -> None:
        self.b.ret(_struct(self.v, self.shape, load_whole(self.v, self.shape, pointer)))

    def row(self, pointer: Any, active: Any) -> None:
        v, row = self.v, self.shape.row
        self.b.ret(masked_load(v, self.b.bitcast(pointer, row.as_pointer()), active))

    def one(self, pointer: Any, lane: Any) -> None:
        nothing = ir.Constant(self.shape.row, None)
        self.b.ret(self.b.insert_element(nothing, scalar_load(self.v, pointer, 0, self.shape), lane))

    def apart(self, pointer: Any) -> None:
        v = self.v
        parts = [masked_load(v, self.at(pointer, n), self.chosen) for n in range(LANES // self.per_vector)]
        count, step = self.whole.count, self.step
        while len(parts) > 1:
            order = list(range(0, 2 * count, step))
            parts = [v.shuffle(x, y, order) for x, y in zip(parts[::2], parts[1::2], strict=True)]
            count, step = parts[0].type.count, 1
        self.b.ret(parts[0])

    def anywhere(self, pointers: Any, active: Any) -> None:
        v, row = self.v, self.shape.row
        name = f"llvm.masked.gather.{suffix(row)}.v{LANES}p0"
        self.b.ret(v.call(name, row, pointers, ir.Constant(I32, 1), active, ir.Constant(row, None)))


class _Scatter(_Ways):
    """Stores values and returns."""

    def __init__(self, v: VectorBuilder, shape: LaneElements, values: list[Any]) -> None:
        super().__init__(v, shape)
        self.values = values

    def together(self, pointer: Any) -> None:
        store_whole(self.v, self.shape, pointer, self.values)
        self.b.ret_void()

    def row(self, pointer: Any, active: Any) -> None:
        masked_store(self.v, self.values[0], self.b.bitcast(pointer, self.shape.row.as_pointer()), active)
        self.b.ret_void()

    def one(self, pointer: Any, lane: Any) -> None:
        scalar_store(self.v, pointer, self.b.extract_element(self.values[0], lane), 0, self.shape)
        self.b.ret_void()

    def apart(self, pointer: Any) -> None:
        v = self.v
        for n in range(LANES // self.per_vector):
            order = [self.per_vector * n + k // self.step for k in range(self.whole.count)]
            x = v.shuffle(self.values[0], self.values[0], order)
            masked_store(v, x, self.at(pointer, n), self.chosen)
        self.b.ret_void()

    def anywhere(self, pointers: Any, active: Any) -> None:
        name = f"llvm.masked.scatter.{suffix(self.shape.row)}.v{LANES}p0"  # later elements win
        x, at, mask = (_last_wins(self.v, y, self.shape.bytes) for y in (self.values[0], pointers, active))
        self.v.call(name, VOID, x, at, ir.Constant(I32, 1), mask)
        self.b.ret_void()
