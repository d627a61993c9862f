"""Reinterpreting a scalar's bits inside compiled code (one register move, no memory)."""

from __future__ import annotations

from typing import Any

from numba.core import types
from numba.extending import intrinsic

from nbtc.compiler.builder import VectorBuilder


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


def _loaded(kind: Any) -> Any:
    """An intrinsic f(memory, at): bytes of a uint8 array, from any byte on, as a little-endian number of this type."""

    @intrinsic  # type: ignore[untyped-decorator, unused-ignore]
    def load(typing, memory, at):
        def codegen(context, builder, sig, args):
            v = VectorBuilder(context, builder)
            return v.load(v.at(v.pointer(sig.args[0], args[0]), args[1]), context.get_value_type(kind))

        return kind(memory, types.int64), codegen

    return load


word_at, double_word_at = _loaded(types.uint32), _loaded(types.uint64)
