"""A product of two matrices within a problem, as engines take it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format
from nbtc.gemm.cost import POSITIONS
from nbtc.gemm.problem import Problem

Positions = Iterable[NDArray[np.int64]]
Cut = tuple[int, int]  # from one k to another


class Item(NamedTuple):
    """Two matrices of a product between two k and their result, in which the start values are; has_c: not all zero."""

    problem: Problem
    a: NDArray[Any]
    b: NDArray[Any]
    d: NDArray[Any]
    cut: Cut
    has_c: bool

    @property
    def formats(self) -> tuple[Format, Format]:
        return self.problem.a_format, self.problem.b_format

    @property
    def elements(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The operands between the two k; of those that hold one element a word."""
        start, stop = self.cut
        return (self.a, self.b) if stop - start == self.b.shape[0] else (self.a[:, start:stop], self.b[start:stop])


def positions(*masks: Any) -> Iterator[NDArray[np.int64]]:
    """Where one of some masks that broadcast to a matrix is set, some rows at a time."""
    m, n = np.broadcast_shapes(*(mask.shape for mask in masks))
    step = max(1, POSITIONS // max(1, n))
    for i in range(0, m, step):
        part = np.zeros((min(step, m - i), n), bool)
        for mask in masks:
            part |= (mask[i : i + step] if len(mask) > 1 else mask).astype(bool)
        found = np.flatnonzero(part)
        if found.size:
            yield found + i * n
