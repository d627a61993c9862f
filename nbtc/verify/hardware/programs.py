"""Trials of whole programs, as nbtc's executor runs them: random structured ones, and the kernels of other trials."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from nbtc.isa.archs import Target
from nbtc.testing.product_programs import MODERATE, REGISTERS, random_product_program
from nbtc.testing.programs import Program, random_program
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Emulated, Trial
from nbtc.verify.text import ENTRY

NAME = "k"  # the kernel of a random program
LANES = 32
WARPS = 256  # of a program of products


def trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs; a trial has one block more or less as the program wants, so it runs once."""
    for seed in range(first, first + count):
        program = random_program(seed)
        body = _renamed(program.text)
        yield Trial(
            f"random program {seed}", body, program.block, program.words // program.grid,
            partial(_draw, program), partial(_expect, program, body, str(target)), most=program.grid,
        )  # fmt: skip


def _renamed(text: str) -> str:
    """The kernel of a program, by the name that machines launch."""
    return text[text.index(".visible") :].replace(f".entry {NAME}(", f".entry {ENTRY}(")


def _draw(program: Program, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    return [], [draws.words(rng, (program.words,))]


def _expect(program: Program, body: str, target: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    found = [x.copy() for x in before]
    Emulated(target).run(body, program.grid, program.block, 0, inputs, found)
    return found


def product_trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs of matrix products over a few registers."""
    for seed in range(first, first + count):
        body = _renamed(random_product_program(seed, target.arch.name).text)
        expect = _by_executor(body, LANES, 0, target)
        yield Trial(f"random products {seed}", body, LANES, LANES * REGISTERS, _draw_registers, expect, most=WARPS)


def _draw_registers(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """A third of the warps have any bits, with Inf and NaN, others moderate exponents or tiny numbers."""
    kept = rng.choice(np.array([0xFFFFFFFF, MODERATE, 0x87FF87FF], np.uint32), (blocks, 1, 1))
    return [], [draws.words(rng, (blocks, LANES, REGISTERS)) & kept]


def emulated(trial: Trial, target: Target) -> Trial:
    """The same kernel and inputs, with nbtc's executor in the place of nbtc's functions."""
    expect = _by_executor(trial.body, trial.threads, trial.shared, target)
    return trial._replace(form=f"{trial.form}, in a program", expect=expect)


def _by_executor(
    body: str, threads: int, shared: int, target: Target
) -> Callable[[list[Array], list[Array]], list[Array]]:
    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        found = [x.copy() for x in before]
        machine.run(body, len(before[0]), threads, shared, inputs, found)
        return found

    machine = Emulated(str(target))
    return expect
