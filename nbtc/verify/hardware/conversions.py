"""Trials of cvt: random words, and every input there is.

An exhaustive trial reads nothing but where a block starts: a thread makes its operands from its own number, so that
every operand of the form goes through all of its values, the second one in another order than the first.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc import ptx
from nbtc.isa import inline
from nbtc.isa.archs import Target
from nbtc.isa.spec import Row
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import BYTES, Block, instruction_text, kernel, read_and_written

THREADS = 256
# an odd factor and a shift: x -> x * FACTOR + SHIFT passes through all words, and neighbours get far from each other
FACTOR, SHIFT = 0x9E3779B1, 0x7F4A7C15


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


def values(row: Row) -> int:
    """How many values an operand of the form has: 2^32 for f32, 2^16 for 16-bit formats and for pairs of fp8."""
    source = next(r for r in inline.operands(row) if not r.result)
    return 1 << 8 * BYTES[source.type]


def is_exhaustible(row: Row) -> bool:
    """Whether all inputs of the form can be tried: each operand's values, of the conversions (cvt.pack has three)."""
    return ".pack." not in row.mnemonic


def exhaustive(row: Row, start: int) -> Trial:
    """All values from `start` on, one a thread; the operands of a form with two are both complete in the end."""
    sources, writes = read_and_written(row)
    words = sources[0].type == inline.WORD
    make = [
        f"ld.global.b32 w0, [window]; add.u32 w0, w0, thread; mad.lo.u32 w1, w0, {FACTOR}, {SHIFT};",
        *(f"{'mov.b32' if words else 'cvt.u16.u32'} {r.name}0, w{i};" for i, r in enumerate(sources)),
    ]
    declared = [r.declaration for r in sources]
    body = kernel([], writes, [*make, inline.text(row)], THREADS, declared, Block(memory=4))
    result = _dtype(writes[0].type)

    def draw(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
        starts = np.arange(blocks, dtype=np.uint32) * np.uint32(THREADS) + np.uint32(start)
        return [starts], [np.zeros((blocks, THREADS), result)]

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        x = np.arange(before[0].size, dtype=np.uint32) + np.uint32(start)
        y = x * np.uint32(FACTOR) + np.uint32(SHIFT)
        given = [v if words else v.astype(np.uint16) for v in (x, y)[: len(sources)]]
        return [np.asarray(ptx.cvt(row.mnemonic, *given, threads=1))]

    return Trial(f"{row.mnemonic}, all inputs", body, THREADS, THREADS, draw, expect)
