"""Trials of the products of a warpgroup: wgmma, dense and sparse, A in shared memory and in registers.

Immediates (scales, majors) are drawn once a trial; swizzles, the first use of D and all elements once a block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from nbtc import ptx
from nbtc.errors import ShapeError
from nbtc.fragments.smem_descriptors import SWIZZLES, Descriptor
from nbtc.fragments.tiles import canonical
from nbtc.isa import inline
from nbtc.isa.archs import Target
from nbtc.isa.lines import slots
from nbtc.isa.spec import Operand, Row
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.products import metadata
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import GROUP, warpgroup_text

ALIGN = 1024  # bytes: where a swizzle pattern starts over


class Variant(NamedTuple):
    """A form with its immediates: A in registers or shared memory, selector, scales and transposes by operand."""

    row: Row
    registers: bool
    selector: int
    scales: tuple[tuple[str, int], ...]
    trans: tuple[tuple[str, int], ...]

    def major(self, operand: str) -> str:
        """The major order of A or B."""
        return "mn" if dict(self.trans).get(operand) else "k"

    @property
    def name(self) -> str:
        """As reports call it."""
        more = [f"A in {'registers' if self.registers else 'shared memory'}"]
        more += [f"selector {self.selector}"] if self.row.sparse else []
        more += [f"{what} {dict(given)}" for what, given in (("scales", self.scales), ("trans", self.trans)) if given]
        return ", ".join((self.row.mnemonic, *more))


def trials(rows: list[Row], target: Target, seed: int = 0) -> Iterator[Trial]:
    """One trial a form, place of A and selector; its immediates follow from the seed."""
    rng = np.random.default_rng([seed, 0x3F])
    for row in rows:
        for registers in (False, True):
            for selector in row.selectors or (0,):
                scales = tuple((n, int(rng.choice((1, -1)))) for n in row.scales)
                trans = tuple((n, int(rng.integers(2))) for n in row.trans if not (n == "a" and registers))
                yield product(Variant(row, registers, selector, scales, trans), target)


def product(form: Variant, target: Target) -> Trial:
    """The trial of a form."""
    size, d = image_bytes(form), _held(form.row)[2]
    call = partial(expect, form, target.arch.name)
    return Trial(form.name, body(form, size), GROUP, GROUP * d.registers, partial(draw, form), call, size)


def body(form: Variant, size: int) -> str:
    """The kernel of a form, on an image of so many bytes; descriptors count from the image's start."""
    immediates = {"selector": form.selector} | {f"scale{n.upper()}": v for n, v in form.scales}
    immediates |= {f"trans{n.upper()}": v for n, v in form.trans}
    return warpgroup_text(form.row, immediates, syntax(form), size)


def syntax(form: Variant) -> int:
    """Which operand list has A where the form has it, with all immediates."""
    lists = [[s.name for s in slots(text)] for text in form.row.syntax]
    fits = [i for i, names in enumerate(lists) if ("descA" in names) != form.registers]
    return max(fits, key=lambda i: len(lists[i]))


def _held(row: Row) -> tuple[Operand, Operand, Operand]:
    if row.a is None or row.b is None or row.c is None:
        raise LookupError(f"{row.mnemonic} lacks an operand")
    return row.a, row.b, row.c


@cache
def tiles(form: Variant) -> tuple[tuple[tuple[Descriptor, int], ...], tuple[tuple[Descriptor, int], ...]]:
    """The dense tiles of A and of B, one for each swizzle that the shape has: descriptor and bytes."""
    a, b, _ = _held(form.row)
    found = []
    for name, shape, fmt in (("a", (a.rows, a.cols), a.format), ("b", (b.cols, b.rows), b.format)):
        ways = []
        for swizzle in SWIZZLES:
            try:
                ways.append(canonical(shape, fmt, form.major(name), swizzle))
            except ShapeError:
                continue
        found.append(tuple(ways))
    return found[0], found[1]


def image_bytes(form: Variant) -> int:
    """Bytes of shared memory: A and B in turn, each aligned."""
    a, b = (max(_rounded(size) for _, size in ways) for ways in tiles(form))
    return a * (not form.registers) + b


def _rounded(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


def draw(form: Variant, rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
    """What the kernel reads, in the order of its registers, and the image."""
    row, (a, b, c) = form.row, _held(form.row)
    kinds = draws.mixture(rng)
    ways_a, ways_b = tiles(form)
    size = image_bytes(form)
    first = 0 if form.registers else max(_rounded(n) for _, n in ways_a)
    image = np.empty((blocks, size), np.uint8)
    for at, end, operand, kind in ((0, first, a, kinds[0]), (first, size, b, kinds[1])):
        count = (end - at) * 8 // max(8, operand.format.bits)
        image[:, at:end] = draws.elements(rng, (blocks, count), operand.format, kind).view(np.uint8) if (
            operand.format.bits >= 8) else draws.words(rng, (blocks, end - at), np.uint8)  # fmt: skip
    d = draws.register_image(rng, blocks, c, kinds[2])
    reads = {"d": d, "e": metadata(rng, blocks, GROUP) if row.sparse else None}
    reads["descA"] = _descriptors(rng, blocks, ways_a, 0)
    reads["descB"] = _descriptors(rng, blocks, ways_b, first)
    reads["a"] = draws.register_image(rng, blocks, a, kinds[0]) if form.registers else None
    reads["scaleD"] = np.broadcast_to(rng.integers(0, 4, (blocks, 1)).clip(0, 1).astype(np.uint32), (blocks, GROUP))
    order = [r.name for r in inline.operands(row, syntax(form))]
    inputs = [np.ascontiguousarray(reads[n]) for n in order]
    return [*inputs, image], [np.zeros_like(d)]


def _descriptors(rng: np.random.Generator, blocks: int, ways: tuple[tuple[Descriptor, int], ...], start: int) -> Array:
    """A descriptor a block, the same for all threads: (blocks, threads)."""
    codes = np.array([replace(d, start=start).encode() for d, _ in ways], np.uint64)
    return np.broadcast_to(codes[rng.integers(0, len(codes), (blocks, 1))], (blocks, GROUP))


def expect(form: Variant, arch: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    """What nbtc computes."""
    row = form.row
    names = [r.name for r in inline.operands(row, syntax(form))]
    given = dict(zip(names, inputs, strict=False))
    image = inputs[-1]
    a = given["a"] if form.registers else given["descA"][:, 0]
    keywords: dict[str, Any] = {f"scale_{n}": v for n, v in form.scales}
    keywords |= {f"trans_{n}": v for n, v in form.trans}
    if row.sparse:
        keywords |= {"meta": given["e"], "selector": form.selector}
    result = ptx.wgmma(
        row.mnemonic, given["d"], a, given["descB"][:, 0], image, scale_d=given["scaleD"][:, 0], arch=arch, threads=1,
        **keywords,
    )  # fmt: skip
    return [result]
