"""mma.sync inside functions compiled by Numba: mnemonic and architecture are literals, operands plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import overload

from nbtc.compiler.float_mode import call_in_default_mode
from nbtc.compiler.jit import jit
from nbtc.errors import NbtcError
from nbtc.isa.parse import row as parse
from nbtc.ops.mma import general as mma_kernel
from nbtc.ops.mma.product import Plan, prepare

_SHAPES = (
    "mma_sync: an operand is not (32, registers) with as many registers as this form has; "
    "nbtc.instruction(mnemonic).a.registers "
    "tells, for example np.zeros((32, 4), np.uint32)"
)


def _literal(value: Any, name: str, default: Any = None) -> Any:
    """The compile-time value of an argument."""
    if isinstance(value, types.Omitted):
        return value.value
    if isinstance(value, types.Literal):
        return value.literal_value
    if value is None or isinstance(value, str | int):
        return default if value is None else value
    raise TypingError(
        f'mma_sync: {name} must be a literal inside compiled code, for example {name}="sm_90"; it is {value}'
    )


def _check_image(x: Any, name: str) -> None:
    good = isinstance(x, types.Array) and x.dtype == types.uint32 and x.ndim == 2 and x.layout == "C"
    if not good:
        raise TypingError(
            f"mma_sync: operand {name} must be a C-contiguous uint32 array (32, registers) inside "
            f"compiled code, not {x}"
        )


def _body(plan: Plan) -> Callable[..., Any]:
    """The body for a form: vector code where there is some, and the general kernel with the plan's tables inside."""
    ra, rb, rc, rd = plan.registers
    places, geometry, params = plan.places, plan.geometry, plan.params
    na, nb, ns = plan.scratch
    word = plan.word.type
    numbers = plan.numbers
    run = mma_kernel.run

    def general(a, b, c, d):
        strides, none = np.zeros(4, np.int64), np.zeros(1, np.uint32)
        xa, xb, xs = np.empty(na, word), np.empty(nb, word), np.empty(ns, word)
        run(a, b, c, none, d, strides, 0, 1, places, geometry, params, xa, xb, xs)

    rest = jit(general, cached=False)

    def plain(mnemonic, a, b, c, arch="sm_90", threads=None):
        if a.shape != (32, ra) or b.shape != (32, rb) or c.shape != (32, rc):
            raise ValueError(_SHAPES)
        d = np.empty((32, rd), np.uint32)
        call_in_default_mode(rest, (a.reshape(-1), b.reshape(-1), c.reshape(-1), d.reshape(-1)))
        return d

    loop = plan.vector
    if loop is None:
        return plain

    def vector(mnemonic, a, b, c, arch="sm_90", threads=None):
        if a.shape != (32, ra) or b.shape != (32, rb) or c.shape != (32, rc):
            raise ValueError(_SHAPES)
        d = np.empty((32, rd), np.uint32)
        fa, fb, fc, fd = a.reshape(-1), b.reshape(-1), c.reshape(-1), d.reshape(-1)
        if call_in_default_mode(loop, ((fa, fb, fc, fd), (0, 0, 0, 0), 0, 1, numbers, None)):
            call_in_default_mode(rest, (fa, fb, fc, fd))
        return d

    return vector


def register(mma_sync: Callable[..., Any]) -> None:
    """Teach Numba the function `mma_sync(mnemonic, a, b, c, arch="sm_90")`."""

    def typed(mnemonic, a, b, c, arch="sm_90", threads=None):
        try:
            row = parse(_literal(mnemonic, "mnemonic"))
            plan = prepare(row, _literal(arch, "arch", "sm_90"))
        except NbtcError as error:
            raise TypingError(f"{type(error).__name__}: {error}") from error
        if row.family != "mma":
            raise TypingError(
                f"{row.mnemonic} is a {row.family} form; mma_sync runs mma, for example mma.sync.aligned.m16n8k8..."
            )
        for x, name in ((a, "a"), (b, "b"), (c, "c")):
            _check_image(x, name)
        return _body(plan)

    overload(mma_sync, prefer_literal=True)(typed)
