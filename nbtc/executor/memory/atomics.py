"""Rows of atomic operations: atom and red of every space, operation and type.

(PTX ISA, "atom", "red".)  Lanes act one after the other, in ascending order, on memory that other threads of the host
may use at the same time: every step is atomic for them too, and stronger than any scope or ordering asked for.  What
the processor has no instruction for is a loop of compare and exchange.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit import access_kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import Op
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach
from nbtc.executor.memory.resolve import TAG
from nbtc.executor.scalar.float_select import extreme
from nbtc.executor.scalar.float_values import KINDS, PACKED, as_float, flush, is_nan
from nbtc.executor.scalar.half_precision import arithmetic, packed, single
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
FLOATS = ("f32", "f64")  # whose sums are not alike in global and shared memory
DIRECT = {"add": "add", "and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}


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
def _flushed(v: VectorBuilder, name: Name, x: Any) -> Any:
    """PTX ISA: addition of f32 in global memory flushes subnormals, in shared memory it keeps them."""
    return flush(v, KINDS["f32"], x) if name.type == "f32" and name.space == "global" else x


def _updated(v: VectorBuilder, name: Name, x: Any, y: Any) -> Any:
    """The new value of memory x: what the scalar instruction of the name gives, but for NaNs of f64."""
    op = Op(name.operation, (name.type,))
    if name.type in HALF_PRECISION:
        emit = arithmetic if name.operation == "add" else extreme
        return (packed if name.type in PACKED else single)(emit)(v, op, x, y)
    if name.operation != "add":
        return extreme(v, op, name.type, _flushed(v, name, x), _flushed(v, name, y))
    kind = KINDS[name.type]
    total = v.b.fadd(as_float(v, _flushed(v, name, x)), as_float(v, _flushed(v, name, y)))
    bits = _flushed(v, name, v.b.bitcast(total, x.type))
    nan: Any = ir.Constant(x.type, kind.nan)
    if name.type == "f64":
        nan = _nan_of_doubles(v, name, x, y, nan)
    return v.b.select(v.b.fcmp_unordered("uno", total, total), nan, bits)


def _nan_of_doubles(v: VectorBuilder, name: Name, x: Any, y: Any, neither: Any) -> Any:
    """Global memory takes a NaN as it is, the operand's before its own; shared memory's own goes first, quiet.

    (tests/executor/memory/test_float_atomics.py, an H200: the first is done by the memory, the other by an addition
    and a compare and swap.)
    """
    kind = KINDS["f64"]
    first, second = (y, x) if name.space == "global" else (x, y)
    found = v.b.select(is_nan(v, kind, second), second, neither)
    found = v.b.select(is_nan(v, kind, first), first, found)
    return found if name.space == "global" else v.b.or_(found, ir.Constant(x.type, kind.quiet))


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
        buffers = [b.alloca(x.type) for x in (addresses, *values)]
        for buffer, x in zip(buffers, (addresses, *values), strict=True):
            b.store(x, buffer)
        per_part = len(values) // parts

        def one(lane: Any) -> None:
            index = [b.zext(lane, I64)]
            at = b.load(b.gep(b.bitcast(buffers[0], I64.as_pointer()), index))
            for part in range(parts):
                slots = [b.gep(b.bitcast(r, t.as_pointer()), index) for r in buffers[1 + part * per_part :][:per_part]]
                p = b.inttoptr(b.add(at, ir.Constant(I64, part * _bytes(name.type))), t.as_pointer())
                x, y = b.load(slots[0]), b.load(slots[-1])
                b.store(step(v, name, p, x, y), slots[0])

        for_lanes(v, mask, one)
        found = [b.load(buffers[1 + part * per_part]) for part in range(parts)]
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
    seen = reach.AccessReport(access_kinds.ATOMIC, _order(name.order))
    places = reach.places(lanes, name.space, address, count * size, writes=True, seen=seen)
    values = [lanes.read(x, name.type, lanes=True) for n in range(count) for x in (p[n] for p in parts)]
    if name.operation == "add" and name.type in FLOATS and not name.space:
        old = _by_space(lanes, name, reach.address(lanes, address), places, values, count)
    else:
        old = _call(lanes, name, places, values, count)
    if target is not None:
        for register, found in zip(lanes.elements(target), old, strict=True):
            lanes.write(register, found)


def _call(lanes: Lanes, name: Name, places: reach.Places, values: list[Any], count: int) -> list[Any]:
    """The old values of lanes that have a place."""
    t = vector(ir.IntType(8 * _bytes(name.type)), WARP)
    kinds = (vector(I64, WARP), I32, *[t] * len(values))
    result = ir.LiteralStructType([t] * count)
    key = "_".join(("nbtc", lanes.op.opcode, name.operation, name.type, name.vector, name.space.replace("::", "_")))
    f = lanes.helper(key, result, kinds, _function(name, count))
    old = lanes.b.call(f, [places.words, places.good, *values])
    return [lanes.b.extract_value(old, n) for n in range(count)]


def _by_space(
    lanes: Lanes, name: Name, addresses: Any, places: reach.Places, values: list[Any], count: int
) -> list[Any]:
    """The old values where each lane's generic address says whether its sum is global or shared memory's."""
    b = lanes.b
    is_global = b.icmp_unsigned("<", addresses, lanes.v.const(addresses.type, 1 << TAG))
    mask = lanes.mask(is_global)
    found = [
        _call(lanes, name._replace(space=space), places._replace(good=b.and_(places.good, good)), values, count)
        for space, good in (("global", mask), ("shared", b.not_(mask)))
    ]
    return [b.select(is_global, x, y) for x, y in zip(*found, strict=True)]


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
