"""Loops that are unrolled whole: their indices are constants, so that arrays they index can live in registers.

The back edge of such a loop gets LLVM's metadata for it (LLVM Language Reference, "llvm.loop.unroll.full").
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.datamodel import models
from numba.core.imputils import RefType, iternext_impl
from numba.core.typing import signature

from nbtc.dialect import language, loop_metadata, target, words
from nbtc.dialect.narrow import MODELS
from nbtc.numba_door.constants import constant_of

HERE = language.__name__
MOST = 1024  # iterations: more make texts that take minutes to compile
I64 = ir.IntType(64)


class _Iterator(types.SimpleIteratorType):  # type: ignore[misc]
    """Where a loop is."""

    def __init__(self, steps: range) -> None:
        self.steps = steps
        super().__init__(f"iterator of nbtc.unroll({steps})", types.int64)


class _Unrolled(types.SimpleIterableType):  # type: ignore[misc]
    """A range that a loop runs through."""

    def __init__(self, steps: range) -> None:
        self.steps = steps
        super().__init__(f"nbtc.unroll({steps})", _Iterator(steps))


class _IteratorModel(models.StructModel):  # type: ignore[misc]
    """The next index and how many are left, in memory.

    Two counters: a test of the index for the end would be merged with choices by it, and the end no longer be seen.
    """

    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, [(name, types.EphemeralPointer(types.int64)) for name in ("index", "left")])


MODELS.register(_Unrolled, models.OpaqueModel)
MODELS.register(_Iterator, _IteratorModel)


@words.word(f"{HERE}.unroll")
def _unroll(context: Any, start: Any, stop: Any = None, step: Any = 1) -> Any:
    given = [constant_of(x) for x in (start, stop, step)]
    bounds = [0, given[0], 1] if isinstance(stop, types.NoneType) else given
    if not all(isinstance(n, int) for n in bounds) or not bounds[2]:
        words.refuse(f"unroll takes constants, as range does; it was given {start}, {stop}, {step}")
    steps = range(*bounds)
    if len(steps) > MOST:
        words.refuse(f"unroll: {len(steps)} iterations are more than {MOST}: nest loops, the inner one unrolled")
    return signature(_Unrolled(steps), start, stop, step), lambda c, b, s, a: c.get_dummy_value()


@target.lowering_registry.lower("getiter", _Unrolled)
def _begin(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    found = context.make_helper(builder, sig.return_type)
    steps = sig.args[0].steps
    found.index = cgutils.alloca_once_value(builder, ir.Constant(I64, steps.start))
    found.left = cgutils.alloca_once_value(builder, ir.Constant(I64, len(steps)))
    return found._getvalue()


@target.lowering_registry.lower("iternext", _Iterator)
@iternext_impl(RefType.UNTRACKED)
def _next(context: Any, builder: Any, sig: Any, args: Any, result: Any) -> None:
    state, step = context.make_helper(builder, sig.args[0], args[0]), sig.args[0].steps.step
    loop_metadata.unrolled.append(loop_metadata.Loop(builder.basic_block, [(state.index, step), (state.left, -1)]))
    result.set_valid(builder.icmp_signed("!=", builder.load(state.left), ir.Constant(I64, 0)))
    result.yield_(builder.load(state.index))
