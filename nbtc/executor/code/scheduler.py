"""The compiled loop of a worker: it takes blocks of the grid, runs their warps, and lets those that wait wait.

A kernel whose warps never wait runs them one after the other.  Else each warp is a coroutine, the worker resumes all
that are ready, round after round, and takes a further block when none of its warps gets on without other blocks.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder
from nbtc.compiler.cpu import float_mode
from nbtc.executor.code.coroutine import HEADER, VOID, resume
from nbtc.executor.code.worker import ZERO, Worker, free_frames
from nbtc.executor.emit.errors import ErrorKind, Stop
from nbtc.executor.emit.fields import load_field, store_field
from nbtc.executor.emit.state import BLOCK

POINTER = I8.as_pointer()
RUNNING, ENDED = (ir.Constant(I32, n) for n in (1, 2))  # of a resident block; 0 is a free slot
# Rounds without an advance before all counts as stuck.  A warp that looks at a flag and then arrives somewhere has not
# advanced, but lets another go on in the next round; a chain of such warps may be as long as there are warps in a few
# clusters.  A round in which all sleep takes microseconds.
MOST_IDLE = 1 << 12

SHARES = 256  # of a grid, taken one by one: 16 workers have 16 each, so that the last one ends a sixteenth late at most
MOST_AT_ONCE = 64  # clusters: some 10 microseconds of the shortest blocks, beside which the counter costs nothing


def emit(helpers: Any, warp_function: Any) -> None:
    """The function `run(worker)`."""
    function = ir.Function(helpers.module, ir.FunctionType(VOID, [POINTER]), "run")
    v = VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")))
    old = float_mode.enter(v)
    if helpers.suspends:
        _rounds(helpers, v, Worker(v, function.args[0]), warp_function)
    else:
        _straight(v, Worker(v, function.args[0]), warp_function)
    float_mode.leave(v, old)
    v.b.ret_void()


def _straight(v: VectorBuilder, w: Worker, warp_function: Any) -> None:
    """Blocks one after the other, and their warps."""
    b = v.b
    block = w.block(v.int(0))
    warps = w.get("launch", w.launch, "warps")
    blocks = w.get("launch", w.launch, "blocks")
    size = w.cluster_size()
    share = b.mul(size, _clusters_at_once(v, b.udiv(blocks, size)))
    taken, head, next_, inside, after = (b.append_basic_block(n) for n in ("taken", "next", "cluster", "block", "end"))
    b.branch(head)
    b.position_at_end(head)
    begin = w.take_cluster(share)
    end = v.call("llvm.umin.i64", I64, b.add(begin, share), blocks)
    b.cbranch(b.icmp_unsigned("<", begin, blocks), taken, after)
    b.position_at_end(taken)
    b.branch(next_)
    b.position_at_end(next_)
    first = b.phi(I64)
    first.add_incoming(begin, taken)
    b.cbranch(w.stopped(), after, inside)
    b.position_at_end(inside)

    def one(rank: Any) -> None:
        w.place(block, b.add(first, rank))
        w.loop(warps, lambda i: b.call(warp_function, [block, i]))

    w.loop(size, one)
    following = b.add(first, size)
    first.add_incoming(following, b.block)
    b.cbranch(b.icmp_unsigned("<", following, end), next_, head)
    b.position_at_end(after)


def _clusters_at_once(v: VectorBuilder, clusters: Any) -> Any:
    """How many clusters a worker takes at a time: a SHARES-th of the grid's, from 1 to MOST_AT_ONCE.

    One at a time, two threads take longer over short blocks than one (a vector sum of 2**24 elements 17.9 ms, not 7.5):
    each takes the counter's cache line, and the launch's fields beside it, from the other for every block, and writes
    next to what the other writes.
    """
    share = v.call("llvm.umax.i64", I64, v.b.udiv(clusters, v.int(SHARES)), v.int(1))
    return v.call("llvm.umin.i64", I64, share, v.int(MOST_AT_ONCE))


def _rounds(helpers: Any, v: VectorBuilder, w: Worker, warp_function: Any) -> None:
    """Round after round over the warps of all resident blocks."""
    b = v.b
    slots = w.get("worker", w.worker, "slots")
    blocks = w.get("launch", w.launch, "blocks")
    live, taken, hungry, moved, over, idle, peak = (b.alloca(I64) for _ in range(7))
    for slot in (live, taken, over, idle, peak):
        b.store(v.int(0), slot)
    b.store(v.int(1), hungry)  # the worker wants a block
    head, last, some, take, round_, check, stuck, end = (
        b.append_basic_block(n) for n in ("round.head", "last", "some", "take", "round", "check", "stuck", "end")
    )
    b.branch(head)
    b.position_at_end(head)
    b.cbranch(w.stopped(), last, some)
    b.position_at_end(last)  # one more round if the time is over: whoever is in a loop notes where
    again = b.and_(w.stopped(Stop.TIME_LIMIT), b.icmp_unsigned("==", b.load(over), v.int(0)))
    b.store(v.int(1), over)
    b.cbranch(again, round_, end)
    b.position_at_end(some)
    fits = b.icmp_unsigned("<=", b.add(b.load(live), w.cluster_size()), slots)
    wants = b.and_(b.icmp_unsigned("!=", b.load(hungry), v.int(0)), fits)
    b.cbranch(wants, take, round_)
    b.position_at_end(take)
    index = w.take_cluster()
    got, none = b.append_basic_block("got"), b.append_basic_block("none")
    b.cbranch(b.icmp_unsigned("<", index, blocks), got, none)
    b.position_at_end(none)
    b.store(v.int(0), hungry)
    b.store(v.int(1), taken)  # the grid is given out
    b.cbranch(b.icmp_unsigned("==", b.load(live), v.int(0)), end, round_)
    b.position_at_end(got)
    _admit_cluster(helpers, v, w, index, warp_function)
    b.store(b.add(b.load(live), w.cluster_size()), live)
    b.store(v.call("llvm.umax.i64", I64, b.load(live), b.load(peak)), peak)
    cooperative = b.icmp_unsigned("!=", w.get("launch", w.launch, "cooperative"), ZERO)
    b.cbranch(cooperative, head, round_)
    b.position_at_end(round_)
    b.store(v.int(0), moved)
    b.store(v.int(0), hungry)
    w.loop(b.load(peak), lambda slot: _block_round(v, w, slot, (live, hungry, moved)))
    b.branch(check)
    b.position_at_end(check)
    given_out = b.icmp_unsigned("!=", b.load(taken), v.int(0))
    still = b.icmp_unsigned("==", b.load(moved), v.int(0))
    empty = b.icmp_unsigned("==", b.load(live), v.int(0))
    want = b.and_(b.or_(still, b.or_(empty, b.icmp_unsigned("!=", b.load(hungry), v.int(0)))), b.not_(given_out))
    b.store(b.zext(want, I64), hungry)
    finished = b.and_(empty, given_out)
    full = b.icmp_unsigned(">", b.add(b.load(live), w.cluster_size()), slots)
    b.store(b.select(still, b.add(b.load(idle), v.int(1)), v.int(0)), idle)
    fixed = b.and_(b.icmp_unsigned(">=", b.load(idle), v.int(MOST_IDLE)), b.or_(given_out, full))
    after = b.append_basic_block("after")
    b.cbranch(finished, end, after)
    b.position_at_end(after)
    b.cbranch(b.and_(fixed, b.not_(empty)), stuck, head)
    b.position_at_end(stuck)
    _deadlock(helpers, v, w, slots)
    b.branch(end)
    b.position_at_end(end)
    free_frames(v, w)


def _admit_cluster(helpers: Any, v: VectorBuilder, w: Worker, index: Any, warp_function: Any) -> None:
    """Put the blocks of a cluster into free slots, tell each of the others, and start their warps."""
    b = v.b
    first = b.alloca(I64)

    def admit(rank: Any) -> None:
        block = _take_slot(v, w, b.add(index, rank))
        leads = b.icmp_unsigned("==", rank, v.int(0))
        b.store(b.select(leads, b.ptrtoint(block, I64), b.load(first)), first)
        leader = b.inttoptr(b.load(first), POINTER)
        w.put("block", block, "peers", b.ptrtoint(w.at("block", leader, "user"), I64))
        v.store(b.ptrtoint(block, I64), w.peer(block, rank), 8)
        helpers.instrument.begins(v, block, helpers.reserved)
        with b.if_then(leads):
            size = b.trunc(w.cluster_size(), I32)
            w.put("block", block, "cluster_live", size)
            w.put("block", block, "cluster_held", b.sub(size, ir.Constant(I32, 1)))
            w.put("block", block, "cluster_generation", ZERO)
            w.put("block", block, "cluster_arrived", ZERO)

    w.loop(w.cluster_size(), admit)
    leader = b.inttoptr(b.load(first), POINTER)
    w.loop(
        w.cluster_size(),
        lambda rank: _start(v, w, b.inttoptr(v.load(w.peer(leader, rank), I64, 8), POINTER), warp_function),
    )


def _take_slot(v: VectorBuilder, w: Worker, index: Any) -> Any:
    """Put a block into the first free slot; its structure.

    So slots after as many as were ever taken at once are free: rounds leave out what may be thousands.
    """
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
    size = BLOCK.fields["barriers"].bits // 8
    v.call("llvm.memset.p0.i64", VOID, barriers, ir.Constant(I8, 0), v.int(size), ir.Constant(I1, 0))
    return block


def _start(v: VectorBuilder, w: Worker, block: Any, warp_function: Any) -> None:
    """Start the warps of a block."""
    b = v.b

    def start(i: Any) -> None:
        warp = w.warp(block, i)
        for name in ("ended", "products", "fenced"):
            w.put("warp", warp, name, ZERO)
        w.put("warp", warp, "wait_address", v.int(0))
        w.put("warp", warp, "frame", b.ptrtoint(b.call(warp_function, [block, i]), I64))
        _note_end(v, w, block, warp)

    w.loop(w.get("launch", w.launch, "warps"), start)


def _note_end(v: VectorBuilder, w: Worker, block: Any, warp: Any) -> None:
    """After a warp has run: give its frame back if it has ended."""
    b = v.b
    with b.if_then(b.icmp_unsigned("!=", w.get("warp", warp, "ended"), ZERO)):
        frame = b.inttoptr(w.get("warp", warp, "frame"), POINTER)
        v.store(w.get("worker", w.worker, "free_frames"), frame, 8, -HEADER)
        w.put("worker", w.worker, "free_frames", b.ptrtoint(frame, I64))
        w.put("warp", warp, "frame", v.int(0))
        w.put("block", block, "live_warps", b.sub(w.get("block", block, "live_warps"), ir.Constant(I32, 1)))


def _block_round(v: VectorBuilder, w: Worker, slot: Any, marks: tuple[Any, Any, Any]) -> None:
    """Resume every warp of a resident block that is ready."""
    b = v.b
    live, _, moved = marks
    block = w.block(slot)
    with b.if_then(b.icmp_unsigned("==", w.get("block", block, "resident"), RUNNING)):
        w.loop(w.get("launch", w.launch, "warps"), lambda i: _warp_round(v, w, block, w.warp(block, i), marks))
        with b.if_then(b.icmp_unsigned("==", w.get("block", block, "live_warps"), ZERO)):
            w.put("block", block, "resident", ENDED)
            _one_less(v, w, block, "cluster_live")
            b.store(v.int(1), moved)
    with b.if_then(b.icmp_unsigned("==", w.get("block", block, "resident"), ENDED)):
        _leave(v, w, block, (live, moved))


def _leader(v: VectorBuilder, w: Worker, block: Any) -> Any:
    """The first block of a block's cluster."""
    return v.b.inttoptr(v.load(w.peer(block, v.int(0)), I64, 8), POINTER)


def _one_less(v: VectorBuilder, w: Worker, block: Any, name: str) -> None:
    """Count down what the first block of a cluster counts."""
    leader = _leader(v, w, block)
    w.put("block", leader, name, v.b.sub(w.get("block", leader, name), ir.Constant(I32, 1)))


def _leave(v: VectorBuilder, w: Worker, block: Any, marks: tuple[Any, Any]) -> None:
    """Give an ended block's slot back once its whole cluster has ended: others may still look at its memory.

    The first block goes last, as it holds what the others look at.
    """
    b, (live, moved) = v.b, marks
    leader = _leader(v, w, block)
    leads = b.icmp_unsigned("==", b.ptrtoint(leader, I64), b.ptrtoint(block, I64))
    over = b.icmp_unsigned("==", w.get("block", leader, "cluster_live"), ZERO)
    last = b.icmp_unsigned("==", w.get("block", leader, "cluster_held"), ZERO)
    with b.if_then(b.and_(over, b.or_(last, b.not_(leads)))):
        with b.if_then(b.not_(leads)):
            _one_less(v, w, block, "cluster_held")
        w.put("block", block, "resident", ZERO)
        b.store(b.sub(b.load(live), v.int(1)), live)
        b.store(v.int(1), moved)


def _warp_round(v: VectorBuilder, w: Worker, block: Any, warp: Any, marks: tuple[Any, Any, Any]) -> None:
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
            w.put("warp", warp, "advanced", ZERO)
            resume(v, b.inttoptr(frame, POINTER))
            _note_end(v, w, block, warp)
            got_on = b.or_(w.get("warp", warp, "advanced"), w.get("warp", warp, "ended"))
            b.store(b.or_(b.load(moved), b.zext(got_on, I64)), moved)
            polls = b.and_(
                b.icmp_unsigned("==", w.get("warp", warp, "wait_address"), v.int(0)),
                b.icmp_unsigned("==", w.get("warp", warp, "ended"), ZERO),
            )
            with b.if_then(polls):  # it waits for something that another block may have to do
                b.store(v.int(1), hungry)


def _deadlock(helpers: Any, v: VectorBuilder, w: Worker, slots: Any) -> None:
    """Every warp waits for another: the first of them is reported."""
    b = v.b

    def block_of(slot: Any) -> None:
        block = w.block(slot)
        with b.if_then(b.icmp_unsigned("!=", w.get("block", block, "resident"), ZERO)):

            def warp_of(i: Any) -> None:
                warp = w.warp(block, i)
                with b.if_then(b.icmp_unsigned("!=", w.get("warp", warp, "frame"), v.int(0))):
                    site = w.get("warp", warp, "wait_site")
                    kind = ir.Constant(I32, ErrorKind.DEADLOCK)
                    helpers.record(v, w.launch, (block, warp), (site, kind, ZERO, v.int(0)))

            w.loop(w.get("launch", w.launch, "warps"), warp_of)

    w.loop(slots, block_of)


def lanes_end(v: VectorBuilder, code: Any, mask: Any) -> None:
    """Lanes end: their warp and block have fewer to wait for."""
    b = v.b

    def less(structure: str, base: Any, name: str, change: Any) -> None:
        store_field(v, structure, base, name, change(load_field(v, structure, base, name)))

    less("warp", code.warp, "live", lambda x: b.and_(x, b.not_(mask)))
    less("block", code.block, "live_threads", lambda x: b.sub(x, v.popcount(mask)))
