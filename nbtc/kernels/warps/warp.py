"""Warp-level products as vector code: all kinds of them with one interface, for one warp and for batches.

A code (`FloatCode`, `Fp8Code`, `IntegerCode`, `DoubleCode`) says what is compiled in.  Its emitter writes one warp; a
loop over warps is a function of its own, so that the rounding mode is set once for all of them and no other code sees
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu import lowering
from nbtc.compiler.cpu.float_mode import enter, leave
from nbtc.compiler.jit import call, in_default_float_mode, jit
from nbtc.compiler.library import EMITTED, emitted_function
from nbtc.compiler.machine_code.emitted import Emitted, Named, call_address, call_emitted, in_words, machine_code
from nbtc.compiler.machine_code.native import Loaded
from nbtc.kernels.warps import warp_f64
from nbtc.kernels.warps.code import ProductCode
from nbtc.kernels.warps.float_code import FloatCode
from nbtc.kernels.warps.warp_f64 import DoubleCode
from nbtc.kernels.warps.warp_floats import WarpSchedule
from nbtc.kernels.warps.warp_fp8 import Fp8Code, Fp8Warp
from nbtc.kernels.warps.warp_words import IntegerCode, IntegerWarp

AHEAD = 4  # warps between a prefetch and its use
BYTES = 128  # of a register of a warp


Emitter = Callable[[Any, VectorBuilder, list[Any], Sequence[Any]], Any]
# of each class of codes: emit(code, builder, addresses of a warp's images, (F, floor)): i1, needs the fallback
EMITTERS: dict[type[ProductCode], Emitter] = {
    FloatCode: lambda code, v, images, numbers: WarpSchedule(code, v, images, numbers).emit(),
    Fp8Code: lambda code, v, images, numbers: Fp8Warp(code, v, images, numbers).emit(),
    IntegerCode: lambda code, v, images, _: IntegerWarp(code, v, images).emit(),
    DoubleCode: lambda code, v, images, _: warp_f64.emit(code, v, images),
}
KINDS: dict[str, type[ProductCode]] = {kind.kind: kind for kind in EMITTERS}


def emit_warp(v: VectorBuilder, code: ProductCode, images: list[Any], numbers: Sequence[Any]) -> Any:
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


class Warps(NamedTuple):
    """Arguments of the compiled loop over warps: images, words from one warp's to the next one's of each, which warps,
    F and the floor, and where it is noted which warps are for the general path.

    Dense products don't read `meta`.
    """

    a: Any
    b: Any
    c: Any
    meta: Any
    d: Any
    a_step: int
    b_step: int
    c_step: int
    meta_step: int
    d_step: int
    first: int
    last: int
    fraction: int
    floor: int
    marks: Any


def _write_loop(v: VectorBuilder, code: ProductCode, given: Named) -> Any:
    """The warps of `Warps`; returns how many are for the general path.

    The rounding mode is set for all of them, since a multiply-add that names its rounding takes no operand from memory,
    and 256 broadcasts a warp cost half as much as its sums.
    """
    b, first = v.b, given["first"]
    names = [name for name in ("a", "b", "c", "meta", "d") if name != "meta" or len(code.images) == 5]
    steps = [b.shl(given[f"{name}_step"], v.int(2)) for name in names]
    arrays = [v.at(given[name], b.mul(first, step)) for name, step in zip(names, steps, strict=True)]
    numbers, marks = [b.trunc(given[x], I32) for x in ("fraction", "floor")], v.at(given["marks"], first)
    old = enter(v, code.mode) if code.mode is not None else None
    found = cgutils.alloca_once_value(b, v.int(0))
    with cgutils.for_range(b, b.sub(given["last"], first)) as loop:
        images = [v.at(p, b.mul(loop.index, step)) for p, step in zip(arrays, steps, strict=True)]
        for p, size in zip(images, code.images, strict=True):
            for line in range(0, BYTES * size, 64):
                v.prefetch(v.at(p, AHEAD * BYTES * size + line), write=p is images[-1])
        needs_fallback = EMITTERS[type(code)](code, v, images, numbers)
        v.store(b.zext(needs_fallback, I8), v.at(marks, loop.index))
        b.store(b.add(b.load(found), b.zext(needs_fallback, I64)), found)
    if old is not None:
        leave(v, old)
    return b.load(found)


def _function(module: Any, code: ProductCode) -> Any:
    """One warp as a function of a module, which is never inlined: no other code may see its rounding mode."""
    name = f"{code.kind}_" + "_".join(map(str, code.key))
    if EMITTED + name in module.globals:
        return module.globals[EMITTED + name]
    f = emitted_function(module, ir.FunctionType(I64, [I8.as_pointer()] * len(code.images) + [I32] * 2), name)
    v, n = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry"))), len(code.images)
    v.b.ret(v.b.zext(emit_warp(v, code, list(f.args[:n]), f.args[n:]), I64))
    return f


def _text(code: ProductCode) -> str:
    return " ".join([code.kind, *map(str, code.key)])


def _code(text: str) -> ProductCode:
    kind, *key = text.split()
    return KINDS[kind].of(*map(int, key))


@intrinsic(prefer_literal=True)  # type: ignore[untyped-decorator, unused-ignore]
def _one_warp(typing, text, images, numbers):
    """One warp of uint32 arrays; the code's text is a literal.  Returns whether the result is not to be used."""
    if not isinstance(text, types.StringLiteral):
        return None
    code, wanted = _code(text.literal_value), types.UniTuple(types.int64, len(numbers))

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        arrays = [v.pointer(t, x) for t, x in zip(images, cgutils.unpack_tuple(builder, args[1]), strict=True)]
        rest = [builder.trunc(x, I32) for x in cgutils.unpack_tuple(builder, args[2])]
        return builder.call(_function(builder.module, code), [*arrays, *rest])

    return types.int64(text, images, wanted), codegen


@jit
def some_warps(address, images, strides, first, last, numbers, marks):
    """The loop at an address, with the arguments of a `WarpLoop`."""
    a, b, c, meta, d = images[0], images[1], images[2], images[3], images[-1]
    steps = strides[0], strides[1], strides[2], strides[3], strides[-1]
    return call_emitted(address, Warps(a, b, c, meta, d, *steps, first, last, numbers[0], numbers[1], marks))


class LoneWarp(NamedTuple):
    """One warp of a dense product by the loop at an address, whose images are arrays of any shape; mark: one byte."""

    address: int
    a: Any
    b: Any
    c: Any
    d: Any
    fraction: int
    floor: int
    mark: Any


@cache
def lone_warp() -> int:
    """The address of a function of `LoneWarp`."""

    def body(v: VectorBuilder, x: Named) -> Any:
        nothing, given = dict.fromkeys(Warps._fields, v.int(0)), {name: x[name] for name in ("a", "b", "c", "d")}
        given |= {"meta": x["d"], "last": v.int(1), "fraction": x["fraction"], "floor": x["floor"], "marks": x["mark"]}
        return call_address(v, x["address"], Warps, nothing | given)

    return machine_code({"lone_warp": in_words(LoneWarp, body)}, _stamp(), "lone_warp").address("lone_warp")


class WarpLoop:
    """loop(images, strides, first, last, numbers, marks), compiled: warps first..last of a batch.

    images: flat uint32 words of A, B, C, metadata if any, and D; strides: words from one warp to the next.  numbers: F
    and the floor.  marks[w] is set where warp w is for the general path, else cleared; returns how many are.
    """

    def __init__(self, code: ProductCode) -> None:
        self.code = code

    @cached_property
    def _loaded(self) -> Loaded:
        code = self.code
        functions = {"warps": Emitted(Warps, lambda v, given: _write_loop(v, code, given))}
        return in_default_float_mode(machine_code)(functions, _stamp(), _text(code), str(lowering.host()))

    @cached_property
    def address(self) -> int:
        """Of its machine code, for `some_warps`."""
        return self._loaded.address("warps")

    def __call__(self, images: Any, strides: Any, first: int, last: int, numbers: Any, marks: Any) -> int:
        return int(call(some_warps, len(images), self.address, images, strides, first, last, numbers, marks))

    @cached_property
    def one_warp(self) -> Callable[..., int]:
        """one_warp(images, numbers) for compiled callers, who take in its code: whether it is for the general path."""
        text = _text(self.code)

        def one_warp(images, numbers):
            return _one_warp(text, images, numbers)

        return jit(one_warp)  # type: ignore[no-any-return]


@cache
def _stamp() -> str:
    return source_digest(Path(__file__).resolve())


@cache
def loop(code: ProductCode) -> WarpLoop:
    """The compiled loop over warps of a code."""
    return WarpLoop(code)
