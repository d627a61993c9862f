"""A slow interpreter of PTX, one thread at a time, in Python integers: what the machine is compared with.

It shares the parser with the machine and nothing else.  Threads are generators that stop where they need others: at a
barrier, or at a warp instruction until every live lane its mask names has come to one.  It knows global and shared
memory, the scalar instructions of `tests.reference`, and the forms that `nbtc.testing.programs` writes.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import UnsupportedInstructionError
from nbtc.executor.emit.form import WIDTHS
from nbtc.executor.rows import forms
from nbtc.executor.text.data import (
    Address,
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    Register,
    Special,
    Symbol,
)
from nbtc.executor.text.literals import bits_of
from nbtc.executor.text.parse import parse
from tests.reference import REFERENCE
from tests.reference.integers import signed

LANES = 32
GLOBAL = 1 << 40  # where the one array lies
ATOMIC = {
    "add": lambda old, x, width: (old + x) % (1 << width),
    "min": lambda old, x, width: min(old, x),
    "max": lambda old, x, width: max(old, x),
    "and": lambda old, x, width: old & x,
    "or": lambda old, x, width: old | x,
    "xor": lambda old, x, width: old ^ x,
}


class Request(NamedTuple):
    """What a thread waits for: a barrier ("block"), or its warp ("warp") with a value for the others to see."""

    kind: str
    at: int
    mask: int
    value: Any


class Block(NamedTuple):
    """What the threads of a block share."""

    function: Function
    memory: bytearray
    shared: bytearray
    symbols: dict[str, int]
    parameters: dict[str, int]
    specials: dict[str, int]


class Thread:
    """One thread: its registers, and its steps as a generator."""

    def __init__(self, block: Block, number: int) -> None:
        self.block, self.lane = block, number % LANES
        self.registers: dict[str, int] = {}
        self.specials = {**block.specials, "%tid.x": number, "%laneid": self.lane}
        self.answer: dict[int, int] = {}  # lane -> value, of the last warp request
        self.carry = 0

    # --- operands ---------------------------------------------------------------------------------------------------
    def read(self, operand: Operand, kind: str) -> int:
        """An operand's bits as a type."""
        mask = (1 << WIDTHS[kind]) - 1
        if isinstance(operand, Register):
            return self.registers.get(operand.name, 0) & mask
        if isinstance(operand, Not):
            return self.registers.get(operand.register.name, 0) ^ 1
        if isinstance(operand, Immediate):
            return bits_of(operand, kind)
        if isinstance(operand, Special):
            return self.specials[operand.name] & mask
        if isinstance(operand, Symbol):
            return self.block.symbols[operand.name] + operand.offset
        raise UnsupportedInstructionError(f"no lane of the interpreter reads {operand}: it takes registers and numbers")

    def write(self, operand: Operand, bits: int, kind: str) -> None:
        """A result of a type into a register, extended as the type says."""
        if isinstance(operand, Register):
            number = signed(bits, WIDTHS[kind]) if kind.startswith("s") else bits
            self.registers[operand.name] = number % (1 << operand.bits)

    def place(self, operand: Operand, space: str) -> tuple[bytearray, int]:
        """Memory and offset of an address."""
        if not isinstance(operand, Address):
            raise NotImplementedError(f"address {operand}")
        at = self.read(operand.base, "u64") + operand.offset
        return (self.block.shared, at) if space == "shared" else (self.block.memory, at - GLOBAL)

    # --- instructions -----------------------------------------------------------------------------------------------
    def steps(self) -> Generator[Request, None, None]:
        """Run to the end, stopping at requests."""
        body = self.block.function.body or ()
        at = 0
        while at < len(body):
            i = body[at]
            at += 1
            if i.guard is not None and self.registers.get(i.guard.register.name, 0) == i.guard.negated:
                continue
            if i.opcode in ("ret", "exit"):
                return
            if i.opcode == "bra":
                target = i.operands[0]
                at = self.block.function.labels[target.name if isinstance(target, Symbol) else ""]
            elif i.opcode in ("bar", "barrier"):
                yield Request("block", at, 0, 0)
            elif i.opcode in ("shfl", "vote", "redux"):
                yield self.request(i, at)
                self.together(i)
            elif (found := forms.find(i.mnemonic)) is not None:
                self.scalar(i, *found)
            else:
                getattr(self, f"do_{i.opcode}")(i)

    def scalar(self, i: Instruction, form: Any, op: Any) -> None:
        """A row of the scalar tables."""
        written = iter(i.operands[1:])
        sources = [self.carry if t == "cc" else self.read(next(written), t) for t in form.sources]
        found = REFERENCE[op.opcode](op, *sources)
        results = list(found if isinstance(found, tuple) else (found,))
        target = i.operands[0]
        targets = [target.first, target.second] if isinstance(target, Pair) else [target]
        for kind, bits in zip(form.results, results, strict=True):
            if kind == "cc":
                self.carry = bits
            elif targets:
                self.write(targets.pop(0), bits, kind)

    def do_mov(self, i: Instruction) -> None:
        """mov of one register."""
        kind = i.modifiers[-1]
        self.write(i.operands[0], self.read(i.operands[1], kind), kind)

    do_cvta = do_mov  # global addresses are generic ones

    def do_ld(self, i: Instruction) -> None:
        """ld of one value."""
        kind = i.modifiers[-1]
        if i.modifiers[0] == "param":
            base = i.operands[1].base if isinstance(i.operands[1], Address) else None
            self.write(i.operands[0], self.block.parameters[base.name if isinstance(base, Symbol) else ""], kind)
            return
        memory, at = self.place(i.operands[1], i.modifiers[0])
        self.write(i.operands[0], int.from_bytes(memory[at : at + WIDTHS[kind] // 8], "little"), kind)

    def do_st(self, i: Instruction) -> None:
        """st of one value."""
        kind = i.modifiers[-1]
        memory, at = self.place(i.operands[0], i.modifiers[0])
        memory[at : at + WIDTHS[kind] // 8] = self.read(i.operands[1], kind).to_bytes(WIDTHS[kind] // 8, "little")

    def do_red(self, i: Instruction) -> None:
        """red: an atomic operation without a result."""
        space, operation, kind = i.modifiers
        memory, at = self.place(i.operands[0], space)
        size = WIDTHS[kind] // 8
        old = int.from_bytes(memory[at : at + size], "little")
        new = ATOMIC[operation](old, self.read(i.operands[1], kind), WIDTHS[kind])
        memory[at : at + size] = new.to_bytes(size, "little")

    def request(self, i: Instruction, at: int) -> Request:
        """What a warp instruction asks of its warp."""
        kind = "pred" if i.opcode == "vote" else "b32"
        return Request("warp", at, self.read(i.operands[-1], "b32"), self.read(i.operands[1], kind))

    def together(self, i: Instruction) -> None:
        """The result of a warp instruction, from the lanes' values."""
        values = self.answer
        mode, kind = i.modifiers[1], i.modifiers[-1]
        if i.opcode == "redux":
            total = 0 if mode not in ("min", "max", "and") else next(iter(values.values()))
            for x in values.values():
                total = ATOMIC[mode](total, x, 32)
            self.write(i.operands[0], total, kind)
        elif i.opcode == "vote":
            ballot = sum(x << lane for lane, x in values.items())
            every = all(values.values())
            found = {"all": every, "any": any(values.values()), "uni": every or not any(values.values())}
            self.write(i.operands[0], ballot if mode == "ballot" else int(found[mode]), kind)
        else:
            self.shuffle(i, values, mode)

    def shuffle(self, i: Instruction, values: dict[int, int], mode: str) -> None:
        """shfl.sync, as the ISA's pseudo-code has it."""
        b, c = (self.read(n, "b32") for n in i.operands[2:4])
        segment = c >> 8 & 31
        low, high = self.lane & segment, (self.lane & segment) | (c & 31 & ~segment)
        place = b & 31
        j = {"up": self.lane - place, "down": self.lane + place, "bfly": self.lane ^ place}.get(
            mode, low | place & ~segment
        )
        inside = j >= high if mode == "up" else j <= high
        self.write(i.operands[0], values[j if inside else self.lane], "b32")


def run(text: str, kernel: str, grid: int, block: int, array: NDArray[Any]) -> NDArray[Any]:
    """The array after a launch of a kernel whose one parameter is a pointer to it."""
    module = parse(text)
    function = module.functions[kernel]
    memory = bytearray(array.tobytes())
    symbols, size = {}, 0
    for v in (*module.variables.values(), *function.variables):
        if v.space == "shared":
            symbols[v.name] = size
            size += v.bytes + -v.bytes % 16
    for number in range(grid):
        shared = bytearray(size)
        specials = {"%ctaid.x": number, "%ntid.x": block, "%nctaid.x": grid}
        parameters = {function.prototype.arguments[0].name: GLOBAL}
        _run_block(Block(function, memory, shared, symbols, parameters, specials), block)
    return np.frombuffer(bytes(memory), array.dtype).reshape(array.shape)


def _run_block(block: Block, count: int) -> None:
    threads = [Thread(block, number) for number in range(count)]
    run_threads(threads, [thread.steps() for thread in threads])


def run_threads(threads: Sequence[Any], programs: Sequence[Generator[Request, None, Any]]) -> None:
    """The threads of a block, each with an `answer` for what its requests are answered with, to their ends."""
    steps = dict(enumerate(programs))
    waiting: dict[int, Request] = {}
    while steps:
        for number in [n for n in steps if n not in waiting]:
            request = next(steps[number], None)
            if request is None:
                del steps[number]
            else:
                waiting[number] = request
        released = _met(threads, steps, waiting)
        if not released and waiting and len(waiting) == len(steps):
            raise RuntimeError(f"deadlock: {waiting}")
        for number in released:
            del waiting[number]


def _met(threads: Sequence[Any], live: Any, waiting: dict[int, Request]) -> list[int]:
    """Threads whose request is met: all threads at the barrier, or all live lanes of the mask at the instruction."""
    if waiting and len(waiting) == len(live) and all(r.kind == "block" for r in waiting.values()):
        return list(waiting)
    released = []
    for number, request in waiting.items():
        if request.kind == "warp":
            base = number - number % LANES
            named = [base + lane for lane in range(LANES) if request.mask >> lane & 1 and base + lane in live]
            if all(waiting.get(n, Request("", 0, 0, 0))[:3] == request[:3] for n in named):
                threads[number].answer = {n % LANES: waiting[n].value for n in named}
                released.append(number)
    return released
