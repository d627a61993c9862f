"""Rows of asynchronous stores and reductions to another block's shared memory, and of zeros in bulk.

(PTX ISA, "st.async", "red.async", "st.bulk".)  They are done when they are issued, and tell their mbarrier at once;
those to global memory (.mmio) have none.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach
from nbtc.executor.memory.atomics import Name, step
from nbtc.executor.memory.memory import st
from nbtc.executor.text.data import WIDTHS, Immediate, Operand
from nbtc.executor.transfer.mbarrier import update

L64 = vector(I64, WARP)
POINTER = I8.as_pointer()
WORD = 8  # bytes: what the address and the size of zeros are multiples of
SPACE = "shared::cluster"
DONE = "mbarrier::complete_tx::bytes"


def _tell(lanes: Lanes, barrier: Operand, size: int, done: Any) -> None:
    """Tell the mbarrier of each lane that `size` bytes have come, in the lanes that brought them (i32)."""
    found = reach.places(lanes, SPACE, barrier, 8, writes=True)
    none = lanes.v.const(L64, 0)
    update(lanes, found._replace(good=lanes.b.and_(found.good, done)), none, lanes.v.const(L64, -size), none)


def _each(lanes: Lanes, found: reach.Places, values: list[Any], do: Any, size: int, kind: int) -> None:
    """do(pointer, values) for every lane that has a place."""
    b, look = lanes.b, lanes.machine.instrument
    look.operates(lanes, -1)

    def lane(number: Any) -> None:
        at = b.extract_element(found.words, number)
        look.line(lanes, number, at, lanes.v.int(size), kind)
        do(at, [b.extract_element(x, number) for x in values])

    for_lanes(lanes.v, found.good, lane)


def _store(lanes: Lanes) -> None:
    address, value, barrier = lanes.operands
    kind, parts = lanes.op.modifiers[-1], lanes.elements(value)
    size = WIDTHS[kind] // 8
    found = reach.places(lanes, SPACE, address, size * len(parts), writes=True)
    values = [lanes.read(x, kind, lanes=True) for x in parts]

    def put(at: Any, words: list[Any]) -> None:
        for n, word in enumerate(words):
            p = lanes.b.inttoptr(lanes.b.add(at, ir.Constant(I64, n * size)), word.type.as_pointer())
            lanes.b.store(word, p)

    _each(lanes, found, values, put, size * len(parts), kinds.BULK_WRITE)
    _tell(lanes, barrier, size * len(parts), found.good)


def _reduce(lanes: Lanes) -> None:
    address, value, *barrier = lanes.operands
    kind, operation = lanes.op.modifiers[-1], lanes.op.modifiers[-2]
    size, space = WIDTHS[kind] // 8, SPACE if barrier else "global" if lanes.op.has("global") else "generic"
    found = reach.places(lanes, space, address, size, writes=True)
    name = Name(space=space, operation=operation, type=kind)

    def act(at: Any, given: list[Any]) -> None:
        v: VectorBuilder = lanes.v
        step(v, name, lanes.b.inttoptr(at, given[0].type.as_pointer()), given[0], given[0])

    seen = kinds.REDUCTION if barrier else kinds.ATOMIC
    _each(lanes, found, [lanes.read(value, kind, lanes=True)], act, size, seen)
    if barrier:
        _tell(lanes, barrier[0], size, found.good)


def _zeros(lanes: Lanes) -> None:
    """st.bulk: that many bytes of zeros in the block's shared memory."""
    address, size, value = lanes.operands
    if not isinstance(value, Immediate) or value.value:
        lanes.refuse("the value stored is 0")
    many = lanes.read(size, "u64", lanes=True)
    b, v, space = lanes.b, lanes.v, "shared" if lanes.op.has("shared::cta") else "generic"
    first = reach.address(lanes, address)
    last = b.sub(b.add(first, many), v.const(L64, WORD))
    some = lanes.mask(b.icmp_unsigned("!=", many, v.const(L64, 0)))
    begin, end = (reach.places_at(lanes, space, at, WORD, writes=True, among=some) for at in (first, last))

    def lane(number: Any) -> None:
        at, count = (b.extract_element(x, number) for x in (begin.words, many))
        lanes.machine.instrument.line(lanes, number, at, count, kinds.WRITE)
        to = b.inttoptr(at, POINTER)
        v.call("llvm.memset.p0.i64", ir.VoidType(), to, ir.Constant(I8, 0), count, ir.Constant(I1, 0))

    for_lanes(v, b.and_(begin.good, end.good), lane)


TYPES = "b32|b64|u32|u64|s32|s64|f32|f64"
MEMORY = ("async", "mmio", "release", "sys", "global?")
CLUSTER = ("async", "relaxed?", "cluster?", f"{SPACE}?", DONE)
REDUCTIONS = (("inc|dec", "u32"), ("min|max", "u32|s32"), ("add", "u32|s32|u64|s64"), ("and|or|xor", "b32"))
ACTIONS = (
    Action("st", slots("bulk", "weak?", "shared::cta?"), _zeros),
    Action("st", slots("async", "weak?", f"{SPACE}?", DONE, "v2|v4?", TYPES), _store),
    Action("st", slots(*MEMORY, f"b16|u16|s16|{TYPES}"), st),
    *(Action("red", slots(*CLUSTER, *which), _reduce) for which in REDUCTIONS),
    *(Action("red", slots(*MEMORY, *which), _reduce) for which in REDUCTIONS),
)
