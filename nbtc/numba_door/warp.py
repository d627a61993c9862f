"""The warp functions inside compiled functions: one warp, held as an array of 32 elements.

`register_*` tie an implementation to each public function of `nbtc.warp`, so that a function compiled by Numba can call
it by the same name.  Types are checked when the caller is compiled, values (masks, widths, lengths) when it runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.compiler.python_only import compiled_only
from nbtc.errors import OptionError, RangeError, ShapeError
from nbtc.ops.warp import lanes as ops

Function = Callable[..., Any]
WORDS = (types.int32, types.uint32)
MATCHABLE = (*WORDS, types.int64, types.uint64, types.float32, types.float64)
MOVABLE = (*MATCHABLE, types.uint16)
PREDICATES = (types.boolean, *types.integer_domain)


# -------------------------------------------------------------------------------------------------- values, at run time


def take(x: Any, lane: int) -> Any:
    """A lane's value of a parameter that is one for the warp or an array of 32; exists in compiled functions only."""
    raise compiled_only("take")


@overload(take)
def _take(x, lane):
    if isinstance(x, types.Array):
        return lambda x, lane: x[lane]
    return lambda x, lane: x


@jit(inline=True)
def lanes_of(mask):
    if mask < 0 or mask > 0xFFFFFFFF:
        raise RangeError(
            "a warp mask has 32 bits, one a lane: pass 0 <= mask <= 0xFFFFFFFF (all lanes: 0xFFFFFFFF, not ~0)"
        )
    return np.uint32(mask) & ops.ALL_LANES


@jit(inline=True)
def segment_of(width):
    if width < 1 or width > 32 or width & (width - 1) != 0:
        raise OptionError(
            "the width of a shuffle must be 1, 2, 4, 8, 16 or 32; pass for example width=32 (the default)"
        )
    return np.int32(width)


@jit(inline=True)
def check_warp(values):
    if values.size != 32:
        raise ShapeError(
            "inside a compiled function a warp is an array of 32 elements, one a lane: pass np.empty(32, ...)"
        )


def check_parameter(x: Any) -> None:
    """Stop where a parameter is an array, but not of 32 lanes; exists in compiled functions only."""
    raise compiled_only("check_parameter")


@overload(check_parameter)
def _check_parameter(x):
    if isinstance(x, types.Array):
        return lambda x: check_warp(x)
    return lambda x: None


# ---------------------------------------------------------------------------------------------------------------- warps


@jit(inline=True)
def shuffle(mode, mask, values, b, width):
    check_warp(values)
    check_parameter(mask)
    check_parameter(b)
    check_parameter(width)
    out = np.empty(32, values.dtype)
    for lane in range(32):
        i = np.int32(lane)
        lanes, segment = lanes_of(take(mask, i)), segment_of(take(width, i))
        out[lane] = ops.exchanged(mode, values, np.int64(0), i, np.int32(take(b, i)), segment, lanes)
    return out


@jit(inline=True)
def reduction(op, bias, mask, values):
    check_warp(values)
    check_parameter(mask)
    out = values.copy()
    lanes, total = np.uint32(0), np.uint32(0)
    for lane in range(32):
        wanted = lanes_of(take(mask, lane))
        if not ops.has(wanted, lane):
            continue
        if wanted != lanes:  # one reduction serves all lanes with the same mask
            lanes = wanted
            total = ops.reduced(op, bias, values, np.int64(0), lanes)
        out[lane] = total
    return out


@jit(inline=True)
def vote(kind, mask, predicates, out):
    check_warp(predicates)
    check_parameter(mask)
    lanes, result = np.uint32(0), np.uint32(0)
    for lane in range(32):
        wanted = lanes_of(take(mask, lane))
        if not ops.has(wanted, lane):
            continue
        if wanted != lanes:
            lanes = wanted
            result = ops.voted(kind, predicates, np.int64(0), lanes)
        out[lane] = result
    return out


@jit(inline=True)
def match(kind, mask, words):
    check_warp(words)
    check_parameter(mask)
    out = np.zeros(32, np.uint32)
    for lane in range(32):
        lanes = lanes_of(take(mask, lane))
        if ops.has(lanes, lane):
            out[lane] = ops.matched(kind, words, np.int64(0), lane, lanes)
    return out


# ----------------------------------------------------------------------------------------------- types, at compile time


def _check(name: str, values: Any, allowed: tuple[Any, ...], **integers: Any) -> None:
    """Stop the compilation of the caller with a reason when an argument has the wrong type."""
    if not (isinstance(values, types.Array) and values.ndim == 1 and values.dtype in allowed):
        dtypes = " ".join(str(t) for t in allowed)
        raise TypingError(f"{name} takes an array of 32 lanes of {dtypes} inside a compiled function, not {values}")
    for label, t in integers.items():
        t = getattr(t, "value", t) if isinstance(t, types.Omitted) else t
        scalar = t.dtype if isinstance(t, types.Array) and t.ndim == 1 else t
        if not isinstance(scalar, (int, types.Integer)):
            raise TypingError(f"{name}: {label} must be an integer or an array of 32 integers, not {t}; pass {label}=1")


def register_shuffles(idx: Function, up: Function, down: Function, xor: Function) -> None:
    """The four shuffles; they differ in their mode and in what CUDA C++ calls the third argument."""
    i, u, d, x = ops.IDX, ops.UP, ops.DOWN, ops.XOR

    @overload(idx)
    def shfl_sync(mask, var, src_lane, width=32):
        _check("shfl_sync", var, MOVABLE, mask=mask, src_lane=src_lane, width=width)
        return lambda mask, var, src_lane, width=32: shuffle(i, mask, var, src_lane, width)

    @overload(up)
    def shfl_up_sync(mask, var, delta, width=32):
        _check("shfl_up_sync", var, MOVABLE, mask=mask, delta=delta, width=width)
        return lambda mask, var, delta, width=32: shuffle(u, mask, var, delta, width)

    @overload(down)
    def shfl_down_sync(mask, var, delta, width=32):
        _check("shfl_down_sync", var, MOVABLE, mask=mask, delta=delta, width=width)
        return lambda mask, var, delta, width=32: shuffle(d, mask, var, delta, width)

    @overload(xor)
    def shfl_xor_sync(mask, var, lane_mask, width=32):
        _check("shfl_xor_sync", var, MOVABLE, mask=mask, lane_mask=lane_mask, width=width)
        return lambda mask, var, lane_mask, width=32: shuffle(x, mask, var, lane_mask, width)


def register_reduction(function: Function, name: str) -> None:
    op = ops.REDUCTIONS[name]

    @overload(function)
    def reduce_sync(mask, value):
        _check(f"reduce_{name}_sync", value, WORDS, mask=mask)
        bias = ops.bias_of(name, value.dtype == types.int32)
        return lambda mask, value: reduction(op, bias, mask, value)


def register_vote(function: Function, name: str) -> None:
    kind = ops.VOTES[name]
    dtype = np.uint32 if name == "ballot" else np.int32

    @overload(function)
    def vote_sync(mask, predicate):
        _check(f"{name}_sync", predicate, PREDICATES, mask=mask)
        return lambda mask, predicate: vote(kind, mask, predicate, np.zeros(32, dtype))


def register_matches(any_: Function, all_: Function) -> None:
    first, every = ops.MATCH_ANY, ops.MATCH_ALL

    @overload(any_)
    def match_any_sync(mask, value):
        _check("match_any_sync", value, MATCHABLE, mask=mask)
        word = np.uint64 if value.dtype.bitwidth == 64 else np.uint32
        return lambda mask, value: match(first, mask, np.ascontiguousarray(value).view(word))

    @overload(all_)
    def match_all_sync(mask, value):
        _check("match_all_sync", value, MATCHABLE, mask=mask)
        word = np.uint64 if value.dtype.bitwidth == 64 else np.uint32

        def implementation(mask, value):
            lanes = match(every, mask, np.ascontiguousarray(value).view(word))
            return lanes, (lanes != 0).astype(np.int32)

        return implementation


def register_rest(activemask: Function, syncwarp: Function, nanosleep: Function) -> None:
    """What needs no values: the lanes of a warp run in step here, so there is nothing to wait for."""
    everyone = ops.ALL_LANES

    @overload(activemask)
    def active():
        return lambda: everyone

    @overload(syncwarp)
    def barrier(mask=0xFFFFFFFF):
        def implementation(mask=0xFFFFFFFF):
            lanes_of(mask)

        return implementation

    @overload(nanosleep)
    def sleep(ns):
        if not isinstance(ns, types.Integer):
            raise TypingError(f"nanosleep takes an integer number of nanoseconds, not {ns}; call nanosleep(100)")
        return lambda ns: None
