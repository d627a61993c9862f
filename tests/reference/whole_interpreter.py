"""An interpreter of single threads for all that `nbtc.testing.memory_programs` writes: spaces, calls, matrices."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple

from nbtc.executor.emit.form import WIDTHS, Op
from nbtc.executor.rows import forms
from nbtc.executor.text.data import (
    Address,
    Function,
    Group,
    Immediate,
    Instruction,
    Operand,
    Pair,
    PtxModule,
    Register,
    Sink,
    Special,
    Symbol,
    Variable,
    Vector,
)
from nbtc.executor.text.literals import bits_of
from nbtc.executor.text.parse import parse
from tests.reference import REFERENCE, interpreter
from tests.reference.atomics import ATOMIC
from tests.reference.integers import signed
from tests.reference.interpreter import LANES, Request
from tests.reference.spaces import APART, GLOBAL, WINDOWS, Spaces

Steps = Generator[Request, None, Any]
SPACES = ("global", "shared", "local", "const", "param")
ROW = 8  # rows of a matrix, and its columns
ENDED = "ended"


class Launch(NamedTuple):
    """What all threads of a block share."""

    module: PtxModule
    symbols: Mapping[str, Mapping[str, int]]  # of the module ("") and each function
    shape: tuple[int, int, int]
    specials: Mapping[str, int]


def _modifier(i: Instruction, names: Sequence[str], default: str = "") -> str:
    return next((m for m in i.modifiers if m in names), default)


def _size(i: Instruction) -> int:
    return WIDTHS[i.modifiers[-1]] // 8


class Thread:
    """One thread: registers of the function it is in, and its steps as a generator."""

    def __init__(self, launch: Launch, number: int, spaces: Spaces, arguments: Mapping[str, bytearray]) -> None:
        self.launch, self.spaces, self.lane = launch, spaces, number % LANES
        x, y, _ = launch.shape
        place = {"%tid.x": number % x, "%tid.y": number // x % y, "%tid.z": number // (x * y), "%laneid": self.lane}
        self.specials = {**launch.specials, **place}
        self.registers: dict[str, int] = {}
        self.parameters: dict[str, bytearray] = dict(arguments)
        self.function = ""
        self.answer: dict[int, Any] = {}
        self.carry = 0

    # --- operands ---------------------------------------------------------------------------------------------------
    def read(self, operand: Operand, kind: str) -> int:
        """An operand's bits as a type."""
        mask = (1 << WIDTHS[kind]) - 1
        if isinstance(operand, Register):
            return self.registers[operand.name] & mask
        if isinstance(operand, Immediate):
            return bits_of(operand, kind)
        if isinstance(operand, Special):
            return self.specials[operand.name] & mask
        if isinstance(operand, Symbol):
            known = self.launch.symbols
            found = known[self.function].get(operand.name, known[""].get(operand.name))
            return (found or 0) + operand.offset
        return self.registers[operand.register.name] ^ 1  # type: ignore[union-attr]

    def write(self, operand: Operand, bits: int, kind: str) -> None:
        """A result of a type into a register, extended as the type says."""
        if isinstance(operand, Register):
            number = signed(bits, WIDTHS[kind]) if kind in SIGNED else bits
            self.registers[operand.name] = number % (1 << operand.bits)

    def address(self, operand: Operand) -> int:
        """What `[base + offset]` names."""
        assert isinstance(operand, Address)
        base = operand.base
        return self.read(base, f"b{base.bits}" if isinstance(base, Register) else "b64") + operand.offset

    # --- steps ------------------------------------------------------------------------------------------------------
    def steps(self, function: Function) -> Steps:
        """Run a function to its end, stopping at requests; ENDED if the thread ended in it."""
        body, at = function.body or (), 0
        while at < len(body):
            i = body[at]
            at += 1
            if i.guard is not None and self.registers[i.guard.register.name] == i.guard.negated:
                continue
            if i.opcode == "ret":
                return ""
            if i.opcode == "exit":
                return ENDED
            if i.opcode == "bra":
                at = function.labels[i.operands[0].name]  # type: ignore[union-attr]
            elif i.opcode == "brx":
                table = function.tables[i.operands[1].name]  # type: ignore[union-attr]
                at = function.labels[table[self.read(i.operands[0], "u32")]]
            elif i.opcode == "call":
                if (yield from self.call(i)) == ENDED:
                    return ENDED
            elif i.opcode in ("bar", "barrier") and "warp" not in i.modifiers:
                yield Request("block", at, 0, 0)
            elif (offered := self.offer(i)) is not None:
                mask, value = offered
                yield Request("warp", at, mask, value)
                getattr(self, f"warp_{i.opcode}")(i)
            elif (found := forms.find(i.mnemonic)) is not None:
                self.scalar(i, *found)
            else:
                getattr(self, f"do_{i.opcode}")(i)
        return ""

    def call(self, i: Instruction) -> Steps:
        """A call: the callee has registers of its own, and copies of the parameters."""
        results, name, given = i.operands
        assert isinstance(results, Group)
        assert isinstance(given, Group)
        callee = self.launch.module.functions[name.name]  # type: ignore[union-attr]
        kept = self.registers, self.parameters, self.function
        passed = [self.parameters[x.name] for x in given.elements]  # type: ignore[union-attr]
        self.registers, self.function = {}, callee.name
        self.parameters = {v.name: bytearray(x) for v, x in zip(callee.prototype.arguments, passed, strict=True)}
        ended = yield from self.steps(callee)
        found = [self.parameters[v.name] for v in callee.prototype.results]
        self.registers, self.parameters, self.function = kept
        for x, bits in zip(results.elements, found, strict=True):
            self.parameters[x.name] = bits  # type: ignore[union-attr]
        return ended

    def scalar(self, i: Instruction, form: Any, op: Op) -> None:
        """A row of the scalar tables."""
        written = iter(i.operands[1:])
        sources = [self.carry if t == "cc" else self.read(x, t) for t in form.sources
                   if t == "cc" or (x := next(written, None)) is not None]  # fmt: skip
        found = REFERENCE[op.opcode](op, *sources)
        target = i.operands[0]
        targets = [target.first, target.second] if isinstance(target, Pair) else [target]
        for kind, bits in zip(form.results, found if isinstance(found, tuple) else (found,), strict=True):
            if kind == "cc":
                self.carry = bits
            elif targets:
                self.write(targets.pop(0), bits, kind)

    # --- moves ------------------------------------------------------------------------------------------------------
    def do_mov(self, i: Instruction) -> None:
        """mov, also between a register and its parts."""
        (target, source), kind = i.operands, i.modifiers[-1]
        if isinstance(source, Vector):
            part = WIDTHS[kind] // len(source.elements)
            words = [self.read(x, f"b{part}") << n * part for n, x in enumerate(source.elements)]
            self.write(target, sum(words), kind)
        elif isinstance(target, Vector):
            part, whole = WIDTHS[kind] // len(target.elements), self.read(source, kind)
            for n, x in enumerate(target.elements):
                self.write(x, whole >> n * part & (1 << part) - 1, f"b{part}")
        else:
            self.write(target, self.read(source, kind), "b" + kind[1:] if kind != "pred" else kind)

    def do_cvta(self, i: Instruction) -> None:
        """To a generic address and back."""
        by = WINDOWS[_modifier(i, SPACES)]
        x = self.read(i.operands[1], "b64")
        # global addresses are generic ones
        moved = x if by == GLOBAL else x - by if "to" in i.modifiers else x + by
        self.write(i.operands[0], moved, "b64")

    def do_isspacep(self, i: Instruction) -> None:
        """Whether a generic address lies in a space."""
        window = WINDOWS[i.modifiers[0]]
        self.write(i.operands[0], int(self.read(i.operands[1], "b64") >> 48 == window >> 48), "pred")

    # --- memory -----------------------------------------------------------------------------------------------------
    def parameter(self, operand: Operand) -> tuple[bytearray, int]:
        """A parameter and an offset in it."""
        assert isinstance(operand, Address)
        assert isinstance(operand.base, Symbol)
        return self.parameters[operand.base.name], operand.base.offset + operand.offset

    def do_ld(self, i: Instruction) -> None:
        """ld of one or several elements."""
        target, size, space = i.operands[0], _size(i), _modifier(i, SPACES)
        targets = target.elements if isinstance(target, Vector) else (target,)
        if space == "param":
            memory, at = self.parameter(i.operands[1])
        else:
            memory, at = self.spaces.place(space, self.address(i.operands[1]), size * len(targets))
        for n, x in enumerate(targets):
            self.write(x, int.from_bytes(memory[at + n * size : at + n * size + size], "little"), i.modifiers[-1])

    def do_st(self, i: Instruction) -> None:
        """st of one or several elements."""
        source, size, space = i.operands[1], _size(i), _modifier(i, SPACES)
        sources = source.elements if isinstance(source, Vector) else (source,)
        if space == "param":
            assert isinstance(i.operands[0], Address)
            name = i.operands[0].base.name  # type: ignore[union-attr]
            at = i.operands[0].offset
            memory = self.parameters.setdefault(name, bytearray())
            memory.extend(bytes(max(0, at + size * len(sources) - len(memory))))
        else:
            memory, at = self.spaces.place(space, self.address(i.operands[0]), size * len(sources))
        for n, x in enumerate(sources):
            memory[at + n * size : at + n * size + size] = self.read(x, i.modifiers[-1]).to_bytes(size, "little")

    def do_atom(self, i: Instruction) -> None:
        """An atomic operation; `red` has no result."""
        target, place, *values = i.operands if i.opcode == "atom" else (Sink(), *i.operands)
        kind, size, space = i.modifiers[-1], _size(i), _modifier(i, SPACES)
        address = self.address(place)
        old = self.spaces.load(space, address, size)
        name = next(m for m in i.modifiers if m in ATOMIC)
        in_global = self.spaces.place(space, address, size)[0] in self.spaces.arrays
        new = ATOMIC[name](kind, in_global, old, *(self.read(x, kind) for x in values))
        self.spaces.store(space, address, size, new)
        self.write(target, old, "b" + str(8 * size))

    do_red = do_atom

    def do_cp(self, i: Instruction) -> None:
        """cp.async, which is done at once: nothing looks before a wait."""
        if "ca" in i.modifiers or "cg" in i.modifiers:
            size = self.read(i.operands[2], "u32")
            taken = self.read(i.operands[3], "u32") if len(i.operands) > 3 else size
            word = self.spaces.load("global", self.address(i.operands[1]), size) & (1 << 8 * taken) - 1
            self.spaces.store("shared", self.address(i.operands[0]), size, word)
        elif "bulk" in i.modifiers and len(i.operands) > 2:
            to, source = ("shared", "global") if "mbarrier::complete_tx::bytes" in i.modifiers else ("global", "shared")
            for n in range(0, self.read(i.operands[2], "u32"), 16):
                word = self.spaces.load(source, self.address(i.operands[1]) + n, 16)
                self.spaces.store(to, self.address(i.operands[0]) + n, 16, word)

    def do_mbarrier(self, i: Instruction) -> None:
        """What waits for copies, which are done at once: no wait is in vain."""
        if "try_wait" in i.modifiers:
            self.write(i.operands[0], 1, "pred")

    def do_fence(self, i: Instruction) -> None:
        """A fence: all is in order anyway."""

    # --- warps ------------------------------------------------------------------------------------------------------
    def offer(self, i: Instruction) -> tuple[int, Any] | None:
        """The mask of a warp instruction and what this lane gives to the others; None for other instructions."""
        mask = self.read(i.operands[-1], "b32") if i.opcode in MASKED or "warp" in i.modifiers else (1 << LANES) - 1
        if i.opcode in ("shfl", "redux"):
            return mask, self.read(i.operands[1], "b32")
        if i.opcode == "vote":
            return mask, self.read(i.operands[1], "pred")
        if i.opcode == "match":
            return mask, self.read(i.operands[1], i.modifiers[-1])
        if i.opcode == "movmatrix":
            return mask, (self.read(i.operands[1], "b32"),)
        if i.opcode == "stmatrix":
            return mask, tuple(self.read(x, "b32") for x in _elements(i.operands[1]))
        if i.opcode == "ldmatrix":
            rows = ROW * len(_elements(i.operands[0]))
            return mask, self.spaces.load("shared", self.address(i.operands[1]), 16) if self.lane < rows else 0
        return (mask, 0) if i.opcode == "bar" else None

    def warp_bar(self, i: Instruction) -> None:
        """bar.warp.sync"""

    def warp_shfl(self, i: Instruction) -> None:
        """shfl.sync, as the ISA's pseudo-code has it."""
        b, c = (self.read(n, "b32") for n in i.operands[2:4])
        mode, segment, place = i.modifiers[1], c >> 8 & 31, b & 31
        low, high = self.lane & segment, (self.lane & segment) | (c & 31 & ~segment)
        ways = {"up": self.lane - place, "down": self.lane + place, "bfly": self.lane ^ place}
        j = ways.get(mode, low | place & ~segment)
        inside = j >= high if mode == "up" else j <= high
        self.pair(i.operands[0], self.answer[j if inside else self.lane], int(inside))

    def pair(self, target: Operand, bits: int, second: int) -> None:
        """A result, with a predicate beside it or without."""
        first, beside = (target.first, target.second) if isinstance(target, Pair) else (target, Sink())
        self.write(first, bits, "b32")
        self.write(beside, second, "pred")

    def warp_vote(self, i: Instruction) -> None:
        """vote.sync"""
        values = self.answer
        every, any_ = all(values.values()), any(values.values())
        ballot = sum(x << lane for lane, x in values.items())
        found = {"ballot": ballot, "all": int(every), "any": int(any_), "uni": int(every or not any_)}
        self.write(i.operands[0], found[i.modifiers[1]], i.modifiers[-1])

    def warp_match(self, i: Instruction) -> None:
        """match.sync"""
        mine = self.answer[self.lane]
        equal = sum(1 << lane for lane, x in self.answer.items() if x == mine)
        if i.modifiers[0] == "any":
            self.write(i.operands[0], equal, "b32")
        else:
            every = all(x == mine for x in self.answer.values())
            self.pair(i.operands[0], equal if every else 0, int(every))

    def warp_redux(self, i: Instruction) -> None:
        """redux.sync"""
        first, *others = self.answer.values()
        for x in others:
            first = ATOMIC[i.modifiers[1]](i.modifiers[2], False, first, x)
        self.write(i.operands[0], first, "b32")

    def warp_ldmatrix(self, i: Instruction) -> None:
        """Two elements of each matrix: row lane / 4, columns 2 * (lane % 4) and the next; turned, of its transpose."""
        for n, target in enumerate(_elements(i.operands[0])):
            rows = [self.answer[n * ROW + r] for r in range(ROW)]
            matrix = [[row >> 16 * c & 0xFFFF for c in range(ROW)] for row in rows]
            self.write(target, _fragment(matrix, self.lane, "trans" in i.modifiers), "b32")

    def warp_stmatrix(self, i: Instruction) -> None:
        """The inverse: this lane's row of a matrix, to its address."""
        n, r = divmod(self.lane, ROW)
        if n < len(_elements(i.operands[1])):
            row = _matrix([self.answer[lane][n] for lane in range(LANES)], "trans" in i.modifiers)[r]
            self.spaces.store("shared", self.address(i.operands[0]), 16, sum(x << 16 * c for c, x in enumerate(row)))

    def warp_movmatrix(self, i: Instruction) -> None:
        """A matrix turned."""
        matrix = _matrix([self.answer[lane][0] for lane in range(LANES)], False)
        self.write(i.operands[0], _fragment(matrix, self.lane, True), "b32")


MASKED = ("shfl", "vote", "match", "redux")
SIGNED = frozenset(f"s{n}" for n in (8, 16, 32, 64))


def _elements(operand: Operand) -> tuple[Operand, ...]:
    return operand.elements if isinstance(operand, Vector) else (operand,)


def _fragment(matrix: list[list[int]], lane: int, turned: bool) -> int:
    r, c = lane // 4, 2 * (lane % 4)
    low, high = (matrix[c][r], matrix[c + 1][r]) if turned else (matrix[r][c], matrix[r][c + 1])
    return low | high << 16


def _matrix(words: list[int], turned: bool) -> list[list[int]]:
    rows = [[words[4 * r + c // 2] >> 16 * (c % 2) & 0xFFFF for c in range(ROW)] for r in range(ROW)]
    return [list(column) for column in zip(*rows, strict=True)] if turned else rows


# --- launches -------------------------------------------------------------------------------------------------------
def _laid_out(variables: Sequence[Variable], space: str, start: int = 0) -> tuple[dict[str, int], int]:
    found = {}
    for v in variables:
        if v.space == space:
            start += -start % max(v.align, 16)
            found[v.name] = start
            start += v.bytes
    return found, start


def _contents(v: Variable) -> bytes:
    size = WIDTHS[v.type] // 8
    words = b"".join(x.value.to_bytes(size, "little") for x in v.initial)  # type: ignore[union-attr]
    return words + bytes(v.bytes - len(words))


def run(text: str, kernel: str, grid: int, shape: tuple[int, int, int], arrays: Sequence[bytearray]) -> None:
    """Launch a kernel that takes pointers to arrays, which it changes."""
    module = parse(text)
    function = module.functions[kernel]
    known: dict[str, dict[str, int]] = {name: {} for name in ("", *module.functions)}
    variables = tuple(module.variables.values())
    constants, _ = _laid_out(variables, "const")
    const = bytearray()
    for v in variables:
        if v.space == "const":
            const += bytes(constants[v.name] - len(const)) + _contents(v)
    shared, size = _laid_out(function.variables, "shared")
    local, depth = _laid_out(function.variables, "local")
    known[""], known[kernel] = constants, {**shared, **local}
    pointers = [(GLOBAL + (n << APART)).to_bytes(8, "little") for n in range(len(arrays))]
    arguments = {v.name: bytearray(p) for v, p in zip(function.prototype.arguments, pointers, strict=True)}
    threads = shape[0] * shape[1] * shape[2]
    for block in range(grid):
        specials = {
            "%ctaid.x": block,
            "%nctaid.x": grid,
            **{f"%ntid.{c}": n for c, n in zip("xyz", shape, strict=True)},
        }
        launch, memory = Launch(module, known, shape, specials), bytearray(size)
        all_threads = [Thread(launch, n, Spaces(arrays, memory, const, depth), arguments) for n in range(threads)]
        for thread in all_threads:
            thread.function = kernel
        interpreter.run_threads(all_threads, [thread.steps(function) for thread in all_threads])
