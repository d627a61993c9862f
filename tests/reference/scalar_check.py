"""Scalar rows against the Python integers of `tests.reference`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nbtc.testing.scalar_inputs import operands
from nbtc.testing.scalar_rows import LANES, RowCase, Rows
from tests.reference import REFERENCE


class Difference(NamedTuple):
    """The first input on which a row and its reference differ; bits as integers."""

    case: RowCase
    sources: tuple[int, ...]
    results: tuple[int, ...]
    expected: tuple[int, ...]

    def __str__(self) -> str:
        sources, results, expected = (" ".join(map(hex, x)) for x in self[1:])
        return f"{self.case.text} {sources}: {results}, expected {expected}"


def differences(
    cases: Sequence[RowCase], rng: np.random.Generator, count: int, lanes: int | None = LANES, chunk: int = 200
) -> Iterator[Difference]:
    """Run cases on `count` inputs each, `chunk` of them compiled together; yield the first difference of each."""
    for start in range(0, len(cases), chunk):
        rows = Rows(cases[start : start + chunk], lanes)
        for i, case in enumerate(rows.cases):
            sources = operands(rng, case, count)
            results = zip(*(x.tolist() for x in rows(i, sources)), strict=True)
            for given, found in zip(zip(*(x.tolist() for x in sources), strict=True), results, strict=True):
                answer = REFERENCE[case.op.opcode](case.op, *given)
                expected = answer if isinstance(answer, tuple) else (answer,)
                if found != expected:
                    yield Difference(case, given, found, expected)
                    break
