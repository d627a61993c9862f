"""Rows of atomic operations: atom and red of every space, operation and type.

(PTX ISA, "atom", "red".)  Lanes act one after the other, in ascending order, on memory that other threads of the host
may use at the same time: every step is atomic for them too, and stronger than any scope or ordering asked for.  What
the processor has no instruction for is a loop of compare and exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import F32, F64, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.compiler.lowering import lowering
from nbtc.executor.emit import access_kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach
from nbtc.executor.text.data import Instruction

SPACES = ("global", "shared", "shared::cta", "shared::cluster")
ORDERS = ("relaxed", "acquire", "release", "acq_rel")
SCOPES = ("cta", "cluster", "gpu", "sys")
INTEGERS = {"u32", "s32", "u64", "s64"}
BITS = {"b32", "b64"}
HALF_PRECISION = {"f16", "f16x2", "bf16", "bf16x2"}
TYPES = {  # of each operation
    "add": INTEGERS - {"s64"} | {"f32", "f64"} | HALF_PRECISION,
    "min": INTEGERS | HALF_PRECISION | {"f32"},
    "max": INTEGERS | HALF_PRECISION | {"f32"},
    "inc": {"u32"},
    "dec": {"u32"},
    "and": BITS,
    "or": BITS,
    "xor": BITS,
    "exch": BITS | {"b128"},
    "cas": BITS | {"b16", "b128"},
}
BYTES = {"b16": 2, "f16": 2, "bf16": 2, "b128": 16} | dict.fromkeys(("u64", "s64", "b64", "f64"), 8)
DIRECT = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}
NAN32, NAN64 = 0x7FFFFFFF, 0x7FFFFFFFFFFFFFFF  # what arithmetic of the GPU answers


class Name(NamedTuple):
    """The parts of an atomic's name, in whatever order they were written."""

    space: str = ""
    order: str = ""
    scope: str = ""
    operation: str = ""
    type: str = ""
    vector: str = ""
    noftz: str = ""
    hint: str = ""


_PARTS = (
    ("space", SPACES),
    ("order", ORDERS),
    ("scope", SCOPES),
    ("operation", tuple(TYPES)),
    ("vector", ("v2", "v4", "v8")),
    ("noftz", ("noftz",)),
    ("hint", ("L2::cache_hint",)),
    ("type", tuple(sorted(set().union(*TYPES.values())))),
)


def split(modifiers: tuple[str, ...]) -> Name | None:
    """The parts of a name, each at most once, or None where it is no atomic of the ISA."""
    found: dict[str, str] = {}
    for modifier in modifiers:
        part = next((name for name, words in _PARTS if modifier in words), None)
        if part is None or part in found:
            return None
        found[part] = modifier
    name = Name(**found)
    if name.type not in TYPES.get(name.operation, ()):
        return None
    if name.vector and (name.type not in HALF_PRECISION | {"f32"} or name.operation not in ("add", "min", "max")):
        return None
    if name.type in HALF_PRECISION | {"f32"} and name.operation != "add" and not name.vector:
        return None
    if name.hint and name.operation == "cas":
        return None
    return name


def _bytes(kind: str) -> int:
    return BYTES.get(kind, 4)


# --- the step of one lane -------------------------------------------------------------------------------------------
def _single(v: VectorBuilder, operation: str, x: Any, y: Any) -> Any:
    """f32 x op y on floats; min and max prefer a number to a NaN."""
    return v.b.fadd(x, y) if operation == "add" else v.over({"min": "minnum", "max": "maxnum"}[operation], x, y)


def _zeros(v: VectorBuilder, x: Any, y: Any) -> Any:
    """Where both of two vectors are zero, of which `minnum` and `maxnum` answer the one that the host prefers.

    (PTX ISA, "min", "max": +0.0 > -0.0.  For atomics the ISA does not say; tests/golden/make_edges.py asks a GPU.)
    """
    none = v.const(x.type, 0.0)
    return v.b.and_(v.b.fcmp_ordered("==", x, none), v.b.fcmp_ordered("==", y, none))


def _half_precision(v: VectorBuilder, operation: str, x: Any, y: Any, bf16: bool) -> Any:
    """Bits of one or two 16-bit floats: by way of f32, which has digits enough for one rounding after it."""
    b, count = v.b, x.type.width // 16
    t, wide = vector(I16, count), vector(F32, count)

    def widened(bits: Any) -> Any:
        halves = v.bits(bits, t)
        if not bf16:
            return lowering(v).from_f16(halves)
        return v.bits(b.shl(b.zext(halves, vector(I32, count)), v.const(vector(I32, count), 16)), wide)

    a, c = widened(x), widened(y)
    total = _single(v, operation, a, c)
    nan = b.fcmp_unordered("uno", total, total)
    if bf16:
        bits = v.bits(total, vector(I32, count))
        odd = b.and_(b.lshr(bits, v.const(bits.type, 16)), v.const(bits.type, 1))
        rounded = b.lshr(b.add(b.add(bits, odd), v.const(bits.type, 0x7FFF)), v.const(bits.type, 16))
        halves = b.trunc(rounded, t)
    else:
        halves = lowering(v).nearest_f16(total)
    if operation != "add":
        sign = b.or_ if operation == "min" else b.and_  # +0 > -0: negative if either is, or if both are
        halves = b.select(_zeros(v, a, c), sign(v.bits(x, t), v.bits(y, t)), halves)
    return v.bits(b.select(nan, v.const(t, 0x7FFF), halves), x.type)


def _flushed(v: VectorBuilder, x: Any) -> Any:
    """f32 bits with subnormals as zeros of their sign."""
    tiny = v.b.icmp_unsigned("==", v.b.and_(x, ir.Constant(I32, 0x7F800000)), ir.Constant(I32, 0))
    return v.b.select(tiny, v.b.and_(x, ir.Constant(I32, 0x80000000)), x)


def _float(v: VectorBuilder, operation: str, x: Any, y: Any, flush: bool) -> Any:
    """Bits of f32 or f64 x op y, canonical where they are NaN."""
    kind, nan = (F32, NAN32) if x.type == I32 else (F64, NAN64)
    if flush:
        x, y = _flushed(v, x), _flushed(v, y)
    total = _single(v, operation, v.bits(x, kind), v.bits(y, kind))
    bits = v.bits(total, x.type)
    if flush:
        bits = _flushed(v, bits)
    return v.b.select(v.b.fcmp_unordered("uno", total, total), ir.Constant(x.type, nan), bits)


def _updated(v: VectorBuilder, name: Name, x: Any, y: Any) -> Any:
    """The new value of memory x."""
    if name.type in HALF_PRECISION:
        return _half_precision(v, name.operation, x, y, name.type.startswith("b"))
    # PTX ISA: addition of f32 in global memory flushes subnormals, in shared memory it keeps them
    return _float(v, name.operation, x, y, name.type == "f32" and name.space == "global")


def _exchange_loop(v: VectorBuilder, p: Any, t: ir.Type, new: Callable[[Any], Any]) -> Any:
    """The old value of memory that becomes new(old), by compare and exchange."""
    b = v.b
    first = b.load_atomic(p, "seq_cst", t.width // 8, typ=t)
    start, body, done = b.block, b.append_basic_block("exchange"), b.append_basic_block("exchanged")
    b.branch(body)
    b.position_at_end(body)
    old = b.phi(t)
    old.add_incoming(first, start)
    pair = b.cmpxchg(p, old, new(old), "seq_cst", "seq_cst")
    seen = b.extract_value(pair, 0)
    old.add_incoming(seen, b.block)
    b.cbranch(b.extract_value(pair, 1), done, body)
    b.position_at_end(done)
    return seen


def step(v: VectorBuilder, name: Name, p: Any, x: Any, y: Any) -> Any:
    """One lane's operation on memory p (typed pointer); y: what a compare and swap puts there.  The old value."""
    t, b = x.type, v.b
    if name.operation == "cas":
        return b.extract_value(b.cmpxchg(p, x, y, "seq_cst", "seq_cst"), 0)
    if name.operation in ("min", "max") and name.type in INTEGERS:
        return b.atomic_rmw(("u" if name.type[0] == "u" else "") + name.operation, p, x, "seq_cst")
    if name.operation in DIRECT and name.type[0] in "usb" and name.type not in HALF_PRECISION:
        return b.atomic_rmw(DIRECT[name.operation], p, x, "seq_cst")
    return _exchange_loop(v, p, t, lambda old: _updated(v, name, old, x))


def _function(name: Name, parts: int) -> Callable[[Any, Any], None]:
    """The body of a helper: addresses, active lanes, one or two vectors a part; the old values, vectors in a struct."""
    t = ir.IntType(8 * _bytes(name.type))

    def build(v: VectorBuilder, arguments: Any) -> None:
        b = v.b
        addresses, mask, *values = arguments
        rooms = [b.alloca(x.type) for x in (addresses, *values)]
        for room, x in zip(rooms, (addresses, *values), strict=True):
            b.store(x, room)
        per_part = len(values) // parts

        def one(lane: Any) -> None:
            index = [b.zext(lane, I64)]
            at = b.load(b.gep(b.bitcast(rooms[0], I64.as_pointer()), index))
            for part in range(parts):
                slots = [b.gep(b.bitcast(r, t.as_pointer()), index) for r in rooms[1 + part * per_part :][:per_part]]
                p = b.inttoptr(b.add(at, ir.Constant(I64, part * _bytes(name.type))), t.as_pointer())
                x, y = b.load(slots[0]), b.load(slots[-1])
                b.store(step(v, name, p, x, y), slots[0])

        for_lanes(v, mask, one)
        found = [b.load(rooms[1 + part * per_part]) for part in range(parts)]
        b.ret(b.insert_value(ir.Constant(ir.LiteralStructType([found[0].type] * parts), ir.Undefined), found[0], 0)
              if parts == 1 else _struct(v, found))  # fmt: skip

    return build


def _struct(v: VectorBuilder, values: list[Any]) -> Any:
    out: Any = ir.Constant(ir.LiteralStructType([x.type for x in values]), ir.Undefined)
    for n, x in enumerate(values):
        out = v.b.insert_value(out, x, n)
    return out


def _act(lanes: Lanes) -> None:
    act(lanes, split(lanes.op.modifiers))


def act(lanes: Lanes, name: Name | None) -> None:
    """The operation of a name in each active lane, one after the other."""
    if name is None:
        lanes.refuse("no such atomic operation")
        return
    rest = list(lanes.operands)
    target = rest.pop(0) if lanes.op.opcode == "atom" else None
    address, *sources = rest[: 3 if name.operation == "cas" else 2]
    parts = [lanes.elements(s) for s in sources]
    count, size = len(parts[0]), _bytes(name.type)
    if count != int(name.vector[1:] or 1 if name.vector else 1):
        lanes.refuse(f"{count} values where the name says {name.vector or 'one'}")
    seen = reach.Seen(access_kinds.ATOMIC, _order(name.order))
    places = reach.places(lanes, name.space, address, count * size, writes=True, seen=seen)
    values = [lanes.read(x, f"b{8 * size}", lanes=True) for n in range(count) for x in (p[n] for p in parts)]
    t = vector(ir.IntType(8 * size), WARP)
    kinds = (vector(I64, WARP), I32, *[t] * len(values))
    result = ir.LiteralStructType([t] * count)
    key = "_".join(("nbtc", lanes.op.opcode, name.operation, name.type, name.vector, name.space.replace("::", "_")))
    f = lanes.helper(key, result, kinds, _function(name, count))
    old = lanes.b.call(f, [places.words, places.good, *values])
    if target is not None:
        for n, register in enumerate(lanes.elements(target)):
            lanes.write(register, lanes.b.extract_value(old, n))


def _order(order: str) -> int:
    acquires, releases = order in ("acquire", "acq_rel"), order in ("release", "acq_rel")
    return access_kinds.ACQUIRES * acquires | access_kinds.RELEASES * releases


def _accepts(modifiers: tuple[str, ...]) -> bool:
    return split(modifiers) is not None


def _accepts_red(modifiers: tuple[str, ...]) -> bool:
    name = split(modifiers)
    return name is not None and name.operation not in ("exch", "cas") and name.order not in ("acquire", "acq_rel")


def _always(instruction: Instruction) -> bool:
    return True


ACTIONS = (
    Action("atom", (), _act, 1, varying=_always, remote=_always, accepts=_accepts),
    Action("red", (), _act, accepts=_accepts_red),
)
