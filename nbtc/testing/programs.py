"""Random structured PTX programs whose result no schedule changes: divergence, loops, breaks, early exits, barriers in
loops, warp instructions, atomics."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

VALUES = 6  # registers a program computes with
BINARY = (
    "add.s32",
    "sub.s32",
    "mul.lo.s32",
    "and.b32",
    "or.b32",
    "xor.b32",
    "min.s32",
    "max.u32",
    "mul.hi.u32",
    "shl.b32",
)
TERNARY = ("mad.lo.s32", "lop3.b32", "shf.l.wrap.b32", "bfe.u32", "prmt.b32", "sad.s32", "dp4a.u32.s32")
COMPARISONS = ("lt.s32", "gt.u32", "eq.s32", "ne.u32", "ge.s32", "le.u32")


class Program(NamedTuple):
    """PTX with one kernel `k` that takes a pointer to VALUES words a thread, and its launch."""

    text: str
    grid: int
    block: int

    @property
    def words(self) -> int:
        """Words of the array: those of every thread, then the words that atomics go to."""
        return self.grid * self.block * VALUES + VALUES


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.lines: list[str] = []
        self.labels = self.counters = self.predicates = 0
        self.block = int(self.rng.choice([32, 64, 96, 50]))
        self.grid = int(self.rng.integers(1, 4))
        # warp instructions and early exits don't mix: a mask may name only lanes that are there
        self.exits = bool(self.rng.random() < 0.25) or self.block % 32 != 0
        self.size = 0

    def pick(self, *choices: str) -> str:
        return str(self.rng.choice(list(choices)))

    def value(self) -> str:
        return f"%v{self.rng.integers(VALUES)}"

    def source(self) -> str:
        return self.value() if self.rng.random() < 0.75 else str(int(self.rng.integers(-40, 100)))

    def label(self) -> str:
        self.labels += 1
        return f"L{self.labels}"

    def put(self, line: str) -> None:
        self.lines.append(line)

    def predicate(self, a: str | None = None) -> str:
        self.predicates += 1
        name = f"%p{self.predicates}"
        self.put(f"setp.{self.pick(*COMPARISONS)} {name}, {a or self.value()}, {self.source()};")
        return name

    def arithmetic(self) -> None:
        guard = f"@{self.predicate()} " if self.rng.random() < 0.15 else ""
        d, a, b, c = self.value(), self.value(), self.source(), self.source()
        if self.rng.random() < 0.7:
            op = self.pick(*BINARY)
            self.put(f"{guard}{op} {d}, {a}, {b if op != 'shl.b32' else int(self.rng.integers(34))};")
        else:
            op = self.pick(*TERNARY)
            if op.startswith("bfe"):  # assemblers take no negative position or length
                b, c = b.removeprefix("-"), c.removeprefix("-")
            last = f"{c}, {int(self.rng.integers(256))}" if op.startswith("lop3") else c
            self.put(f"{guard}{op} {d}, {a}, {b}, {last};")

    # --- structures -------------------------------------------------------------------------------------------------
    def statements(self, depth: int, uniform: bool, in_loop: str = "") -> None:
        """A few statements; `uniform`: all threads of the block are here together; in_loop: the label after it."""
        for _ in range(int(self.rng.integers(1, 5))):
            self.size += 1
            kinds = [self.arithmetic, self.arithmetic, self.atomic]
            if depth and self.size < 40:
                kinds += [lambda: self.branch(depth, in_loop), lambda: self.loop(depth, uniform)]
            if uniform:
                kinds.append(self.exchange)
                if not self.exits:
                    kinds += [self.warp, lambda: self.subset(depth)] * 2
            if in_loop and not uniform:
                kinds.append(lambda: self.put(f"@{self.predicate()} bra {in_loop};"))
            if self.exits and self.rng.random() < 0.1:
                kinds.append(lambda: self.put(f"@{self.predicate()} bra DONE;"))
            kinds[self.rng.integers(len(kinds))]()

    def branch(self, depth: int, in_loop: str) -> None:
        other, end = self.label(), self.label()
        self.put(f"@{self.pick('', '!')}{self.predicate()} bra {other};")
        self.statements(depth - 1, False, in_loop)
        if self.rng.random() < 0.6:
            self.put(f"bra {end};")
            self.put(f"{other}:")
            self.statements(depth - 1, False, in_loop)
        else:
            self.put(f"{other}:")
        self.put(f"{end}:")

    def loop(self, depth: int, uniform: bool) -> None:
        """A counted loop; of a number of rounds that differs between threads, unless all have to stay together."""
        self.counters += 1
        count, top, end = f"%c{self.counters}", self.label(), self.label()
        together = uniform and self.rng.random() < 0.6
        if together:
            self.put(f"mov.u32 {count}, {int(self.rng.integers(1, 4))};")
        else:
            self.put(f"and.b32 {count}, {self.value()}, 3;")
        self.put(f"{top}:")
        self.statements(depth - 1, together, "" if together else end)
        self.put(f"sub.s32 {count}, {count}, 1;")
        self.predicates += 1
        self.put(f"setp.gt.s32 %p{self.predicates}, {count}, 0;")
        self.put(f"@%p{self.predicates} bra {top};")
        self.put(f"{end}:")

    def exchange(self) -> None:
        """Another thread's value through shared memory, between barriers."""
        a = self.value()
        self.put(f"st.shared.u32 [%own], {a};")
        self.put("bar.sync 0;" if self.rng.random() < 0.8 else "barrier.sync 1;")
        self.put(f"ld.shared.u32 {self.value()}, [%other];")
        self.put("bar.sync 0;")

    def warp(self) -> None:
        self.collective("0xffffffff")
        if self.rng.random() < 0.7:
            mode = self.pick("up", "down", "bfly", "idx")
            clamp = "0" if mode == "up" else "31"
            self.put(f"shfl.sync.{mode}.b32 {self.value()}, {self.value()}, {self.source()}, {clamp}, 0xffffffff;")

    def collective(self, mask: str) -> None:
        if self.rng.random() < 0.5:
            self.put(f"redux.sync.{self.pick('add.u32', 'min.u32', 'xor.b32', 'or.b32')} "
                     f"{self.value()}, {self.value()}, {mask};")  # fmt: skip
        else:
            p = self.predicate()
            self.put(f"vote.sync.ballot.b32 {self.value()}, {p}, {mask};")

    def subset(self, depth: int) -> None:
        """Warp instructions of the lanes that took a branch, which the mask names."""
        p, end = self.predicate(), self.label()
        self.put(f"vote.sync.ballot.b32 %mask, {p}, 0xffffffff;")
        self.put(f"@!{p} bra {end};")
        self.arithmetic()
        self.collective("%mask")
        self.put(f"{end}:")

    def atomic(self) -> None:
        """Operations whose order does not matter, one kind a word."""
        word = int(self.rng.integers(VALUES))
        kind = ("add.u32", "min.u32", "max.u32", "xor.b32", "or.b32", "and.b32")[word]
        self.put(f"red.global.{kind} [%words+{4 * word}], {self.source()};")

    def program(self) -> Program:
        self.statements(3, True)
        threads = self.grid * self.block
        head = [
            ".version 8.0", ".target sm_80", ".address_size 64",
            ".visible .entry k(.param .u64 array)", "{",
            f".reg .pred %p<{self.predicates + 1}>;", f".reg .b32 %c<{self.counters + 1}>, %v<{VALUES}>;",
            ".reg .b32 %mask, %own, %other, %number, %base;", ".reg .b64 %words, %mine, %offset;",
            f".shared .align 4 .b8 buffer[{4 * self.block}];",
            "ld.param.u64 %words, [array];", "cvta.to.global.u64 %words, %words;",
            "mov.u32 %number, %tid.x;", "mov.u32 %base, buffer;",
            # a thread that ends early leaves its word of the buffer to others
            "mad.lo.u32 %own, %number, 4, %base;", "st.shared.u32 [%own], %number;", "bar.sync 0;",
            f"add.u32 %other, %number, {int(self.rng.integers(1, self.block))};",
            f"rem.u32 %other, %other, {self.block};", "mad.lo.u32 %other, %other, 4, %base;",
            "mov.u32 %base, %ctaid.x;", f"mad.lo.u32 %number, %base, {self.block}, %number;",
            f"mul.wide.u32 %offset, %number, {4 * VALUES};", "add.s64 %mine, %words, %offset;",
            f"add.s64 %words, %words, {4 * VALUES * threads};",
            *(f"ld.global.u32 %v{i}, [%mine+{4 * i}];" for i in range(VALUES)),
        ]  # fmt: skip
        tail = ["DONE:", *(f"st.global.u32 [%mine+{4 * i}], %v{i};" for i in range(VALUES)), "ret;", "}"]
        return Program("\n".join((*head, *self.lines, *tail, "")), self.grid, self.block)


def random_program(seed: int) -> Program:
    """A program, the same for the same seed."""
    return _Writer(seed).program()
