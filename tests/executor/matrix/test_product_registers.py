"""Products over so few registers that operands and results are often the same, with other instructions between them.

What a program keeps of operands from one product to the next must be made anew once a register of theirs has changed.
"""

from typing import NamedTuple

import numpy as np
import pytest

import nbtc
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma
from nbtc.testing import assert_bits_equal

REGISTERS, LANES = 14, np.arange(32, dtype=np.uint32)
FORMS = [
    "m16n8k16.row.col.f32.f16.f16.f32",
    "m16n8k8.row.col.f16.f16.f16.f16",
    "m16n8k16.row.col.f16.f16.f16.f16",
    "m16n8k16.row.col.f32.bf16.bf16.f32",
    "m16n8k4.row.col.f32.tf32.tf32.f32",
    "m16n8k32.row.col.f32.e4m3.e5m2.f32",
    "m16n8k32.row.col.s32.s8.s8.s32",
    "m8n8k4.row.col.f16.f16.f16.f16",
]
MODERATE = 0xBFFFBFFF  # of two halves, or one tf32: no Inf and no NaN
HEAD = ".version 8.5\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 P0, .param .u64 P1)"


class Step(NamedTuple):
    """An instruction: a guard that always or never holds, a form or another opcode, and numbers of registers."""

    guard: str
    what: str
    registers: tuple[tuple[int, ...], ...]

    @property
    def line(self):
        """The step in PTX."""
        names = ["{" + ", ".join(f"%r{n}" for n in numbers) + "}" for numbers in self.registers]
        if self.what in FORMS:
            return f"{self.guard} mma.sync.aligned.{self.what} {', '.join(names)};"
        d, a = (f"%r{numbers[0]}" for numbers in self.registers)
        more = {"and": f"and.b32 {d}, {a}, {MODERATE}", "shfl": f"shfl.sync.bfly.b32 {d}, {a}, 5, 31, -1"}
        return f"{self.guard} {more.get(self.what, f'add.u32 {d}, {a}, %t')};"

    def execute(self, registers):
        """Change `registers`, [register][lane]; products are those of the code without vectors."""
        if self.guard == "@%no":
            return
        d, *read = self.registers
        if self.what in FORMS:
            registers[list(d)] = product(self.what, [registers[list(numbers)] for numbers in read])
            return
        x = registers[read[0][0]]
        registers[d[0]] = {"and": x & np.uint32(MODERATE), "shfl": x[LANES ^ 5]}.get(self.what, x + LANES)


def product(form, operands):
    """D, [register][lane]."""
    row = nbtc.instruction(f"mma.sync.aligned.{form}").row
    words = [flat(np.ascontiguousarray(x.T)[None], 2, (1,)) for x in operands]
    d = np.empty((32, len(operands[2])), np.uint32)
    mma._general(mma.prepare(row, "sm_90"), words, d.reshape(-1), 0, 1)
    return d.T


def random_steps(rng, forms, count):
    """Steps whose operands are often ones that were used before."""
    used = {}

    def some(size):
        known = used.setdefault(size, [])
        if not known or rng.random() < 0.3:
            known.append(tuple(int(n) for n in rng.choice(REGISTERS, size, replace=False)))
        return known[rng.integers(len(known))]

    def step():
        guard = str(rng.choice(["", "@%yes", "@%no"], p=[0.9, 0.05, 0.05]))
        if rng.random() < 0.25:
            return Step(guard, str(rng.choice(["and", "add", "shfl"])), (some(1), some(1)))
        form = str(rng.choice(forms))
        of = nbtc.instruction(f"mma.sync.aligned.{form}")
        c = some(of.c.registers)
        d = c if rng.random() < 0.6 else some(of.c.registers)
        return Step(guard, form, (d, some(of.a.registers), some(of.b.registers), c))

    return [step() for _ in range(count)]


def program(loops):
    """A kernel that loads its registers, executes each list of steps so many times, and stores them."""
    body = [".reg .b64 %p<2>;", f".reg .b32 %r<{REGISTERS}>, %t, %zero, %left;", ".reg .pred %yes, %no, %more;"]
    body += ["mov.u32 %t, %tid.x;", "and.b32 %zero, %t, 0;"]
    body += ["setp.eq.u32 %yes, %zero, 0;", "setp.ne.u32 %no, %zero, 0;"]
    for n in range(2):
        body += [f"ld.param.u64 %p{n}, [P{n}];", f"mad.wide.u32 %p{n}, %t, {4 * REGISTERS}, %p{n};"]
    body += [f"ld.global.b32 %r{n}, [%p0+{4 * n}];" for n in range(REGISTERS)]
    for n, (times, steps) in enumerate(loops):
        body += [f"mov.u32 %left, {times};", f"L{n}:", *(step.line for step in steps)]
        body += ["sub.u32 %left, %left, 1;", "setp.ne.u32 %more, %left, 0;", f"@%more bra L{n};"]
    body += [f"st.global.b32 [%p1+{4 * n}], %r{n};" for n in range(REGISTERS)]
    return HEAD + "\n{\n" + "\n".join(body) + "\nret;\n}\n"


@pytest.mark.parametrize("seed", range(12))
def test_registers_of_many_uses(seed):
    rng = np.random.default_rng(seed)
    forms = rng.choice(FORMS, 2, replace=False)
    loops = [(int(rng.integers(1, 3)), random_steps(rng, forms, int(rng.integers(2, 10)))) for _ in range(3)]
    kernel = nbtc.load(program(loops), arch="sm_90")["k"]
    for kept in (MODERATE, 0x87FF87FF, 0xFFFFFFFF):  # at random, tiny ones, Inf and NaN too
        registers = rng.integers(0, 1 << 32, (REGISTERS, 32), np.uint64).astype(np.uint32) & np.uint32(kept)
        given = np.ascontiguousarray(registers.T)
        for times, steps in loops:
            for step in times * steps:
                step.execute(registers)
        out = np.zeros_like(given)
        kernel[1, 32](given, out)
        assert_bits_equal(out, registers.T)
