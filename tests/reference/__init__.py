"""PTX's scalar instructions in Python integers: slow, one thread at a time, nothing shared with the emitters.

`REFERENCE[opcode](op, *bits)` takes and gives bits as unsigned integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nbtc.executor.emit.form import Op
from tests.reference import bits, compare, convert, floats, integers, video

FLOATS = ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "f32x2")


def _by_type(opcode: str) -> Callable[..., Any]:
    """The reference of an opcode that floats and integers share."""

    def reference(op: Op, *operands: int) -> Any:
        rows = floats.REFERENCE if op.types[-1] in FLOATS else integers.REFERENCE
        return rows[opcode](op, *operands)

    return reference


SHARED = floats.REFERENCE.keys() & integers.REFERENCE.keys()
REFERENCE: dict[str, Callable[..., Any]] = {
    **integers.REFERENCE,
    **bits.REFERENCE,
    **compare.REFERENCE,
    **floats.REFERENCE,
    **convert.REFERENCE,
    **video.REFERENCE,
    **{opcode: _by_type(opcode) for opcode in SHARED},
}
