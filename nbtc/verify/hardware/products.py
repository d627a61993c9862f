"""Trials of the products of a warp: mma, mma.sp and wmma.mma on register images."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from nbtc import instruction
from nbtc.formats.arrays import from_bits
from nbtc.fragments import pack
from nbtc.isa.archs import Target
from nbtc.isa.spec import Operand, Row
from nbtc.testing.strategies import operands, strategies
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import WARP, instruction_text

HARD_SHARE = 0.1  # of the blocks at most, and a few of each strategy: these are drawn one by one
HARD_EACH = 4


def trials(rows: list[Row], target: Target) -> Iterator[Trial]:
    """One trial a form; one for each legal selector of a sparse form."""
    for row in rows:
        for selector in row.selectors or (0,):
            yield product(row, selector, target)


def product(row: Row, selector: int, target: Target) -> Trial:
    """The trial of a form."""
    return Trial(
        f"{row.mnemonic}, selector {selector}" if row.sparse else row.mnemonic,
        instruction_text(row, WARP, {"selector": selector}),
        WARP,
        WARP * _of(row, "d").registers,
        partial(draw, row),
        partial(expect, row, selector, target.arch.name),
    )


def _of(row: Row, name: str) -> Operand:
    found: Operand | None = getattr(row, name)
    if found is None:
        raise LookupError(f"{row.mnemonic} has no operand {name}")
    return found


def draw(row: Row, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """Images of A, B, C (and metadata), and of D before."""
    kinds = draws.mixture(rng)
    images = [image(rng, blocks, _of(row, n), kind) for n, kind in zip("abc", kinds, strict=True)]
    if _of(row, "a").format.kind == "float" or row.unit == "mma":
        _harden(row, rng, images)
    if row.sparse:
        images.append(metadata(rng, blocks, WARP))
    return images, [np.zeros((blocks, WARP, _of(row, "d").registers), np.uint32)]


def metadata(rng: np.random.Generator, blocks: int, lanes: int) -> Array:
    """Random metadata, half of it legal for pairs in ascending order."""
    legal = np.array([0b0100, 0b1000, 0b1100, 0b1001, 0b1101, 0b1110], np.uint32)
    found = draws.words(rng, (blocks, lanes))
    for i in range(0, blocks, 2):
        nibbles = legal[rng.integers(0, len(legal), (lanes, 8))] << (4 * np.arange(8, dtype=np.uint32))
        found[i] = np.bitwise_or.reduce(nibbles, axis=-1)
    return found


def image(rng: np.random.Generator, blocks: int, operand: Operand, kind: str) -> Array:
    """A register image; where a fragment holds copies of elements, they are copies."""
    if operand.products * operand.rows * operand.cols == operand.lanes * operand.elements:
        return draws.register_image(rng, blocks, operand, kind)
    shape = (blocks, operand.rows, operand.cols)
    return pack.pack(operand, from_bits(draws.elements(rng, shape, operand.format, kind), operand.format))


def _harden(row: Row, rng: np.random.Generator, images: list[Array]) -> None:
    """Put products that aim at a mistake, one strategy after the other, into the first blocks."""
    if row.shape is None or row.sparse or row.unit == "quad":
        return
    m, n, k = row.shape
    a, b, c = (_of(row, name) for name in "abc")
    names = strategies(a.format)
    most = int(len(images[0]) * HARD_SHARE)
    for at in range(min(most, HARD_EACH * len(names))):
        drawn = operands(rng, names[at % len(names)], (m, n, k), a.format, b.format, c.format)
        for x, bits, operand in zip(images, drawn, (a, b, c), strict=True):
            x[at] = pack.pack(operand, from_bits(bits.astype(operand.format.bits_dtype), operand.format))


def expect(row: Row, selector: int, arch: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    """What nbtc computes."""
    a, b, c, *meta = inputs
    sparse: dict[str, Any] = {"meta": meta[0], "selector": selector} if row.sparse else {}
    return [np.asarray(instruction(row.mnemonic)(a, b, c, arch=arch, threads=1, **sparse))]
