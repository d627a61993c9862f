"""Trials of whole programs, as nbtc's executor runs them: random structured ones, and the kernels of other trials."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc.isa.archs import Target
from nbtc.testing.programs import Program, random_program
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Emulated, Trial
from nbtc.verify.text import ENTRY

NAME = "k"  # the kernel of a random program


def trials(count: int, target: Target, first: int = 0) -> Iterator[Trial]:
    """Random programs; a trial has one block more or less as the program wants, so it runs once."""
    for seed in range(first, first + count):
        program = random_program(seed)
        body = program.text[program.text.index(".visible") :].replace(f".entry {NAME}(", f".entry {ENTRY}(")
        yield Trial(
            f"random program {seed}", body, program.block, program.words // program.grid,
            partial(_draw, program), partial(_expect, program, body, str(target)), most=program.grid,
        )  # fmt: skip


def _draw(program: Program, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    return [], [draws.words(rng, (program.words,))]


def _expect(program: Program, body: str, target: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    found = [x.copy() for x in before]
    Emulated(target).run(body, program.grid, program.block, 0, inputs, found)
    return found


def emulated(trial: Trial, target: Target) -> Trial:
    """The same kernel and inputs, with nbtc's executor in the place of nbtc's functions."""

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        found = [x.copy() for x in before]
        machine.run(trial.body, len(before[0]), trial.threads, trial.shared, inputs, found)
        return found

    machine = Emulated(str(target))
    return trial._replace(form=f"{trial.form}, in a program", expect=expect)
