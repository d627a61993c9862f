"""mma.sync inside functions compiled by Numba: the mnemonic and the architecture are literals, operands plain arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numba.extending import overload

from nbtc.errors import NbtcError
from nbtc.isa.parse import row as parse
from nbtc.ops import mma_kernel
from nbtc.ops.mma import Plan, prepare


def _literal(value: Any, name: str, default: Any = None) -> Any:
    """The compile-time value of an argument."""
    if isinstance(value, types.Omitted):
        return value.value
    if isinstance(value, types.Literal):
        return value.literal_value
    if value is None or isinstance(value, str | int):
        return default if value is None else value
    raise TypingError(f'mma_sync: {name} must be a literal inside compiled code, for example {name}="sm_90"; it is {value}')


def _check_image(x: Any, name: str) -> None:
    good = isinstance(x, types.Array) and x.dtype == types.uint32 and x.ndim == 2 and x.layout == "C"
    if not good:
        raise TypingError(f"mma_sync: operand {name} must be a C-contiguous uint32 array (32, registers) inside compiled code, not {x}")


def _general(plan: Plan) -> Callable[..., Any]:
    """The body for a form: the general kernel with the plan's tables as constants."""
    ra, rb, rc, rd = plan.registers
    places, geometry, params = plan.places, plan.geometry, plan.params
    na, nb, ns = plan.scratch
    word = plan.word.type
    run = mma_kernel.run

    def body(mnemonic, a, b, c, arch="sm_90", threads=None):  # type: ignore[no-untyped-def]
        if a.shape != (32, ra) or b.shape != (32, rb) or c.shape != (32, rc):
            raise ValueError("mma_sync: an operand is not (32, registers) with the registers of this form; see instruction(mnemonic).a")
        d = np.zeros((32, rd), np.uint32)
        strides = np.zeros(4, np.int64)
        none = np.zeros(1, np.uint32)
        xa, xb, xs = np.empty(na, word), np.empty(nb, word), np.empty(ns, word)
        run(
            a.reshape(-1), b.reshape(-1), c.reshape(-1), none, d.reshape(-1), strides, 0, 1,
            places, geometry, params, xa, xb, xs,
        )  # fmt: skip
        return d

    return body


def register(mma_sync: Callable[..., Any]) -> None:
    """Teach Numba the function `mma_sync(mnemonic, a, b, c, arch="sm_90")`."""

    def typed(mnemonic, a, b, c, arch="sm_90", threads=None):  # type: ignore[no-untyped-def]
        try:
            row = parse(_literal(mnemonic, "mnemonic"))
            plan = prepare(row, _literal(arch, "arch", "sm_90"))
        except NbtcError as error:
            raise TypingError(f"{type(error).__name__}: {error}") from error
        if row.family != "mma":
            raise TypingError(f"{row.mnemonic} is a {row.family} form; mma_sync runs mma, for example mma.sync.aligned.m16n8k8...")
        for x, name in ((a, "a"), (b, "b"), (c, "c")):
            _check_image(x, name)
        return _general(plan)

    overload(mma_sync, prefer_literal=True)(typed)
