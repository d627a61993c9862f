"""mma.sync inside functions compiled by Numba: mnemonic and architecture are literals, operands plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core.errors import TypingError

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.errors import NbtcError
from nbtc.isa.parse import row as parse
from nbtc.isa.spec import Row
from nbtc.numba_door.constants import constant_of
from nbtc.numba_door.images import check_image
from nbtc.numba_door.product import NO_WORDS, product
from nbtc.ops.mma.product import prepare

_SHAPES = (
    "mma_sync: an operand is not (32, registers) with as many registers as this form has; "
    "nbtc.instruction(mnemonic).a.registers "
    "tells, for example np.zeros((32, 4), np.uint32)"
)


def _literal(value: Any, name: str, default: Any = None) -> Any:
    """The compile-time value of an argument."""
    found = constant_of(value)
    if found is None or isinstance(found, str | int):
        return default if found is None else found
    raise TypingError(
        f'mma_sync: {name} must be a literal inside compiled code, for example {name}="sm_90"; it is {value}'
    )


def call_of(row: Row, arch: object, selector: int = 0) -> Callable[..., Any]:
    """run(a, b, c, meta): the product of one warp on images (32, registers), for compiled functions; checks shapes."""
    plan = prepare(row, arch, selector)
    ra, rb, rc, rd = plan.registers
    compute = product(plan)

    def run(a, b, c, meta):
        if a.shape != (32, ra) or b.shape != (32, rb) or c.shape != (32, rc):
            raise ValueError(_SHAPES)
        d = np.empty((32, rd), np.uint32)
        compute(a.reshape(-1), b.reshape(-1), c.reshape(-1), meta, d.reshape(-1))
        return d

    return run


def register(mma_sync: Callable[..., Any]) -> None:
    """Teach Numba the function `mma_sync(mnemonic, a, b, c, arch="sm_90")`."""

    def typed(mnemonic, a, b, c, arch="sm_90", threads=None):
        try:
            row = parse(_literal(mnemonic, "mnemonic"))
            run = jit(call_of(row, _literal(arch, "arch", "sm_90")), expanded=True)
        except NbtcError as error:
            raise TypingError(f"{type(error).__name__}: {error}") from error
        if row.family != "mma":
            raise TypingError(
                f"{row.mnemonic} is a {row.family} form; mma_sync runs mma, for example mma.sync.aligned.m16n8k8..."
            )
        for x, name in ((a, "a"), (b, "b"), (c, "c")):
            check_image(x, f"mma_sync: operand {name}")
        none = NO_WORDS
        return lambda mnemonic, a, b, c, arch="sm_90", threads=None: run(a, b, c, none)

    overload(mma_sync, prefer_literal=True)(typed)
