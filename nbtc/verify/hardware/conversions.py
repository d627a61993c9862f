"""Trials of cvt: random words, and every input there is."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc import ptx
from nbtc.isa import inline
from nbtc.isa.archs import Target
from nbtc.isa.spec import Row
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.sweeps import OPERANDS, Sweep
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import BYTES, instruction_text, read_and_written

THREADS = 256


def trials(rows: list[Row], target: Target) -> Iterator[Trial]:
    """One trial a form on random words."""
    for row in rows:
        body, (reads, writes) = instruction_text(row, THREADS), read_and_written(row)
        types = tuple(r.type for r in (*writes, *reads))
        yield Trial(row.mnemonic, body, THREADS, THREADS, partial(_draw, types), partial(_expect, row.mnemonic))


def _dtype(kind: str) -> np.dtype[np.unsignedinteger]:
    return np.dtype(f"u{BYTES[kind]}")


def _draw(types: tuple[str, ...], rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    result, *sources = types
    shape = (blocks, THREADS)
    return [draws.words(rng, shape, _dtype(t)) for t in sources], [np.zeros(shape, _dtype(result))]


def _expect(mnemonic: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    return [np.asarray(ptx.cvt(mnemonic, *inputs, threads=1))]


def sweeps(rows: list[Row]) -> Iterator[Sweep]:
    """Every input of the forms of at most two operands, without `cvt.pack`, whose third is the rest of the word."""
    for row in rows:
        reads, [result] = read_and_written(row)
        if len(reads) <= OPERANDS and ".pack." not in row.mnemonic:
            yield Sweep(row.mnemonic, inline.text(row), reads, result, partial(ptx.cvt, row.mnemonic, threads=1))
