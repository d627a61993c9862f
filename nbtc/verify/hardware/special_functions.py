"""Trials of the special function unit (`.approx` and `.full` forms): random words, and every input there is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc import ptx
from nbtc.executor.emit.form import WIDTHS, Form
from nbtc.executor.rows.introductions import introductions
from nbtc.executor.scalar.approx import MNEMONICS
from nbtc.isa.archs import Target
from nbtc.isa.inline import HALF, LONG, WORD, InlineRegister
from nbtc.testing.scalar_inputs import words
from nbtc.verify.hardware.sweeps import THREADS, Sweep, dtype_of
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import kernel

_REGISTERS = {16: HALF, 32: WORD, 64: LONG}


def _forms(target: Target) -> Iterator[tuple[str, Form]]:
    for mnemonic, form in MNEMONICS.items():
        if all(row.has(target.arch.number, target.suffix) for row in introductions(mnemonic)):
            yield mnemonic, form


def sweeps(target: Target) -> Iterator[Sweep]:
    """Every input: of divisions every dividend and every divisor, of f64 every upper word."""
    for mnemonic, form in _forms(target):
        kind = _REGISTERS[WIDTHS[form.sources[0]]]
        reads = [InlineRegister(letter, kind) for letter, _ in zip("ab", form.sources, strict=False)]
        text = f"{mnemonic} d0, {', '.join(f'{r.name}0' for r in reads)};"
        yield Sweep(mnemonic, text, reads, InlineRegister("d", kind, 1, True), partial(ptx.approx, mnemonic, threads=1))


def trials(target: Target) -> Iterator[Trial]:
    """One trial a form on random words, two fifths of them numbers at which something changes."""
    for (_, form), sweep in zip(_forms(target), sweeps(target), strict=True):
        body = kernel(sweep.reads, [sweep.result], [sweep.text], THREADS)
        yield Trial(sweep.name, body, THREADS, THREADS, partial(_draw, form, sweep), partial(_expect, sweep))


def _draw(form: Form, sweep: Sweep, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    shape = (blocks, THREADS)
    drawn = [words(rng, kind, blocks * THREADS).reshape(shape) for kind in form.sources]
    return drawn, [np.zeros(shape, dtype_of(sweep.result))]


def _expect(sweep: Sweep, inputs: list[Array], before: list[Array]) -> list[Array]:
    return [np.asarray(sweep.compute(*inputs))]
