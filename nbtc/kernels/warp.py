"""Warp-level products as vector code: all kinds of them behind one door, for one warp and for batches.

A code (`Shape`, `Fp8`, `Integers`, `Doubles`) says what is compiled in.  Its emitter writes one warp; a loop over warps
is a function of its own in the module, so that the rounding mode is set once for all of them and no other code sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.compiler.float_mode import enter, leave
from nbtc.compiler.jit import jit
from nbtc.compiler.library import EMITTED, emitted_function
from nbtc.kernels import warp_f64
from nbtc.kernels.code import Code
from nbtc.kernels.float_code import FloatCode
from nbtc.kernels.warp_f64 import DoubleCode
from nbtc.kernels.warp_floats import Codegen
from nbtc.kernels.warp_fp8 import Fp8Code, Fp8Warp
from nbtc.kernels.warp_words import IntegerCode, IntegerWarp

AHEAD = 4  # warps between a prefetch and its use
BYTES = 128  # of a register of a warp


Emitter = Callable[[Any, VectorBuilder, list[Any], Sequence[Any]], Any]
# of each class of codes: emit(code, builder, addresses of a warp's images, (F, floor)): i1, needs the fallback
EMITTERS: dict[type[Code], Emitter] = {
    FloatCode: lambda code, v, images, numbers: Codegen(code, v, *numbers).emit(*images),
    Fp8Code: lambda code, v, images, numbers: Fp8Warp(code, v, images, numbers).emit(),
    IntegerCode: lambda code, v, images, _: IntegerWarp(code, v, images).emit(),
    DoubleCode: lambda code, v, images, _: warp_f64.emit(code, v, images),
}
KINDS: dict[str, type[Code]] = {kind.kind: kind for kind in EMITTERS}


def emit_warp(v: VectorBuilder, code: Code, images: list[Any], numbers: Sequence[Any]) -> Any:
    """One warp, in its rounding mode: to be called in a function that is never inlined.

    images: addresses of A, B, C, metadata if any, and D.  numbers: F and the floor as i32 values.  Returns an i1: D is
    not to be used, the general path has to do the warp.
    """
    mode = code.mode
    old = enter(v, mode) if mode is not None else None
    needs_fallback = EMITTERS[type(code)](code, v, images, numbers)
    if mode is not None:
        leave(v, old)
    return needs_fallback


def _loop_body(v: VectorBuilder, code: Code, arguments: Sequence[Any]) -> Any:
    """All warps; returns how many need the fallback."""
    b, n = v.b, len(code.images)
    arrays, strides, (marks, count, *numbers) = arguments[:n], arguments[n : 2 * n], arguments[2 * n :]
    found = cgutils.alloca_once_value(b, v.int(0))
    with cgutils.for_range(b, count) as loop:
        images = [v.at(p, b.mul(loop.index, step)) for p, step in zip(arrays, strides, strict=True)]
        for p, size in zip(images, code.images, strict=True):
            for line in range(0, BYTES * size, 64):
                v.prefetch(v.at(p, AHEAD * BYTES * size + line), write=p is images[-1])
        needs_fallback = EMITTERS[type(code)](code, v, images, numbers)
        v.store(b.zext(needs_fallback, I8), v.at(marks, loop.index))
        b.store(b.add(b.load(found), b.zext(needs_fallback, I64)), found)
    return b.load(found)


def _function(context: Any, module: Any, code: Code) -> Any:
    """The compiled loop over warps of a code: addresses of images, strides in bytes, marks, count, F, the floor.

    The rounding mode is set for all of it, since a multiply-add that names its rounding takes no operand from memory,
    and 256 broadcasts a warp cost half as much as its sums.  Never inlined: no other code may see that mode.
    """
    name = f"{code.kind}_" + "_".join(map(str, code.key))
    if EMITTED + name in module.globals:
        return module.globals[EMITTED + name]
    p, n = I8.as_pointer(), len(code.images)
    f = emitted_function(module, ir.FunctionType(I64, [p] * n + [I64] * n + [p, I64, I32, I32]), name)
    v = VectorBuilder(context, ir.IRBuilder(f.append_basic_block("entry")))
    mode = code.mode
    old = enter(v, mode) if mode is not None else None
    found = _loop_body(v, code, f.args)
    if mode is not None:
        leave(v, old)
    v.b.ret(found)
    return f


def _text(code: Code) -> str:
    return " ".join([code.kind, *map(str, code.key)])


def _code(text: str) -> Code:
    kind, *key = text.split()
    return KINDS[kind].of(*map(int, key))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _some_warps(typing, text, images, strides, first, last, numbers, marks):
    """Warps first..last of uint32 arrays, w at word w * stride of each; the code's text is a literal.

    marks[w] tells which results are not to be used (None where warp 0 is the only one); returns how many.
    """
    if not isinstance(text, types.StringLiteral):
        return None
    code, integers = _code(text.literal_value), (strides, numbers)
    wanted = [types.UniTuple(types.int64, len(t)) for t in integers]
    one = isinstance(marks, types.NoneType)

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        arrays = [v.pointer(t, x) for t, x in zip(images, cgutils.unpack_tuple(builder, args[1]), strict=True)]
        start, stop = args[3], args[4]
        steps = [builder.shl(x, v.int(2)) for x in cgutils.unpack_tuple(builder, args[2])]
        arrays = [v.at(p, builder.mul(start, n)) for p, n in zip(arrays, steps, strict=True)]
        place = cgutils.alloca_once(builder, I8) if one else v.at(v.pointer(marks, args[6]), start)
        rest = [builder.trunc(x, I32) for x in cgutils.unpack_tuple(builder, args[5])]
        f = _function(context, builder.module, code)
        return builder.call(f, [*arrays, *steps, place, builder.sub(stop, start), *rest])

    return types.int64(text, images, wanted[0], types.int64, types.int64, wanted[1], marks), codegen


@cache
def _kernel(text: str) -> Callable[..., int]:
    def some_warps(images, strides, first, last, numbers, marks):
        return _some_warps(text, images, strides, first, last, numbers, marks)

    return jit(some_warps)  # type: ignore[no-any-return]


def loop(code: Code) -> Callable[..., int]:
    """loop(images, strides, first, last, numbers, marks), compiled: warps first..last of a batch.

    images: flat uint32 words of A, B, C, metadata if any, and D; strides: words from one warp to the next.  numbers: F
    and the floor.  marks[w] (or None for a single warp) is set where warp w is for the general path, else cleared;
    returns how many are.
    """
    return _kernel(_text(code))
