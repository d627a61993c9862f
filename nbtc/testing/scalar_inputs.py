"""Words worth trying on a scalar row: edges of integers and floats, and operands that are close to each other."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.executor.emit.form import WIDTHS, Form
from nbtc.testing.scalar_rows import RowCase, word

Words = NDArray[Any]
PARTS = ("b0", "b1", "b2", "b3", "h0", "h1")  # of a word, for scalar video instructions
# bits of fraction and exponent
FLOAT_FIELDS: dict[int, tuple[tuple[int, int], ...]] = {
    8: ((3, 4), (2, 5)), 16: ((10, 5), (7, 8)), 32: ((23, 8),), 64: ((52, 11),),
}  # fmt: skip


@cache
def edges(width: int) -> tuple[int, ...]:
    """Words at which something changes: for integers of a width, and for floats of it in every interesting exponent."""
    half = 1 << width - 1
    out_of_bounds = (0x7FF7, 0xFFF7) if width == 16 else ()  # as tensor copies mark them
    found = [
        *out_of_bounds,
        0,
        1,
        2,
        3,
        4,
        5,
        7,
        8,
        15,
        16,
        24,
        31,
        32,
        33,
        63,
        64,
        65,
        255,
        256,
        -1,
        -2,
        half - 1,
        half,
        half + 1,
    ]
    for fraction, exponent in FLOAT_FIELDS.get(width, ()):
        bias, top = (1 << exponent - 1) - 1, (1 << exponent) - 1
        near = (-fraction - 2, -fraction - 1, -fraction, -2, -1, 0, 1, 2, 7, 8, 15, 16, 31, 32, 62, 63, 64, fraction)
        fields = {0, 1, 2, top - 2, top - 1, top, *(bias + n for n in near)}
        parts = (0, 1, 2, (1 << fraction) - 1, (1 << fraction) - 2, 1 << fraction - 1, (1 << fraction - 1) + 1)
        found += [f << fraction | p | s for f in fields if 0 <= f <= top for p in parts for s in (0, half)]
    return tuple(n % (1 << width) for n in found)


def words(rng: np.random.Generator, kind: str, count: int) -> Words:
    """Random words of a PTX type, two fifths of them edges, some with few bits set at the top."""
    width = WIDTHS[kind]
    dtype = word(kind)
    if width == 1:
        return rng.integers(0, 2, count).astype(dtype)
    found = rng.integers(0, 1 << width, count, dtype=np.uint64) if width < 64 else _longs(rng, count)
    found >>= (rng.integers(0, width, count) * (rng.random(count) < 0.3)).astype(np.uint64)
    if width % 32 == 0 and kind.endswith("x2"):
        edge = np.array(edges(16), np.uint64)
        pairs = rng.choice(edge, count) | rng.choice(edge, count) << np.uint64(16)
    else:
        pairs = rng.choice(np.array(edges(width), np.uint64), count)
    return np.where(rng.random(count) < 0.4, pairs, found).astype(dtype)


def _longs(rng: np.random.Generator, count: int) -> Words:
    return rng.integers(0, (1 << 64) - 1, count, dtype=np.uint64, endpoint=True)


def operands(rng: np.random.Generator, case: RowCase, count: int) -> list[Words]:
    """Words for every source of a case; some sources of one width are equal, opposite or neighbours of the first."""
    found = [words(rng, kind, count) for kind in case.sources]
    for kind, x in zip(case.sources[1:], found[1:], strict=True):
        width = WIDTHS[kind]
        if width == WIDTHS[case.sources[0]] and width > 1:
            near = found[0] + rng.integers(-2, 3, count).astype(x.dtype)
            opposite = found[0] ^ x.dtype.type(1 << width - 1)
            which = rng.random(count)
            x[:] = np.where(which < 0.15, near, np.where(which < 0.25, opposite, x))
    for i, value in case.constants:
        found[i][:] = value
    if case.op.opcode == "fns":  # a base outside of the word is undefined; offsets are small
        found[1] %= 32
        found[2] = rng.integers(-34, 35, count).astype(np.int32).view(np.uint32)
    return found


def cases(form: Form, rng: np.random.Generator) -> Iterator[RowCase]:
    """Every text of a row with every number of operands; a lop3 takes a table of its own each time."""
    for choice in product(*form.slots):
        text = ".".join((form.opcode, *filter(None, choice)))
        constants = ((3, int(rng.integers(0, 256))),) if form.opcode == "lop3" else ()
        for given in range(len(form.sources) - form.optional, len(form.sources) + 1):
            chosen = selectors(form, choice, rng)
            if form.selectors and form.optional and given == len(form.sources):  # the third one loses a part
                if "sat" in choice:  # no such form
                    continue
                chosen = (str(rng.choice(PARTS)), *chosen[1:])
            yield RowCase(text, chosen, constants, given)


def selectors(form: Form, choice: tuple[str, ...], rng: np.random.Generator) -> tuple[str, ...]:
    """Random selectors for a video instruction: destination, a, b, c."""
    if not form.selectors:
        return ()
    count = form.opcode[-1]
    if count in "24":
        letter, n = ("h", 2) if count == "2" else ("b", 4)
        picks = [letter + "".join(map(str, rng.integers(0, 2 * n, n))) for _ in range(2)]
        mask = letter + "".join(str(i) for i in reversed(range(n)) if rng.random() < 0.7)
        texts = [mask if len(mask) > 1 else "", *picks]
    else:
        texts = ["", *map(str, rng.choice(("", *PARTS), 2))]
    texts = [t if i == 0 or rng.random() < 0.8 else "" for i, t in enumerate(texts)]
    minus = [False] * 3
    if form.opcode == "vmad" and "po" not in choice:  # at most one product and not the sum as well
        minus[int(rng.integers(3))] = bool(rng.random() < 0.5)
    return (texts[0], *("-" * int(m) + t for m, t in zip(minus, (*texts[1:], ""), strict=True)))
