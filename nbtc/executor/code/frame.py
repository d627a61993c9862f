"""The code of one PTX function inside of a warp's code: its registers, its blocks, its instructions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, vector
from nbtc.executor.code import whole_warp
from nbtc.executor.code.ramp_values import RampValues
from nbtc.executor.code.registers import RegisterVariables
from nbtc.executor.code.warp_code import LANES, WarpCode
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.context import END
from nbtc.executor.emit.form import Form, Op
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.specials import VARYING_SPECIALS
from nbtc.executor.kernel import neighbours
from nbtc.executor.kernel.flow import ENDS, Block, Graph
from nbtc.executor.kernel.uniform import FunctionFacts
from nbtc.executor.memory.resolve import rank_bits
from nbtc.executor.rows.uses import CARRY, row_of, use_of
from nbtc.executor.text import data
from nbtc.executor.text.data import Function, Guard, Instruction, Not, Operand, Pair, Register, Symbol

if TYPE_CHECKING:
    from nbtc.executor.code.machine import Machine

ZERO, ALL = ir.Constant(I32, 0), ir.Constant(I32, -1)


class Frame:
    """Emits one function; `base` is the number of its first block in the warp's code."""

    def __init__(self, code: WarpCode, function: Function, graph: Graph, facts: FunctionFacts, base: int) -> None:
        self.code, self.function, self.graph, self.facts, self.base = code, function, graph, facts, base
        self.machine: Machine = code.machine
        self.v, self.b = code.v, code.b
        self.launch, self.worker, self.block, self.warp = code.launch, code.worker, code.block, code.warp
        self.registers = RegisterVariables(code, graph, facts)
        self.ramps = RampValues(self)
        self.sites: list[Any] = []  # of calls that lead here
        self.recursive = function.name in code.machine.linked.recursive
        self.base_slot = self.return_to = None
        if not function.entry:
            self._prepare_calls()
        self.number = 0  # of the block that is being emitted, in the graph
        self.found_whole = False  # whether an instruction before in this block has seen that all 32 lanes are here
        self.current: Block = Block((), (), None)

    def _prepare_calls(self) -> None:
        """Variables of a function that is called: where each lane returns to, and where its variables are."""
        code, words = self.code, vector(I32, LANES)
        self.returning, self.way_out = code.variable(I32), code.function.append_basic_block("way_out")
        self.return_to = code.variable(words)
        if self.recursive:
            self.base_slot = code.variable(words)

    def registers_kept(self) -> list[Register]:
        """Registers whose values a call must not lose: all but those used within one block alone."""
        found: dict[str, Register] = {}
        for block in self.graph.blocks:
            for instruction in block.instructions:
                use = use_of(instruction)
                for register in (*use.reads, *use.writes):
                    if register.name in self.facts.varies and register.name not in self.facts.private:
                        found[register.name] = register
        return list(found.values())

    def local_offsets(self, name: str) -> Any:
        """Where a local variable or parameter of each lane lies in its local memory."""
        place = self.machine.linked.place(self.function.name, name)
        offset = ir.Constant(vector(I32, LANES), [place.offset if place else 0] * LANES)
        return offset if self.base_slot is None else self.b.add(self.b.load(self.base_slot), offset)

    # --- what operands are ------------------------------------------------------------------------------------------
    def slot(self, register: Register) -> Any:
        """The variable of a register."""
        return self.registers.slot(register)

    def uniform(self, operand: Operand) -> bool:
        """Whether all lanes have the same value of an operand."""
        if isinstance(operand, Register):
            return operand.name not in self.facts.varies
        if isinstance(operand, Not | data.Selected):
            return operand.register.name not in self.facts.varies
        if isinstance(operand, data.Special):
            return operand.name not in VARYING_SPECIALS or operand.name in self.machine.shape.shared_specials
        if isinstance(operand, Symbol):
            place = self.machine.linked.place(self.function.name, operand.name)
            return self.base_slot is None or place is None or place.space != "local"
        return True

    def is_private(self, register: Register) -> bool:
        """Whether a write need not keep the other lanes' values."""
        return self.number not in self.facts.divergent or register.name in self.facts.private

    def thread_index(self, axis: str) -> Any:
        """%tid of an axis: i32, or one for each lane."""
        return self.machine.thread_index(self.code, axis)

    def value_of(self, lanes: Lanes, symbol: Symbol) -> Any:
        """The address of a variable or function in the variable's own space, as i64."""
        place = self.machine.linked.place(self.function.name, symbol.name)
        if place is not None and place.space in ("const", "param"):
            return ir.Constant(I64, place.offset + symbol.offset)
        address = self.address_of(lanes, symbol)
        if place is not None and place.space == "shared" and self.machine.in_pairs:
            return self.b.or_(address, rank_bits(lanes))
        return address

    def address_of(self, lanes: Lanes, symbol: Symbol) -> Any:
        """Where a load or store of a variable goes: in the host's memory, or in that of the block or thread."""
        place = self.machine.linked.place(self.function.name, symbol.name)
        if place is None:
            address = self.machine.linked.function_address(symbol.name)
            if address is None:
                lanes.refuse(f"{symbol.name} is not declared")
            return ir.Constant(I64, address)
        if place.space == "local" and self.base_slot is not None:
            base = self.b.zext(self.b.load(self.base_slot), vector(I64, LANES))
            return self.b.add(base, ir.Constant(vector(I64, LANES), [place.offset + symbol.offset] * LANES))
        if place.space in ("shared", "local"):
            return ir.Constant(I64, place.offset + symbol.offset)
        base = lanes.get("launch", "parameters" if place.space == "param" else "variables")
        return self.b.add(base, ir.Constant(I64, place.offset + symbol.offset))

    # --- masks ------------------------------------------------------------------------------------------------------
    @property
    def alone(self) -> bool:
        """Whether no lanes are pending anywhere while this block runs."""
        return self.number not in self.facts.divergent

    @property
    def full(self) -> bool:
        """Whether all 32 lanes are surely in this block."""
        if self.found_whole:
            return True
        return self.alone and self.machine.shape.full and not self.machine.lanes_end_early

    def group(self) -> Any:
        """Mask of the lanes in this block."""
        return ALL if self.full else self.b.load(self.code.mask)

    def guard(self, guard: Guard) -> Any:
        """A guard's value: i1, or an i32 mask where it varies."""
        value = self.registers.read(guard.register)
        if guard.negated:
            value = self.b.not_(value)
        return self.b.bitcast(value, I32) if is_vector(value) else value

    # --- blocks -----------------------------------------------------------------------------------------------------
    def emit(self) -> None:
        """All blocks."""
        behind_loops = self.graph.behind_loops()
        for number, block in enumerate(self.graph.blocks):
            self.number, self.current, self.found_whole = number, block, False
            self.b.position_at_end(self.code.label(self.base + number))
            self.registers.begin()
            if number in behind_loops and self.alone and self.function.entry:
                self.code.step_aside()
            self._instructions(block.instructions)
            if not self.b.block.is_terminated:
                self.go_on(self.group())

    def target(self, way: int) -> int:
        """A way's number in the warp's code."""
        return END if way == END else self.base + way

    @property
    def next_block(self) -> int:
        """The number in the warp's code of the block after this one."""
        falls = self.current.falls
        if falls is None or falls == END:
            self.machine.refuse(self.current.instructions[-1], "nothing follows it")
        return self.base + falls

    def go_on(self, mask: Any) -> None:
        """End this block: its lanes fall into the block after it."""
        falls = END if self.current.falls is None and not self.current.jumps else self.current.falls
        self.go(self.current.jumps[0] if falls is None else falls, mask)

    def go(self, way: int, mask: Any) -> None:
        """End this code: the lanes go to a block of this function, or end it."""
        if way == END:
            self.end(mask, True)
            return
        self._back_edge(way, mask)
        if not self.b.block.is_terminated:
            self.code.go(self.target(way), mask, self.alone)

    def _back_edge(self, way: int, mask: Any) -> None:
        """Before lanes begin a loop anew: look whether the launch goes on; where a loop waits, give others a turn."""
        if way > self.number:
            return
        self.poll(mask)
        if way not in self.facts.spins:
            return
        b, code = self.b, self.code
        if self._asks_barriers(way):
            code.advance()
            code.turn(self.target(way), mask, self.alone)
            return
        count = b.add(b.load(code.spins), ir.Constant(I32, 1))
        b.store(count, code.spins)
        tired = b.icmp_unsigned("==", b.and_(count, ir.Constant(I32, code.machine.turn - 1)), ZERO)
        yields, goes = (code.function.append_basic_block(n) for n in ("yields", "goes"))
        b.cbranch(tired, yields, goes)
        b.position_at_end(yields)
        code.advance()  # what it waits for, other blocks or the host may do
        code.turn(self.target(way), mask, self.alone)
        b.position_at_end(goes)

    def _asks_barriers(self, header: int) -> bool:
        """Whether a loop asks for a barrier's phase, which only others move on: asking again at once is in vain."""
        members = (block for b, block in enumerate(self.graph.blocks) if self.graph.loop[b] == header)
        return any(i.opcode == "mbarrier" and i.modifiers[0].endswith("_wait") for m in members for i in m.instructions)

    def end(self, mask: Any, last: bool) -> None:
        """Lanes end the function; `last`: nothing follows in this block."""
        self.machine.end_lanes(self, mask, last)

    def split(self, ways: tuple[tuple[int, Any], tuple[int, Any]]) -> None:
        """End this block: its lanes go two ways (a block of this function or END, mask)."""
        code = self.code
        backward = [w for w, _ in ways if 0 <= w <= self.number]
        if backward:
            self.poll(self.group())
        if any(w in self.facts.spins for w in backward):  # a way of its own, so that the turn is taken there
            self._split_spinning(ways)
            return
        code.part(tuple((self.target(w), m) for w, m in ways), self.alone, self.end)  # type: ignore[arg-type]

    def _split_spinning(self, ways: tuple[tuple[int, Any], tuple[int, Any]]) -> None:
        b, code = self.b, self.code
        (back, again), (on, rest) = sorted(ways, key=lambda way: way[0] > self.number or way[0] == END)
        stays, leaves = (code.function.append_basic_block(n) for n in ("stays", "leaves"))
        some = b.icmp_unsigned("!=", again, ZERO)
        if on != END:
            none = b.icmp_unsigned("==", rest, ZERO)
            pends = code.function.append_basic_block("pends")
            joined = code.function.append_basic_block("joined")
            b.cbranch(b.or_(none, b.not_(some)), joined, pends)
            b.position_at_end(pends)
            code.defer(self.target(on), rest)
            b.branch(joined)
            b.position_at_end(joined)
            b.cbranch(some, stays, leaves)
            b.position_at_end(leaves)
            code.go(self.target(on), rest, self.alone)
        else:
            ends = code.function.append_basic_block("ends")
            b.cbranch(some, stays, leaves)
            b.position_at_end(leaves)
            self.end(rest, True)
            b.position_at_end(stays)
            stays = code.function.append_basic_block("stays")
            b.cbranch(b.icmp_unsigned("!=", rest, ZERO), ends, stays)
            b.position_at_end(ends)
            self.end(rest, False)
            b.branch(stays)
        b.position_at_end(stays)
        self._back_edge(back, again)
        if not b.block.is_terminated:
            code.go(self.target(back), again, False)

    def poll(self, mask: Any) -> None:
        """Leave the warp if the launch is to stop, with lanes of a mask at the end of this block."""
        self.code.poll(ir.Constant(I32, self._site(-1)), mask)

    def _site(self, at: int) -> int:
        """The number of a new place: an instruction of this block."""
        here = self.current.instructions
        return self.machine.place(self.function, here[at] if here else None)

    def retry_unless(self, ready: Any) -> None:
        """Go on if ready; else the lanes wait before this block."""
        b, code = self.b, self.code
        goes, waits = (code.function.append_basic_block(n) for n in ("goes", "waits"))
        b.cbranch(ready, goes, waits)
        b.position_at_end(waits)
        code.wait(self.target(self.number), self._site(0), self.group(), self.alone)
        b.position_at_end(goes)
        code.advance()

    def go_on_with(self, ready: Any) -> None:
        """Go on with lanes that are ready; the others wait before this block."""
        self.found_whole = False
        b, code = self.b, self.code
        group = self.group()
        rest = b.and_(group, b.not_(ready))
        self.retry_unless(b.icmp_unsigned("!=", b.and_(ready, group), ZERO))
        if not self.alone:
            with b.if_then(b.icmp_unsigned("!=", rest, ZERO)):
                code.defer(self.target(self.number), rest)
                b.store(b.and_(group, ready), code.mask)

    # --- instructions -------------------------------------------------------------------------------------------------
    def _instructions(self, instructions: tuple[Instruction, ...]) -> None:
        """Those of a block; neighbouring accesses together, where nothing is to see each of them."""
        joined = neighbours.find(instructions, self.facts.varies) if self.machine.joins else neighbours.NONE
        for n, instruction in enumerate(instructions):
            self.registers.pass_on()
            if n in joined.groups:
                neighbours.emit(self, [instructions[m] for m in joined.groups[n]])
            elif n not in joined.members:
                self.execute(instruction)

    def execute(self, instruction: Instruction, rare: bool = False) -> None:
        """One instruction; rare: where it hardly ever runs."""
        row = row_of(instruction.mnemonic)
        if row is None:
            raise KeyError(instruction.mnemonic)  # refused before anything is emitted
        guard = instruction.guard
        if guard is None and self.ramps.write(instruction, row):
            return
        if guard is None or instruction.opcode in ENDS:
            self._row(instruction, row, self.group(), self.full, rare=rare)
            return
        value = self.guard(guard)
        if value.type == I1:
            found_before = self.found_whole
            with self.b.if_then(value):
                self._row(instruction, row, self.group(), self.full, rare=rare)
            self.found_whole = self.found_whole and found_before
        elif row.form is not None:
            self._row(instruction, row, self.b.and_(value, self.group()), False, guarded=True)
        else:
            self._guarded(instruction, row, self.b.and_(value, self.group()), rare)

    def _guarded(self, instruction: Instruction, row: FormRow, active: Any, rare: bool) -> None:
        """An action of the lanes whose guard holds; where a row asks for it, separate from that of a whole warp."""
        b = self.b
        some = b.icmp_unsigned("!=", active, ZERO)
        if rare or row.action is None or not row.action.whole:
            with b.if_then(some):
                self._row(instruction, row, active, False, guarded=True, rare=rare)
            return
        with b.if_else(b.icmp_unsigned("==", active, ALL), likely=True) as (every, not_every):
            with every:
                self._row(instruction, row, ALL, True)
            with not_every, b.if_then(some):
                self._row(instruction, row, active, False, guarded=True, rare=True)

    def _row(self, instruction: Instruction, row: FormRow, active: Any, full: bool, **how: bool) -> None:
        """how: `guarded` and `rare` of `Lanes`."""
        lanes = Lanes(self, instruction, row.op, active, full, **how)
        self.machine.instrument.instruction(lanes, row)
        if row.action is not None:
            if instruction.opcode in whole_warp.OPCODES and not full:
                if row.action.waits(instruction) and not lanes.guarded:
                    whole_warp.gather(lanes)
                whole_warp.need(lanes)
                self.found_whole = self.found_whole or not lanes.guarded
            row.action.emit(lanes)
            if not self.b.block.is_terminated:
                self.machine.instrument.done(lanes, row)
        elif row.form is not None:
            self._scalar(lanes, row.form, row.op)

    def _scalar(self, lanes: Lanes, form: Form, op: Op) -> None:
        """A scalar form: read, compute on scalars or on all lanes, write."""
        results = [r for r in form.results if r != "cc"]
        operands = lanes.operands[1:] if results else lanes.operands
        named = [s for s in form.sources if s != "cc"]
        if not len(named) - form.optional <= len(operands) <= len(named):
            lanes.refuse(f"takes {len(named)} source operands, not {len(operands)}")
        rest = iter(operands)
        values = []
        for kind in form.sources:
            operand = CARRY if kind == "cc" else next(rest, None)
            if operand is not None:
                values.append(lanes.read(operand, "pred" if kind == "cc" else kind))
        if any(is_vector(x) for x in values) and not form.mixed:
            values = [lanes.spread(x) for x in values]
        found = form.emit(self.v, _selecting(op, lanes.operands) if form.selectors else op, *values)
        self._results(lanes, form, found if isinstance(found, tuple) else (found,))

    def _results(self, lanes: Lanes, form: Form, found: tuple[Any, ...]) -> None:
        first = lanes.operands[0]
        targets = iter((first.first, first.second) if isinstance(first, Pair) else (first,))
        for kind, value in zip(form.results, found, strict=True):
            if kind == "cc":
                lanes.write(CARRY, value)
            elif (target := next(targets, None)) is not None:
                lanes.write(
                    target.register if isinstance(target, data.Selected) else target, value, kind.startswith("s")
                )


def _selecting(op: Op, operands: tuple[Operand, ...]) -> Op:
    """The operation with what its operands' names are followed or preceded by."""
    return op._replace(selectors=tuple(o.selector if isinstance(o, data.Selected) else "" for o in operands))
