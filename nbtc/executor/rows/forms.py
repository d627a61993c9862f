"""All scalar forms: one table a family, looked up by an instruction's text."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType

from nbtc.executor.emit.form import Form, Op
from nbtc.executor.scalar import (
    approx,
    bits,
    carry,
    compare,
    convert,
    convert_small,
    float_pairs,
    float_select,
    floats,
    half_precision,
    integers,
    permute,
    video,
    video_packed,
)

TABLES: tuple[tuple[Form, ...], ...] = (
    integers.FORMS,
    carry.FORMS,
    bits.FORMS,
    permute.FORMS,
    compare.FORMS,
    floats.FORMS,
    (floats.SCALED,),
    float_select.FORMS,
    half_precision.FORMS,
    convert.FORMS,
    convert_small.FORMS,
    float_pairs.FORMS,
    approx.FORMS,
    approx.FACTORS,
    video.FORMS,
    video_packed.FORMS,
)


@cache
def by_opcode() -> MappingProxyType[str, tuple[Form, ...]]:
    """The rows of every opcode."""
    rows: dict[str, tuple[Form, ...]] = {}
    for form in (form for table in TABLES for form in table):
        rows[form.opcode] = (*rows.get(form.opcode, ()), form)
    return MappingProxyType(rows)


@cache
def find(text: str) -> tuple[Form, Op] | None:
    """The row of an instruction's name and its parts, or None when there is none.

    >>> form, op = find("mul.wide.s16")
    >>> form.sources, form.results, op.has("wide")
    (('s16', 's16'), ('s32',), True)
    >>> find("mul.wide.ftz.s16") is None
    True
    """
    opcode, *modifiers = text.split(".")
    op = Op(opcode, tuple(modifiers))
    form = next((form for form in by_opcode().get(opcode, ()) if form.matches(op.modifiers)), None)
    return None if form is None else (form, op)
