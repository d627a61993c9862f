"""Words of the thread: its place, barriers, selection (PTX ISA 9.7.13, "Parallel Synchronization", and chapter 10)."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature
from numba.core.typing.templates import AttributeTemplate

from nbtc.dialect import language, target, words
from nbtc.dialect.language import WHOLE_WARP, Index3, block_dim, block_idx, thread_idx

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
HERE = language.__name__
WARP_BITS = 5  # a warp has 2^5 threads


class Index3Type(types.Dummy):  # type: ignore[misc]
    """A special register with three components."""

    def __init__(self, register: str) -> None:
        self.register = register
        super().__init__(f"nbtc.{register}")


target.values.append(lambda x: target.Typed(Index3Type(x.register)) if isinstance(x, Index3) else None)


@target.typing_registry.register_attr
class _Index3Attributes(AttributeTemplate):  # type: ignore[misc]
    key = Index3Type

    def generic_resolve(self, kind: Any, axis: str) -> Any:
        return types.int32 if axis in ("x", "y", "z") else None


@target.lowering_registry.lower_getattr_generic(Index3Type)
def _index3(context: Any, builder: Any, kind: Any, value: Any, axis: str) -> Any:
    return words.nvvm(builder, f"read.ptx.sreg.{kind.register}.{axis}", I32)


@target.lowering_registry.lower_constant(Index3Type)
def _no_value(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    return context.get_dummy_value()


@words.word(f"{HERE}.lane_id")
def _lane_id(context: Any) -> Any:
    return signature(types.int32), lambda c, b, s, a: words.nvvm(b, "read.ptx.sreg.laneid", I32)


def _grid_1():
    return block_idx.x * block_dim.x + thread_idx.x


def _grid_2():
    return (block_idx.x * block_dim.x + thread_idx.x, block_idx.y * block_dim.y + thread_idx.y)


def _grid_3():
    return (
        block_idx.x * block_dim.x + thread_idx.x,
        block_idx.y * block_dim.y + thread_idx.y,
        block_idx.z * block_dim.z + thread_idx.z,
    )


_GRIDS = {1: _grid_1, 2: _grid_2, 3: _grid_3}


@words.word(f"{HERE}.grid")
def _grid(context: Any, ndim: Any) -> Any:
    n = getattr(ndim, "literal_value", None)
    if n not in _GRIDS:
        words.refuse(f"grid takes the number of dimensions, 1, 2 or 3, as a constant, not {n if n else ndim}")
    result = types.int64 if n == 1 else types.UniTuple(types.int64, n)
    return signature(result, ndim), lambda c, b, s, a: c.compile_internal(b, _GRIDS[n], signature(result), [])


def warp_idx():
    return (((thread_idx.z * block_dim.y) + thread_idx.y) * block_dim.x + thread_idx.x) >> WARP_BITS


@words.word(f"{HERE}.warp_idx")
def _warp_idx(context: Any) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        return b.trunc(c.compile_internal(b, warp_idx, signature(types.int64), []), I32)

    return signature(types.int32), emit


@words.word(f"{HERE}.syncthreads")
def _syncthreads(context: Any) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        words.nvvm(b, "barrier0", ir.VoidType())
        return c.get_dummy_value()

    return signature(types.none), emit


def _counting(name: str, operation: str) -> None:
    @words.word(f"{HERE}.{name}")
    def counting(context: Any, predicate: Any) -> Any:
        def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
            held = b.zext(c.cast(b, a[0], s.args[0], types.boolean), I32)
            return words.nvvm(b, f"barrier0.{operation}", I32, [held])

        return signature(types.int32, predicate), emit


for _name, _operation in (("syncthreads_count", "popc"), ("syncthreads_and", "and"), ("syncthreads_or", "or")):
    _counting(_name, _operation)


@words.word(f"{HERE}.syncwarp")
def _syncwarp(context: Any, mask: Any = WHOLE_WARP) -> Any:
    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        words.nvvm(b, "bar.warp.sync", ir.VoidType(), [c.cast(b, a[0], s.args[0], types.uint32)])
        return c.get_dummy_value()

    return signature(types.none, mask), emit


@words.word(f"{HERE}.where")
def _where(context: Any, condition: Any, x: Any, y: Any) -> Any:
    result = context.unify_types(types.unliteral(x), types.unliteral(y))
    if result is None or not isinstance(result, types.Number | types.Boolean):
        words.refuse(f"where chooses between two numbers, not between {x} and {y}")

    def emit(c: Any, b: Any, s: Any, a: Any) -> Any:
        holds = c.cast(b, a[0], s.args[0], types.boolean)
        return b.select(holds, c.cast(b, a[1], s.args[1], result), c.cast(b, a[2], s.args[2], result))

    return signature(result, condition, x, y), emit


for _name, _scope in (("threadfence", "gl"), ("threadfence_block", "cta"), ("threadfence_system", "sys")):
    words.instruction(f"{HERE}.{_name}", f"membar.{_scope};", types.void, memory=True)

words.instruction(f"{HERE}.nanosleep", "nanosleep.u32 $0;", types.void, (types.uint32,), ("ns",))
