"""One warp's code: groups of lanes that have diverged, and which of them runs next.

Blocks of all functions are numbered one after the other, callees first.  Lanes that wait to enter a block are pending
there: a member of `pending`, their mask in `masks`.  The group that runs goes on as long as nobody is pending at its
block or before it; then the lowest pending block runs, so that lanes meet where their ways join.  In a loop that waits
for other threads, and wherever lanes wait, the next higher group gets its turn instead, and after the last of them the
other warps.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.executor.code.coroutine import NULL, Coroutine
from nbtc.executor.code.kept_variables import KeptVariables
from nbtc.executor.code.pending import Pending
from nbtc.executor.emit.fields import field_at, load_field
from nbtc.executor.emit.state import BARRIERS, BLOCK, WARP

POINTER = I8.as_pointer()
TURN = 64  # rounds of a waiting loop before others get their turn: many loops around atomics end sooner
LANES = 32


def unlikely(module: ir.Module) -> Any:
    """Branch weights of a way that is hardly ever taken."""
    return module.add_metadata(
        [ir.MetaDataString(module, "branch_weights"), ir.Constant(I32, 1), ir.Constant(I32, 1 << 20)]
    )


class Meeting:
    """A block of code that is entered from many places, with values from each."""

    def __init__(self, function: Any, name: str) -> None:
        self.function, self.name = function, name
        self.ways: list[tuple[Any, tuple[Any, ...]]] = []

    @cached_property
    def block(self) -> Any:
        """The LLVM block."""
        return self.function.append_basic_block(self.name)

    def note(self, source: Any, *values: Any) -> None:
        """A block branches here, with these values."""
        self.ways.append((source, values))

    def come(self, b: ir.IRBuilder, *values: Any) -> None:
        """End this code: it goes on here, with these values."""
        self.note(b.block, *values)
        b.branch(self.block)

    def begin(self, b: ir.IRBuilder) -> list[Any]:
        """Go on with the block, when all ways to it are known; its values."""
        b.position_at_end(self.block)
        found = [b.phi(value.type) for value in self.ways[0][1]]
        for source, values in self.ways:
            for phi, value in zip(found, values, strict=True):
                phi.add_incoming(value, source)
        return found


class WarpCode:
    """The function that runs a warp.

    `suspends`: it is a coroutine.  `dense`: numbers of the blocks where lanes may be pending, in order.
    """

    def __init__(self, machine: Any, suspends: bool, dense: list[int]) -> None:
        self.machine, self.module = machine, machine.module
        kind = ir.FunctionType(POINTER, [POINTER, I32])
        self.function = ir.Function(self.module, kind, "warp")
        self.function.linkage = "internal"
        self.function.attributes.add("nounwind")
        self.function.attributes.add("noinline")  # the floating-point mode is set around it
        # Where variables get their memory, and their first values.  These two blocks end when all is emitted (`close`):
        # llvmlite looks through a block to insert before its end: a fifth of the emission where there are many.
        self.entry = self.function.append_basic_block("entry")
        self.b = ir.IRBuilder(self.entry)
        self.v = VectorBuilder(None, self.b)
        self.labels: dict[int, Any] = {}
        self.bit = {number: i for i, number in enumerate(dense)}
        self.coroutine = Coroutine(self.v, self.function) if suspends else None
        self.dispatch = self.function.append_basic_block("dispatch")
        self.done = self.function.append_basic_block("done")
        self._words: Any = None
        self._unchanging: dict[tuple[str, str], Any] = {}
        self._top: Any = None
        # A large program goes these ways from thousands of places: what they do stands once, for a block given at run
        # time.  It was half of the code of a kernel that votes among lanes at hand.
        self.picks, self.late, self.turns, self.waits = (
            Meeting(self.function, name) for name in ("take", "late", "turn", "wait")
        )
        self._prologue()

    # --- entry ------------------------------------------------------------------------------------------------------
    def _prologue(self) -> None:
        v, b = self.v, self.b
        self.block, index = self.function.args
        begin, prologue = (self.function.append_basic_block(n) for n in ("begin", "prologue"))
        b.position_at_end(begin)
        if self.coroutine:  # it waits at once, so that all code is in the part that is resumed, and only there
            worker = b.inttoptr(self._get("block", "worker"), POINTER)
            self.coroutine.begin(lambda size: b.call(self.machine.helpers.frame_memory, [worker, size]))
            self.coroutine.suspend()
        self.early_block = b.block
        self._open = [(self.entry, begin), (self.early_block, prologue)]
        self.kept = KeptVariables(v, self.entry, self.early_block)
        b.position_at_end(prologue)
        self.warp = v.at(self.block, BLOCK.size, b.mul(b.zext(index, I64), v.int(WARP.size)))
        self.launch = b.inttoptr(self._get("block", "launch"), POINTER)
        self.worker = b.inttoptr(self._get("block", "worker"), POINTER)
        self.mask = self._variable(I32)
        self.spins = self._variable(I32)
        self.pending = Pending(v, len(self.bit), self._variable, self.machine.helpers.function)
        self.masks = self._variable(ir.ArrayType(I32, max(1, len(self.bit))))
        self.first = b.mul(index, ir.Constant(I32, LANES))  # the warp's first thread in the block
        alive: Any = ir.Constant(I32, -1)
        if not self.machine.shape.full:
            lanes = b.add(v.splat(self.first, LANES), ir.Constant(vector(I32, LANES), list(range(LANES))))
            alive = b.bitcast(b.icmp_unsigned("<", lanes, v.splat(self._get("launch", "threads"), LANES)), I32)
        b.store(alive, self.mask)
        if self.coroutine:
            v.store(alive, self._at("warp", "live"), 4)
            for name in ("waiting", "released"):
                v.store(ir.Constant(I32, 0), self._at("warp", name), 4)
            none = ir.Constant(vector(I32, BARRIERS), [0] * BARRIERS)
            v.store(none, self._at("warp", "barrier_waiters"), 64)
        self.advance()
        self._prologue_end = b.block
        self.start = self.function.append_basic_block("start")
        b.branch(self.start)
        b.position_at_end(self.start)

    def _variable(self, kind: ir.Type, first: Any = None) -> Any:
        slot = self.scratch(kind)
        self.b.store(ir.Constant(kind, first), slot)
        return slot

    def scratch(self, kind: ir.Type) -> Any:
        """Memory of the function for one value."""
        with self.b.goto_block(self.entry):
            return self.b.alloca(kind)

    def variable(self, kind: ir.Type, first: Any = None) -> Any:
        """A variable of the whole function, zero (or `first`) at its beginning."""
        slot = self.scratch(kind)
        zero = first is None and isinstance(kind, ir.VectorType)
        with self.b.goto_block(self.early_block):
            self.b.store(self.v.const(kind, 0) if zero else ir.Constant(kind, first), slot)
        return slot

    def stack_top(self) -> Any:
        """Where each lane's stack ends: an offset in its local memory."""
        if self._top is None:
            start = self.machine.linked.static_bytes
            self._top = self.variable(vector(I32, LANES), [start] * LANES)
        return self._top

    def lane_words(self) -> Any:
        """Memory for a word of 64 bits of each lane, overwritten by the next instruction that wants it."""
        if self._words is None:
            self._words = self.scratch(vector(I64, LANES))
        return self._words

    def unchanging(self, structure: str, name: str) -> Any:
        """The value of a field that stays the same for as long as the warp runs (`lanes.UNCHANGING`)."""
        found = self._unchanging.get((structure, name))
        if found is None:
            with self.b.goto_block(self._prologue_end):
                found = self._unchanging[structure, name] = self._get(structure, name)
        return found

    def unchanging_pointer(self, structure: str, name: str) -> Any:
        """The same as a pointer."""
        key = structure, f"{name}*"
        if key not in self._unchanging:
            value = self.unchanging(structure, name)
            with self.b.goto_block(self._prologue_end):
                self._unchanging[key] = self.b.inttoptr(value, POINTER)
        return self._unchanging[key]

    def _at(self, structure: str, name: str) -> Any:
        return field_at(self.v, structure, getattr(self, structure), name)

    def _get(self, structure: str, name: str) -> Any:
        return load_field(self.v, structure, getattr(self, structure), name)

    def label(self, number: int) -> Any:
        """The LLVM block where a block's code begins."""
        if number not in self.labels:
            self.labels[number] = self.function.append_basic_block(f"B{number}")
        return self.labels[number]

    # --- ways -------------------------------------------------------------------------------------------------------
    def defer(self, number: int, mask: Any) -> None:
        """Let lanes wait to enter a block."""
        self._defer(self._bit(number), mask)

    def _defer(self, bit: Any, mask: Any) -> None:
        b = self.b
        slot = b.gep(self.masks, [ir.Constant(I32, 0), bit])
        b.store(b.or_(b.load(slot), mask), slot)
        self.pending.add(bit)

    def _bit(self, number: int) -> Any:
        return ir.Constant(I32, self.bit[number])

    def go(self, number: int, mask: Any, alone: bool) -> None:
        """End this code: the group that runs goes to a block; `alone`: nobody is pending anywhere."""
        b = self.b
        if alone or number not in self.bit:
            b.store(mask, self.mask)
            b.branch(self.label(number))
            return
        straight = self.function.append_basic_block("straight")
        self.late.note(b.block, self._bit(number), mask)
        b.cbranch(self.pending.some_up_to(self.bit[number]), self.late.block, straight)
        b.position_at_end(straight)
        b.store(mask, self.mask)
        b.branch(self.label(number))

    def part(self, ways: tuple[tuple[int, Any], tuple[int, Any]], alone: bool, leave: Any) -> None:
        """End this code: lanes go two ways, (block or END, mask) each; `leave(mask, last)` ends lanes."""
        b = self.b
        (t1, m1), (t2, m2) = ways
        zero = ir.Constant(I32, 0)
        only1, some2, only2, both = (self.function.append_basic_block(n) for n in ("only", "some", "only", "both"))
        b.cbranch(b.icmp_unsigned("==", m2, zero), only1, some2)
        b.position_at_end(only1)
        self._one(t1, m1, alone, leave)
        b.position_at_end(some2)
        b.cbranch(b.icmp_unsigned("==", m1, zero), only2, both)
        b.position_at_end(only2)
        self._one(t2, m2, alone, leave)
        b.position_at_end(both)
        low, high = sorted(ways, key=lambda way: way[0])  # END is lower than any block: those lanes end first
        if high[0] < 0:
            leave(b.or_(low[1], high[1]), True)
        elif low[0] < 0:
            leave(low[1], False)
            self.go(high[0], high[1], alone)
        else:
            self.defer(*high)
            self.go(*low, False)

    def _one(self, target: int, mask: Any, alone: bool, leave: Any) -> None:
        if target < 0:
            leave(mask, True)
        else:
            self.go(target, mask, alone)

    def finish(self, alone: bool) -> None:
        """End this code: the group that ran has ended."""
        self.b.branch(self.done if alone else self.dispatch)

    def turn(self, number: int, mask: Any, alone: bool) -> None:
        """End this code: the group waits before a block, and others get their turn."""
        b = self.b
        if alone:
            self.suspend()
            b.store(mask, self.mask)
            b.branch(self.label(number))
            return
        self.turns.come(b, self._bit(number), mask)

    def wait(self, number: int, site: int, mask: Any, alone: bool) -> None:
        """The same where the group asks again in vain for what it waits for, at a place in the program."""
        if alone:
            self._note_wait(ir.Constant(I32, site), mask)
            self.turn(number, mask, alone)
        else:
            self.waits.come(self.b, self._bit(number), ir.Constant(I32, site))

    def _note_wait(self, site: Any, mask: Any) -> None:
        self.poll(site, mask)
        self.v.store(site, self._at("warp", "wait_site"), 4)

    def _take_turns(self, bit: Any, mask: Any) -> None:
        b = self.b
        self._defer(bit, mask)
        above = self.pending.above(bit)
        some = self.pending.exists(above)
        if self.coroutine:  # while other groups can run the warp must not sleep
            lowest = b.icmp_unsigned("==", b.load(self.pending.lowest), bit)
            alone_here = b.and_(lowest, b.not_(some))
            slot = self._at("warp", "wait_address")
            self.v.store(b.select(alone_here, self.v.load(slot, I64, 8), self.v.int(0)), slot, 8)
        higher, around = (self.function.append_basic_block(n) for n in ("higher", "around"))
        b.cbranch(some, higher, around)
        b.position_at_end(higher)
        self.picks.come(b, above)
        b.position_at_end(around)
        self.suspend()
        self.picks.come(b, b.load(self.pending.lowest))

    def advance(self) -> None:
        """Note that the warp got on: many rounds in which no warp does are a deadlock."""
        if self.coroutine:
            self.v.store(ir.Constant(I32, 1), self._at("warp", "advanced"), 4)

    def suspend(self) -> None:
        """Let other warps run."""
        if self.coroutine:
            self.coroutine.suspend()

    def step_aside(self) -> None:
        """Let the other warps come as far, where nothing makes this one wait.

        Warps run abreast on a GPU: programs that lack a barrier but never fail there would fail if one ran to its end.
        Behind a loop is where a turn costs least.
        """
        if self.coroutine:
            never = self.v.b.ptrtoint(self._at("warp", "ended"), I64)  # it holds 0 as long as the warp runs
            self.v.store(never, self._at("warp", "wait_address"), 8)
            self.v.store(ir.Constant(I32, 1), self._at("warp", "wait_value"), 4)
            self.advance()
            self.suspend()

    # --- the end ----------------------------------------------------------------------------------------------------
    def close(self, first: int) -> None:
        """Emit what runs pending groups, and the end of the warp; `first` is the block where it begins."""
        b = self.b
        b.position_at_end(self.start)
        b.branch(self.label(first))
        b.position_at_end(self.dispatch)
        some = self.function.append_basic_block("some")
        b.cbranch(self.pending.empty(), self.done, some)
        b.position_at_end(some)
        self.picks.come(b, b.load(self.pending.lowest))
        if self.waits.ways:
            bit, site = self.waits.begin(b)
            mask = b.load(self.mask)
            self._note_wait(site, mask)
            self.turns.come(b, bit, mask)
        if self.turns.ways:
            self._take_turns(*self.turns.begin(b))
        if self.late.ways:
            self._defer(*self.late.begin(b))
            b.branch(self.dispatch)
        self._take()
        b.position_at_end(self.done)
        if self.coroutine:
            self.v.store(ir.Constant(I32, 1), self._at("warp", "ended"), 4)
            self.coroutine.suspend(final=True)
            self.coroutine.end()
        else:
            b.ret(NULL)
        for block, following in self._open:
            b.position_at_end(block)
            b.branch(following)

    def _take(self) -> None:
        b = self.b
        (index,) = self.picks.begin(b)
        self.pending.take(index)
        slot = b.gep(self.masks, [ir.Constant(I32, 0), index])
        b.store(b.load(slot), self.mask)
        b.store(ir.Constant(I32, 0), slot)
        nowhere = self.function.append_basic_block("nowhere")
        switch = b.switch(index, nowhere)
        for number, bit in self.bit.items():
            switch.add_case(ir.Constant(I32, bit), self.label(number))
        b.position_at_end(nowhere)
        b.unreachable()

    def poll(self, site: Any, mask: Any) -> None:
        """Leave the warp if the launch is to stop; where its time is over, note that lanes were at a place (i32)."""
        b = self.b
        stop = b.load_atomic(b.bitcast(self._at("launch", "stop"), I32.as_pointer()), "monotonic", 4)
        go_on, stops = (self.function.append_basic_block(n) for n in ("go_on", "stops"))
        branch = b.cbranch(b.icmp_unsigned("!=", stop, ir.Constant(I32, 0)), stops, go_on)
        branch.set_metadata("prof", unlikely(self.module))
        b.position_at_end(stops)
        b.call(self.machine.helpers.note_stop, [self.launch, self.block, self.warp, site, mask, stop])
        b.branch(self.done)
        b.position_at_end(go_on)
