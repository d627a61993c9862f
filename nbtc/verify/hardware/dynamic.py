"""Trials of the DPX functions, and of the PTX instructions that they are made of."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc import dpx
from nbtc.numerics.dpx import ROWS, DpxRow
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import dpx_text

THREADS = 256
EDGES = np.array([0, 1, 0xFFFF, 0x7FFF, 0x8000, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x80008000], np.uint32)


def trials() -> Iterator[Trial]:
    """One trial a function."""
    for row in ROWS.values():
        body, outputs = dpx_text(row.name, row.arity, THREADS), THREADS * (1 + row.predicates)
        yield Trial(f"dpx.{row.name}", body, THREADS, outputs, partial(_draw, row), partial(_expect, row))


def _draw(row: DpxRow, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    shape = (blocks, THREADS)
    inputs = [draws.words(rng, shape) for _ in range(row.arity)]
    for x in inputs:  # neighbours of the first operand, and edges
        near = inputs[0] + rng.integers(-2, 3, shape).astype(np.uint32)
        which = draws.words(rng, shape, np.uint8)
        x[:] = np.where(which < 40, near, np.where(which < 90, EDGES[which % len(EDGES)], x))
    written = [np.zeros(shape, np.uint32)]
    if row.predicates:
        written.append(np.zeros((*shape, row.predicates), np.uint32))
    return inputs, written


def _expect(row: DpxRow, inputs: list[Array], before: list[Array]) -> list[Array]:
    found = getattr(dpx, row.name)(*(x.view(row.dtype) for x in inputs))
    if not row.predicates:
        return [np.asarray(found).view(np.uint32)]
    value, *flags = found
    return [np.asarray(value).view(np.uint32), np.stack(flags, axis=-1).astype(np.uint32)]
