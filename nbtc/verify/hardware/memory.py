"""Trials of random programs of registers of all widths, memory of all spaces, atomics, warp instructions and calls."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc.isa.archs import Target
from nbtc.testing import scalar_inputs
from nbtc.testing.memory_programs import MemoryProgram, random_memory_program
from nbtc.verify.hardware.trial import Array, Emulated, Trial
from nbtc.verify.text import ENTRY

WORD = 4  # bytes


def trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Such programs; a trial has the blocks that its program wants."""
    for seed in range(first, first + count):
        program = random_memory_program(seed, target.arch.name)
        body = program.body.replace(".entry k(", f".entry {ENTRY}(")
        yield Trial(
            f"random memory program {seed}", body, program.block, sum(program.bytes[1:]) // WORD // program.grid,
            partial(_draw, program), partial(_expect, program, body, str(target)), most=program.grid,
        )  # fmt: skip


def _draw(program: MemoryProgram, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """Any words, small numbers, and those at which integers and floats change."""
    found = [scalar_inputs.words(rng, "f32", size // WORD) for size in program.bytes]
    small = rng.random() / 2
    for x in found:
        x[:] = np.where(rng.random(x.size) < small, rng.integers(-40, 200, x.size).astype(x.dtype), x)
    return found[:1], found[1:]


def _expect(program: MemoryProgram, body: str, target: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    found = [x.copy() for x in before]
    Emulated(target).run(body, program.grid, program.block, 0, inputs, found)
    return found
