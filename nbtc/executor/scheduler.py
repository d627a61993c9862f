"""The compiled loop of a worker: it takes blocks of the grid, runs their warps, and lets those that wait wait.

A kernel whose warps never wait runs them one after the other.  Else each warp is a coroutine, the worker resumes all
that are ready, round after round, and takes a further block when none of its warps gets on without other blocks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler import float_mode
from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder
from nbtc.executor.coroutine import ALIGN, HEADER, VOID, declare, resume
from nbtc.executor.errors import Kind
from nbtc.executor.resolve import place_of
from nbtc.executor.state import BLOCK, LAYOUTS, WARP

POINTER = I8.as_pointer()
ZERO = ir.Constant(I32, 0)


class _Worker:
    """Names for the fields of the structures while the loop is emitted."""

    def __init__(self, v: VectorBuilder, worker: Any) -> None:
        self.v, self.b, self.worker = v, v.b, worker
        self.launch = v.b.inttoptr(self.get("worker", worker, "launch"), POINTER)

    def at(self, structure: str, base: Any, name: str) -> Any:
        return self.v.at(base, LAYOUTS[structure].offset(name))

    def get(self, structure: str, base: Any, name: str) -> Any:
        return place_of(self.v, structure, base, name)

    def put(self, structure: str, base: Any, name: str, value: Any) -> None:
        self.v.store(value, self.at(structure, base, name), LAYOUTS[structure].fields[name].bits // 8)

    def block(self, slot: Any) -> Any:
        """A resident block's structure."""
        blocks = self.b.inttoptr(self.get("worker", self.worker, "blocks"), POINTER)
        return self.v.at(blocks, self.b.mul(slot, self.get("worker", self.worker, "block_stride")))

    def warp(self, block: Any, index: Any) -> Any:
        return self.v.at(block, BLOCK.size, self.b.mul(self.b.zext(index, I64), self.v.int(WARP.size)))

    def stopped(self) -> Any:
        """i1: the launch is to stop."""
        stop = self.b.bitcast(self.at("launch", self.launch, "stop"), I32.as_pointer())
        return self.b.icmp_unsigned("!=", self.b.load_atomic(stop, "monotonic", 4), ZERO)

    def take_block(self) -> Any:
        """The linear index of the next block; beyond the grid when there are no more."""
        counter = self.b.bitcast(self.at("launch", self.launch, "next_block"), I64.as_pointer())
        return self.b.atomic_rmw("add", counter, self.v.int(1), "monotonic")

    def place(self, block: Any, index: Any) -> None:
        """Give a block structure its place in the grid."""
        b = self.b
        self.put("block", block, "index", index)
        linear = b.trunc(index, I32)
        x, y = (self.get("launch", self.launch, f"grid_{a}") for a in "xy")
        row = b.udiv(linear, x)
        self.put("block", block, "x", b.urem(linear, x))
        self.put("block", block, "y", b.urem(row, y))
        self.put("block", block, "z", b.udiv(row, y))

    def loop(self, count: Any, body: Any) -> None:
        """body(i) for i32 i below count."""
        b = self.b
        before = b.block
        head, inside, behind = (b.append_basic_block(n) for n in ("loop", "loop.body", "loop.end"))
        b.branch(head)
        b.position_at_end(head)
        i = b.phi(count.type)
        i.add_incoming(ir.Constant(count.type, 0), before)
        b.cbranch(b.icmp_unsigned("<", i, count), inside, behind)
        b.position_at_end(inside)
        body(i)
        i.add_incoming(b.add(i, ir.Constant(count.type, 1)), b.block)
        b.branch(head)
        b.position_at_end(behind)


def emit(machine: Any, warp_function: Any) -> None:
    """The function `run(worker)`."""
    function = ir.Function(machine.module, ir.FunctionType(VOID, [POINTER]), "run")
    v = VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")))
    old = float_mode.enter(v)
    if machine.suspends:
        _rounds(v, _Worker(v, function.args[0]), warp_function)
    else:
        _straight(v, _Worker(v, function.args[0]), warp_function)
    float_mode.leave(v, old)
    v.b.ret_void()


def _straight(v: VectorBuilder, w: _Worker, warp_function: Any) -> None:
    """Blocks one after the other, and their warps."""
    b = v.b
    block = w.block(v.int(0))
    warps = w.get("launch", w.launch, "warps")
    blocks = w.get("launch", w.launch, "blocks")
    head, inside, behind = (b.append_basic_block(n) for n in ("next", "block", "end"))
    b.branch(head)
    b.position_at_end(head)
    index = w.take_block()
    b.cbranch(b.and_(b.icmp_unsigned("<", index, blocks), b.not_(w.stopped())), inside, behind)
    b.position_at_end(inside)
    w.place(block, index)
    w.loop(warps, lambda i: b.call(warp_function, [block, i]))
    b.branch(head)
    b.position_at_end(behind)


def _rounds(v: VectorBuilder, w: _Worker, warp_function: Any) -> None:
    """Round after round over the warps of all resident blocks."""
    b = v.b
    slots = w.get("worker", w.worker, "slots")
    blocks = w.get("launch", w.launch, "blocks")
    live, taken, hungry, moved = (b.alloca(I64) for _ in range(4))
    for slot in (live, taken):
        b.store(v.int(0), slot)
    b.store(v.int(1), hungry)  # the worker wants a block
    head, some, take, round_, check, stuck, end = (
        b.append_basic_block(n) for n in ("round.head", "some", "take", "round", "check", "stuck", "end")
    )
    b.branch(head)
    b.position_at_end(head)
    b.cbranch(w.stopped(), end, some)
    b.position_at_end(some)
    wants = b.and_(b.icmp_unsigned("!=", b.load(hungry), v.int(0)), b.icmp_unsigned("<", b.load(live), slots))
    b.cbranch(wants, take, round_)
    b.position_at_end(take)
    index = w.take_block()
    got, none = b.append_basic_block("got"), b.append_basic_block("none")
    b.cbranch(b.icmp_unsigned("<", index, blocks), got, none)
    b.position_at_end(none)
    b.store(v.int(0), hungry)
    b.store(v.int(1), taken)  # the grid is given out
    b.cbranch(b.icmp_unsigned("==", b.load(live), v.int(0)), end, round_)
    b.position_at_end(got)
    _admit(v, w, index, slots, warp_function)
    b.store(b.add(b.load(live), v.int(1)), live)
    cooperative = b.icmp_unsigned("!=", w.get("launch", w.launch, "cooperative"), ZERO)
    b.cbranch(cooperative, head, round_)
    b.position_at_end(round_)
    b.store(v.int(0), moved)
    b.store(v.int(0), hungry)
    w.loop(slots, lambda slot: _block_round(v, w, slot, (live, hungry, moved)))
    b.branch(check)
    b.position_at_end(check)
    given_out = b.icmp_unsigned("!=", b.load(taken), v.int(0))
    still = b.icmp_unsigned("==", b.load(moved), v.int(0))
    empty = b.icmp_unsigned("==", b.load(live), v.int(0))
    want = b.and_(b.or_(still, b.or_(empty, b.icmp_unsigned("!=", b.load(hungry), v.int(0)))), b.not_(given_out))
    b.store(b.zext(want, I64), hungry)
    finished = b.and_(empty, given_out)
    fixed = b.and_(still, b.or_(given_out, b.icmp_unsigned(">=", b.load(live), slots)))
    after = b.append_basic_block("after")
    b.cbranch(finished, end, after)
    b.position_at_end(after)
    b.cbranch(b.and_(fixed, b.not_(empty)), stuck, head)
    b.position_at_end(stuck)
    _deadlock(v, w, slots)
    b.branch(end)
    b.position_at_end(end)
    _free_frames(v, w)


def _admit(v: VectorBuilder, w: _Worker, index: Any, slots: Any, warp_function: Any) -> None:
    """Put a block into a free slot and start its warps."""
    b = v.b
    entry = b.block
    head, follow, found = (b.append_basic_block(n) for n in ("slot", "slot.next", "slot.found"))
    b.branch(head)
    b.position_at_end(head)
    slot = b.phi(I64)
    slot.add_incoming(v.int(0), entry)
    block = w.block(slot)
    b.cbranch(b.icmp_unsigned("==", w.get("block", block, "resident"), ZERO), found, follow)
    b.position_at_end(follow)
    slot.add_incoming(b.add(slot, v.int(1)), follow)
    b.branch(head)
    b.position_at_end(found)
    w.place(block, index)
    warps = w.get("launch", w.launch, "warps")
    w.put("block", block, "resident", ir.Constant(I32, 1))
    w.put("block", block, "live_warps", warps)
    w.put("block", block, "live_threads", w.get("launch", w.launch, "threads"))
    barriers = w.at("block", block, "barriers")
    size = LAYOUTS["block"].fields["barriers"].bits // 8
    v.call("llvm.memset.p0.i64", VOID, barriers, ir.Constant(I8, 0), v.int(size), ir.Constant(I1, 0))

    def start(i: Any) -> None:
        warp = w.warp(block, i)
        w.put("warp", warp, "ended", ZERO)
        w.put("warp", warp, "wait_address", v.int(0))
        w.put("warp", warp, "frame", b.ptrtoint(b.call(warp_function, [block, i]), I64))
        _note_end(v, w, block, warp)

    w.loop(warps, start)


def _note_end(v: VectorBuilder, w: _Worker, block: Any, warp: Any) -> None:
    """After a warp has run: give its frame back if it has ended."""
    b = v.b
    with b.if_then(b.icmp_unsigned("!=", w.get("warp", warp, "ended"), ZERO)):
        frame = b.inttoptr(w.get("warp", warp, "frame"), POINTER)
        v.store(w.get("worker", w.worker, "free_frames"), frame, 8, -HEADER)
        w.put("worker", w.worker, "free_frames", b.ptrtoint(frame, I64))
        w.put("warp", warp, "frame", v.int(0))
        w.put("block", block, "live_warps", b.sub(w.get("block", block, "live_warps"), ir.Constant(I32, 1)))


def _block_round(v: VectorBuilder, w: _Worker, slot: Any, marks: tuple[Any, Any, Any]) -> None:
    """Resume every warp of a resident block that is ready."""
    b = v.b
    live, _, moved = marks
    block = w.block(slot)
    with b.if_then(b.icmp_unsigned("!=", w.get("block", block, "resident"), ZERO)):
        w.loop(w.get("launch", w.launch, "warps"), lambda i: _warp_round(v, w, block, w.warp(block, i), marks))
        with b.if_then(b.icmp_unsigned("==", w.get("block", block, "live_warps"), ZERO)):
            w.put("block", block, "resident", ZERO)
            b.store(b.sub(b.load(live), v.int(1)), live)
            b.store(v.int(1), moved)


def _warp_round(v: VectorBuilder, w: _Worker, block: Any, warp: Any, marks: tuple[Any, Any, Any]) -> None:
    b = v.b
    _, hungry, moved = marks
    frame = w.get("warp", warp, "frame")
    with b.if_then(b.icmp_unsigned("!=", frame, v.int(0))):
        address = w.get("warp", warp, "wait_address")
        waits = b.icmp_unsigned("!=", address, v.int(0))
        own = b.ptrtoint(w.at("warp", warp, "ended"), I64)  # a word that can be read, for a warp that waits for nothing
        place = b.inttoptr(b.select(waits, address, own), I32.as_pointer())
        same = b.icmp_unsigned("==", b.load_atomic(place, "acquire", 4), w.get("warp", warp, "wait_value"))
        with b.if_then(b.not_(b.and_(waits, same))):
            w.put("warp", warp, "wait_address", v.int(0))
            resume(v, b.inttoptr(frame, POINTER))
            _note_end(v, w, block, warp)
            b.store(v.int(1), moved)
            polls = b.and_(
                b.icmp_unsigned("==", w.get("warp", warp, "wait_address"), v.int(0)),
                b.icmp_unsigned("==", w.get("warp", warp, "ended"), ZERO),
            )
            with b.if_then(polls):  # it waits for something that another block may have to do
                b.store(v.int(1), hungry)


def _deadlock(v: VectorBuilder, w: _Worker, slots: Any) -> None:
    """Every warp waits for another: the first of them is reported."""
    b = v.b
    machine_record = b.module.globals["record"]

    def block_of(slot: Any) -> None:
        block = w.block(slot)
        with b.if_then(b.icmp_unsigned("!=", w.get("block", block, "resident"), ZERO)):

            def warp_of(i: Any) -> None:
                warp = w.warp(block, i)
                with b.if_then(b.icmp_unsigned("!=", w.get("warp", warp, "frame"), v.int(0))):
                    site = w.get("warp", warp, "wait_site")
                    kind = ir.Constant(I32, Kind.DEADLOCK)
                    b.call(machine_record, [w.launch, block, warp, site, kind, ZERO, v.int(0)])

            w.loop(w.get("launch", w.launch, "warps"), warp_of)

    w.loop(slots, block_of)


# --- frames ---
def frame_memory(v: VectorBuilder, args: Any) -> None:
    """Memory of a coroutine: one that a finished warp left, or new."""
    b = v.b
    worker, size = args
    w = _Worker(v, worker)
    free = w.get("worker", worker, "free_frames")
    with b.if_then(b.icmp_unsigned("!=", free, v.int(0))):
        frame = b.inttoptr(free, POINTER)
        w.put("worker", worker, "free_frames", v.load(frame, I64, 8, -HEADER))
        b.ret(frame)
    whole = b.and_(b.add(size, v.int(HEADER + ALIGN - 1)), v.int(-ALIGN))
    memory = b.call(declare(b.module, "aligned_alloc", POINTER, (I64, I64)), [v.int(ALIGN), whole])
    v.store(w.get("worker", worker, "all_frames"), memory, 8, 8)
    w.put("worker", worker, "all_frames", b.ptrtoint(memory, I64))
    b.ret(v.at(memory, HEADER))


def _free_frames(v: VectorBuilder, w: _Worker) -> None:
    """Give all frames' memory back to the process."""
    b = v.b
    head, inside, behind = (b.append_basic_block(n) for n in ("free", "free.one", "free.end"))
    b.branch(head)
    b.position_at_end(head)
    memory = w.get("worker", w.worker, "all_frames")
    b.cbranch(b.icmp_unsigned("!=", memory, v.int(0)), inside, behind)
    b.position_at_end(inside)
    pointer = b.inttoptr(memory, POINTER)
    w.put("worker", w.worker, "all_frames", v.load(pointer, I64, 8, 8))
    b.call(declare(b.module, "free", VOID, (POINTER,)), [pointer])
    b.branch(head)
    b.position_at_end(behind)
    w.put("worker", w.worker, "free_frames", v.int(0))


def lanes_end(v: VectorBuilder, code: Any, mask: Any) -> None:
    """Lanes end: their warp and block have fewer to wait for."""
    b = v.b

    def less(structure: str, base: Any, name: str, change: Any) -> None:
        v.store(change(place_of(v, structure, base, name)), v.at(base, LAYOUTS[structure].offset(name)), 4)

    less("warp", code.warp, "live", lambda x: b.and_(x, b.not_(mask)))
    less("block", code.block, "live_threads", lambda x: b.sub(x, v.popcount(mask)))
