"""Reinterpreting a scalar's bits inside compiled code (one register move, no memory)."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import I32, VectorBuilder


def _reinterpret(source: Any, target: Any) -> Any:
    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def reinterpret(typing, x):
        def codegen(context, builder, sig, args):
            return builder.bitcast(args[0], context.get_value_type(target))

        return target(source), codegen

    return reinterpret


as_f64 = _reinterpret(types.int64, types.float64)
as_i64 = _reinterpret(types.float64, types.int64)
as_f32 = _reinterpret(types.int32, types.float32)
as_i32 = _reinterpret(types.float32, types.int32)


@intrinsic  # type: ignore[untyped-decorator, unused-ignore]
def word_at(typing, memory, at):
    """Four bytes of a uint8 array, from any byte on, as a little-endian uint32."""

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        return v.load(v.at(v.pointer(sig.args[0], args[0]), args[1]), I32)

    return types.uint32(memory, types.int64), codegen
