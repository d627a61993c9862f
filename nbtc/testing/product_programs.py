"""Random PTX programs of matrix products over so few registers that operands and results are often the same ones.

What an executor keeps of operands from one product to the next has to be made anew once one of their registers changes.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nbtc.instructions import Instruction, instructions

REGISTERS = 14  # of a thread; the longest operand, C of m8n8k4 in f32, has eight
MODERATE = 0xBFFFBFFF  # the bits of two halves, or of one f32, that are kept so that no number is Inf or NaN
METADATA = 0x4E4E4E4E  # of sparse products: elements 0 and 1 of four, or 2 and 3; of two, the first or the second
BETWEEN = {  # what stands between products: d of a, and the number of the lane
    "and": f"and.b32 {{0}}, {{1}}, {MODERATE};",
    "add": "add.u32 {0}, {1}, %t;",
    "shfl": "shfl.sync.bfly.b32 {0}, {1}, 5, 31, 0xffffffff;",
}


class Step(NamedTuple):
    """A product, or one of `BETWEEN`.

    guard: "", or a predicate that always or never holds.  opcode: a mnemonic of `mma` or `mma.sp`, or a key of
    `BETWEEN`.  registers: the numbers of those of D, A, B and C, or of one result and one source.
    """

    guard: str
    opcode: str
    registers: tuple[tuple[int, ...], ...]

    def __str__(self) -> str:
        if self.opcode in BETWEEN:
            return f"{self.guard} {BETWEEN[self.opcode].format(*(f'%r{n}' for (n,) in self.registers))}"
        lists = ("{" + ", ".join(f"%r{n}" for n in numbers) + "}" for numbers in self.registers)
        more = ", %meta, 0x0" if self.opcode.startswith("mma.sp") else ""
        return f"{self.guard} {self.opcode} {', '.join(lists)}{more};"


class ProductProgram(NamedTuple):
    """PTX with one kernel `k` of one warp a block, and what it does: lists of steps, each so many times.

    The kernel takes a pointer to REGISTERS words a thread, which it changes.
    """

    text: str
    loops: tuple[tuple[int, tuple[Step, ...]], ...]


class _Writer:
    def __init__(self, seed: int, arch: str) -> None:
        self.rng = np.random.default_rng(seed)
        known: dict[str, list[Instruction]] = {}  # by their formats, of which the integers' have most of the forms
        for form in (*instructions(family="mma", arch=arch), *instructions(family="mma.sp", arch=arch)):
            a, d = form.a, form.d
            if form.executable and a and d and d.format.bits <= 32:  # f64 has wider registers
                known.setdefault(a.format.name, []).append(form)
        chosen = (list(known.values())[n] for n in self.rng.integers(len(known), size=2))
        self.forms = [some[self.rng.integers(len(some))] for some in chosen]
        self.used: dict[int, list[tuple[int, ...]]] = {}

    def some(self, count: int) -> tuple[int, ...]:
        """Numbers of registers, which an operand before often had."""
        known = self.used.setdefault(count, [])
        if not known or self.rng.random() < 0.3:
            known.append(tuple(int(n) for n in self.rng.choice(REGISTERS, count, replace=False)))
        return known[self.rng.integers(len(known))]

    def step(self) -> Step:
        guard = str(self.rng.choice(["", "@%yes", "@%no"], p=[0.9, 0.05, 0.05]))
        if self.rng.random() < 0.25:
            return Step(guard, str(self.rng.choice(list(BETWEEN))), (self.some(1), self.some(1)))
        form = self.forms[self.rng.integers(len(self.forms))]
        c = self.some(form.c.registers)
        d = c if self.rng.random() < 0.6 and form.d.registers == len(c) else self.some(form.d.registers)
        return Step(guard, form.mnemonic, (d, self.some(form.a.registers), self.some(form.b.registers), c))

    def loop(self) -> tuple[int, tuple[Step, ...]]:
        return int(self.rng.integers(1, 3)), tuple(self.step() for _ in range(self.rng.integers(2, 10)))


def _text(loops: tuple[tuple[int, tuple[Step, ...]], ...], arch: str) -> str:
    words = [f"[%mine+{4 * n}]" for n in range(REGISTERS)]
    body: list[Any] = [
        ".version 8.7", f".target {arch}", ".address_size 64", ".visible .entry k(.param .u64 array)", "{",
        f".reg .b32 %r<{REGISTERS}>, %t, %number, %zero, %left, %meta;", ".reg .pred %yes, %no, %more;",
        ".reg .b64 %mine;",
        "ld.param.u64 %mine, [array];", "cvta.to.global.u64 %mine, %mine;", "mov.u32 %t, %tid.x;",
        f"mov.b32 %meta, {METADATA};", "mov.u32 %number, %ctaid.x;", "mad.lo.u32 %number, %number, 32, %t;",
        f"mad.wide.u32 %mine, %number, {4 * REGISTERS}, %mine;", "and.b32 %zero, %t, 0;",
        "setp.eq.u32 %yes, %zero, 0;", "setp.ne.u32 %no, %zero, 0;",
        *(f"ld.global.b32 %r{n}, {word};" for n, word in enumerate(words)),
    ]  # fmt: skip
    for n, (times, steps) in enumerate(loops):
        body += [f"mov.u32 %left, {times};", f"L{n}:", *steps]
        body += ["sub.u32 %left, %left, 1;", "setp.ne.u32 %more, %left, 0;", f"@%more bra L{n};"]
    body += [*(f"st.global.b32 {word}, %r{n};" for n, word in enumerate(words)), "ret;", "}", ""]
    return "\n".join(map(str, body))


def random_product_program(seed: int, arch: str = "sm_90") -> ProductProgram:
    """A program for an architecture, the same for the same seed."""
    writer = _Writer(seed, arch)
    loops = tuple(writer.loop() for _ in range(3))
    return ProductProgram(_text(loops, arch), loops)
