"""The enumerations of CUDA C++'s wmma, under their names there."""

from __future__ import annotations

from enum import Enum, IntEnum


class Namespace(type):
    """The type of classes that only hold names, as C++'s namespaces do."""


class Use(Enum):
    """The role of a fragment."""

    matrix_a = "a"
    matrix_b = "b"
    accumulator = "c"


class MatrixLayout(Enum):
    """How a matrix_a or matrix_b tile lies in memory; part of the fragment's type."""

    row_major = "row"
    col_major = "col"


class MemoryLayout(Enum):
    """How an accumulator tile lies in memory; an argument of load and store."""

    mem_row_major = "row"
    mem_col_major = "col"


class BitOp(IntEnum):
    """What `bmma_sync` does with pairs of bits before it counts them."""

    bmmaBitOpXOR = 1  # noqa: N815
    bmmaBitOpAND = 2  # noqa: N815


class AccumulateOp(IntEnum):
    """How `bmma_sync` accumulates: population count."""

    bmmaAccumulateOpPOPC = 1  # noqa: N815
