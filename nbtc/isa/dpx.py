"""Rows of integer instructions of the DPX functions (PTX ISA, "Integer Arithmetic Instructions": min, max, add).

The functions themselves are `nbtc.dpx`; these rows let PTX text name their parts.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.isa.spec import Row

NAMES = (
    "min.s32.relu min.s16x2.relu min.s16x2 min.u16x2 "
    "max.s32.relu max.s16x2.relu max.s16x2 max.u16x2 "
    "add.s16x2 add.u16x2"
)


def rows() -> Iterator[Row]:
    """All rows of the family."""
    for name in NAMES.split():
        yield Row(name, "dpx", "sm_90", syntax=("d a b~",))
