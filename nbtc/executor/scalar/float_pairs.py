"""f32 arithmetic on two numbers in a register, and with an f16 or bf16 operand (PTX ISA, "Floating Point Instructions",
"Mixed Precision Floating Point Instructions"; sm_100 and later)."""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.executor.emit.form import Form, Op, slots
from nbtc.executor.emit.values import pieces
from nbtc.executor.scalar.floats import arithmetic
from nbtc.executor.scalar.narrow import widened
from nbtc.executor.scalar.rounding import DIRECTIONS

COUNTS = {"add": 2, "sub": 2, "mul": 2, "fma": 3}
HALF_PRECISION = ("f16", "bf16")


def two(v: VectorBuilder, op: Op, *operands: Any) -> Any:
    """add, sub, mul, fma of two f32 in a register of 64 bits."""
    one = op._replace(modifiers=(*op.modifiers[:-1], "f32"))
    return v.b.bitcast(arithmetic(v, one, *(pieces(v, x, 32) for x in operands)), operands[0].type)


def mixed(v: VectorBuilder, op: Op, *operands: Any) -> Any:
    """add, sub, fma in f32: all operands but the last are halves."""
    source = op.types[-1]
    wide = [widened(v, source, "f32", x) for x in operands[:-1]]
    return arithmetic(v, op._replace(modifiers=op.modifiers[:-1]), *wide, operands[-1])


ANY, CHOSEN = "|".join(DIRECTIONS) + "?", "|".join(DIRECTIONS)
FORMS = (
    *(
        Form(opcode, slots(CHOSEN if opcode == "fma" else ANY, "ftz?", "f32x2"), ("f32x2",) * n, ("f32x2",), two)
        for opcode, n in COUNTS.items()
    ),
    *(
        Form(
            opcode,
            slots(CHOSEN if opcode == "fma" else ANY, "sat?", "f32", name),
            (*(name,) * (n - 1), "f32"),
            ("f32",),
            mixed,
        )
        for opcode, n in COUNTS.items()
        if opcode != "mul"
        for name in HALF_PRECISION
    ),
)
