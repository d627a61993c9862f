"""Trials of what the lanes of a warp tell each other: shfl, redux, vote, match, elect.

The mask is one a warp; lanes outside of it skip the instruction and keep what they had (zero, where there is nothing to
keep), as CUDA leaves it to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nbtc import warp
from nbtc.isa.archs import Target
from nbtc.isa.spec import Row
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import BYTES, WARP, guarded_text, read_and_written

LANES = np.arange(WARP, dtype=np.uint32)
MODES = {"up": "shfl_up_sync", "down": "shfl_down_sync", "bfly": "shfl_xor_sync", "idx": "shfl_sync"}
WIDTHS = np.array([1, 2, 4, 8, 16, 32], np.uint32)
CLAMP = 0x1F  # what CUDA's shuffles put below the width in c; up has 0 there

Answer = Callable[[list[Array], Array], list[Any]]


def trials(rows: list[Row], target: Target) -> Iterator[Trial]:
    """One trial a form."""
    for row in rows:
        yield _ANSWERS[row.family](row)


def masks(rng: np.random.Generator, blocks: int) -> Array:
    """A mask a warp, never 0, sometimes full, the same for all of its lanes: (blocks, lanes)."""
    found = draws.words(rng, (blocks, 1)) | draws.words(rng, (blocks, 1)) * (rng.random((blocks, 1)) < 0.5)
    found |= np.uint32(1) << rng.integers(0, WARP, (blocks, 1), np.uint32)
    found[rng.random(blocks) < 0.3] = 0xFFFFFFFF
    return np.ascontiguousarray(np.broadcast_to(found.astype(np.uint32), (blocks, WARP)))


def inside(mask: Array) -> Array:
    """Whether a lane is in its mask."""
    return (mask >> LANES & np.uint32(1)).astype(bool)


def _trial(row: Row, draw: Callable[[np.random.Generator, int], list[Array]], answer: Answer, keep: bool) -> Trial:
    """A guarded instruction.  draw: its sources but the mask.  keep: lanes outside keep their first source."""
    _, writes = read_and_written(row)

    def make(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
        inputs = [*draw(rng, blocks), masks(rng, blocks)]
        return inputs, [np.zeros((blocks, WARP), f"u{BYTES[r.type]}") for r in writes]

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        on = inside(inputs[-1])
        outside = inputs[0] if keep else np.uint32(0)
        found = answer(inputs, on)
        kept = [outside, *(np.uint32(0) for _ in found[1:])]
        return [np.where(on, x, y).astype(b.dtype) for x, y, b in zip(found, kept, before, strict=True)]

    return Trial(row.mnemonic, guarded_text(row, keep), WARP, WARP * len(writes), make, expect)


def _shuffle(row: Row) -> Trial:
    """Widths and sources of every kind; the predicate follows from the rule of the ISA."""
    mode = row.mnemonic.split(".")[2]
    clamp = np.uint32(0 if mode == "up" else CLAMP)

    def draw(rng: np.random.Generator, blocks: int) -> list[Array]:
        width = np.broadcast_to(rng.choice(WIDTHS, (blocks, 1)), (blocks, WARP))
        lane = draws.words(rng, (blocks, WARP)) >> rng.choice(np.array([0, 26, 27, 28], np.uint32), (blocks, 1))
        c = (np.uint32(WARP) - width) << np.uint32(8) | clamp
        return [draws.words(rng, (blocks, WARP)), lane, np.ascontiguousarray(c)]

    def answer(inputs: list[Array], on: Array) -> list[Any]:
        a, b, c, mask = inputs
        width = np.uint32(WARP) - (c >> np.uint32(8))
        return [getattr(warp, MODES[mode])(mask, a, b, width), _reaches(mode, b, c)]

    return _trial(row, draw, answer, keep=True)


def _reaches(mode: str, b: Array, c: Array) -> Array:
    """Whether the lane that a shuffle names is in range (PTX ISA, "shfl.sync")."""
    segment, clamp, by = (c >> np.uint32(8) & np.uint32(31), c & np.uint32(31), (b & np.uint32(31)).astype(np.int64))
    lane = LANES.astype(np.int64)
    least = LANES & segment
    most = (least | clamp & ~segment).astype(np.int64)
    found = {"up": lane - by, "down": lane + by, "bfly": lane ^ by, "idx": least | by & ~segment.astype(np.int64) & 31}
    return np.asarray(found[mode] >= most if mode == "up" else found[mode] <= most)


def _reduction(row: Row) -> Trial:
    _, _, name, kind = row.mnemonic.split(".")
    dtype = np.int32 if kind == "s32" else np.uint32

    def draw(rng: np.random.Generator, blocks: int) -> list[Array]:
        x = draws.words(rng, (blocks, WARP))
        return [np.where(rng.random((blocks, 1)) < 0.3, x >> np.uint32(24), x)]

    def answer(inputs: list[Array], on: Array) -> list[Any]:
        found = getattr(warp, f"reduce_{name}_sync")(inputs[1], inputs[0].view(dtype))
        return [np.asarray(found).view(np.uint32)]

    return _trial(row, draw, answer, keep=True)


def _vote(row: Row) -> Trial:
    name = row.mnemonic.split(".")[2]

    def draw(rng: np.random.Generator, blocks: int) -> list[Array]:
        share = rng.choice((0.0, 0.02, 0.5, 0.98, 1.0), (blocks, 1))
        return [(rng.random((blocks, WARP)) < share).astype(np.uint32)]

    def answer(inputs: list[Array], on: Array) -> list[Any]:
        return [getattr(warp, f"{name}_sync")(inputs[1], inputs[0])]

    return _trial(row, draw, answer, keep=False)


def _match(row: Row) -> Trial:
    _, name, _, kind = row.mnemonic.split(".")
    dtype = np.uint64 if kind == "b64" else np.uint32

    def draw(rng: np.random.Generator, blocks: int) -> list[Array]:
        values = draws.words(rng, (blocks, 4), dtype)
        few = rng.integers(0, 5, (blocks, 1)).clip(1, 4)
        pick = rng.integers(0, few, (blocks, WARP))
        return [np.take_along_axis(values, pick, axis=-1)]

    def answer(inputs: list[Array], on: Array) -> list[Any]:
        found = getattr(warp, f"match_{name}_sync")(inputs[1], inputs[0])
        return list(found) if isinstance(found, tuple) else [found]

    return _trial(row, draw, answer, keep=False)


def _elect(row: Row) -> Trial:
    """The leader is the lowest lane of the mask."""

    def answer(inputs: list[Array], on: Array) -> list[Any]:
        first = on.argmax(axis=-1, keepdims=True)
        return [np.broadcast_to(first, on.shape), first == LANES]

    return _trial(row, lambda rng, blocks: [], answer, keep=False)


_ANSWERS: dict[str, Callable[[Row], Trial]] = {
    "shfl.sync": _shuffle, "redux.sync": _reduction, "vote.sync": _vote, "match.sync": _match, "elect.sync": _elect,
}  # fmt: skip
FAMILIES = tuple(_ANSWERS)
