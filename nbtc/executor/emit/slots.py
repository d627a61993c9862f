"""Slots of the table of pointers to the host's functions, which a launch hands its program."""

from __future__ import annotations

MULTIPLICAND_BYTES = (1, 2, 4, 8)  # the first slots: the general product of multiplicands of so many bytes
TILE_COPY = len(MULTIPLICAND_BYTES)
REDUCE_ELEMENTS = TILE_COPY + 1
WATCH = REDUCE_ELEMENTS + 1  # of the checked mode's first function
