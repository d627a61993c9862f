"""Products whose operands and results share a few registers: the bits of one product after the other."""

from functools import cache

import numpy as np
import pytest

import nbtc
from nbtc.ops.images import flat
from nbtc.ops.mma import product as mma
from nbtc.testing import assert_bits_equal
from nbtc.testing.product_programs import BETWEEN, METADATA, MODERATE, REGISTERS, random_product_program

LANES = np.arange(32, dtype=np.uint32)


@cache
def plan(mnemonic):
    return mma.prepare(nbtc.instruction(mnemonic).row, "sm_90")


def product(mnemonic, operands):
    """D as the code without vectors computes it, of [register][lane]."""
    words = [flat(np.ascontiguousarray(x.T)[None], 2, (1,)) for x in operands]
    if "mma.sp" in mnemonic:
        words.append(flat(np.full((1, 32), METADATA, np.uint32), 1, (1,)))
    d = np.empty((32, nbtc.instruction(mnemonic).d.registers), np.uint32)
    mma._general(plan(mnemonic), words, d.reshape(-1), 0, 1)
    return d.T


def execute(step, registers):
    """Change registers, [register][lane]."""
    if step.guard == "@%no":
        return
    d, *read = step.registers
    x = [registers[list(numbers)] for numbers in read]
    if step.opcode in BETWEEN:
        source = x[0][0]
        results = {"and": source & np.uint32(MODERATE), "add": source + LANES, "shfl": source[LANES ^ 5]}
        registers[d[0]] = results[step.opcode]
    else:
        result = product(step.opcode, x)
        if "e4m3" in step.opcode or "e5m2" in step.opcode:  # C is added register by register (test_overlaps)
            for n, number in enumerate(read[2]):
                if number in d[:n]:
                    x[2][n] = result[d.index(number)]
                    result = product(step.opcode, x)
        registers[list(d)] = result


@pytest.mark.parametrize("seed", range(16))
def test_registers_of_many_uses(seed):
    program, rng = random_product_program(seed), np.random.default_rng(seed)
    kernel = nbtc.load(program.text)["k"]
    for kept in (MODERATE, 0x87FF87FF, 0xFFFFFFFF):  # any numbers, tiny ones, Inf and NaN too
        registers = rng.integers(0, 1 << 32, (REGISTERS, 32), np.uint64).astype(np.uint32) & np.uint32(kept)
        array = np.ascontiguousarray(registers.T)
        for times, steps in program.loops:
            for step in times * steps:
                execute(step, registers)
        kernel[1, 32](array)
        assert_bits_equal(array, registers.T)


def test_programs_differ_and_repeat():
    texts = [random_product_program(seed).text for seed in range(50)]
    assert len(set(texts)) == 50
    assert texts[7] == random_product_program(7).text
    for construct in ("@%no", "shfl.sync", "f16.f16.f16.f16", "s32.s8", "tf32"):
        assert sum(construct in text for text in texts) >= 2, construct
