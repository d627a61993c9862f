"""Warp-level exchange, reduction, vote and match, after "Warp Shuffle Functions", "Warp Reduce Functions", "Warp Vote
Functions" and "Warp Match Functions" of the CUDA C++ Programming Guide, under their names without the underscores.

From Python the last axis of a value is the 32 lanes of a warp and the axes before it are a batch of independent warps:
values and results are (..., 32).  `mask` (bit L = lane L takes part), lanes, deltas and widths broadcast against that:
a number for all, (n, 1) for one a warp, (..., 32) for one a lane.  In a compiled function the same calls take one warp,
an array of 32; half and bfloat16 are then their bits in uint16.

Lanes outside the mask keep their value in shuffles and reductions, and get 0 from votes and matches.  A lane whose
source is outside the mask gets 0, where CUDA leaves the result undefined.

Errors, before any work: FormatError for a wrong type, RangeError for a mask that is no 32-bit word or lanes that
disagree about their mask, OptionError for an illegal width, ShapeError for a last axis that is not the 32 lanes.

>>> import numpy as np
>>> lanes = np.arange(32, dtype=np.int32)
>>> shfl_sync(0xFFFFFFFF, lanes, 2, width=16)[[0, 15, 16, 31]]           # everyone reads lane 2 of its half
array([ 2,  2, 18, 18], dtype=int32)
"""

from __future__ import annotations

import time
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.numba_door import warp as _jit
from nbtc.numba_door.registry import refresh_numba_registry as _refresh_numba_registry
from nbtc.ops.warp import arrays as _door

Array = NDArray[Any]


def shfl_sync(mask: ArrayLike, var: ArrayLike, src_lane: ArrayLike, width: ArrayLike = 32) -> Array:
    """Every lane reads lane `src_lane` (modulo `width`) of its segment of `width` lanes; PTX shfl.sync.idx.

    var: (..., 32) of int32, uint32, int64, uint64, float32, float64, float16, bfloat16 (or uint16: the bits of either);
    half2 and bfloat162 are uint32 words.  Returns the same type; bits are moved, never changed.

    >>> v = np.arange(32, dtype=np.float16) / 2
    >>> float(shfl_sync(0xFFFFFFFF, v, 7)[0])
    3.5
    >>> shfl_sync(0xFFFFFFFF, np.arange(64).reshape(2, 32), [[0], [31]])[:, :2]     # each warp has its own source
    array([[ 0,  0],
           [63, 63]])
    """
    return _door.shuffle("shfl_sync", mask, var, src_lane, width)


def shfl_up_sync(mask: ArrayLike, var: ArrayLike, delta: ArrayLike, width: ArrayLike = 32) -> Array:
    """Every lane reads the lane `delta` (modulo 32) below; the first lanes of a segment keep theirs; shfl.sync.up.

    Types as in `shfl_sync`.  An inclusive scan in groups of 8:

    >>> v, lane = np.ones(32, np.int32), np.arange(32)
    >>> for i in (1, 2, 4):
    ...     below = shfl_up_sync(0xFFFFFFFF, v, i, width=8)
    ...     v = np.where(lane % 8 >= i, v + below, v)
    >>> v[:10]
    array([1, 2, 3, 4, 5, 6, 7, 8, 1, 2], dtype=int32)
    """
    return _door.shuffle("shfl_up_sync", mask, var, delta, width)


def shfl_down_sync(mask: ArrayLike, var: ArrayLike, delta: ArrayLike, width: ArrayLike = 32) -> Array:
    """Every lane reads the lane `delta` (modulo 32) above; the last lanes of a segment keep theirs; shfl.sync.down.

    Types as in `shfl_sync`.

    >>> shfl_down_sync(0xFFFFFFFF, np.arange(32, dtype=np.int32), 3, width=8)[:8]
    array([3, 4, 5, 6, 7, 5, 6, 7], dtype=int32)
    """
    return _door.shuffle("shfl_down_sync", mask, var, delta, width)


def shfl_xor_sync(mask: ArrayLike, var: ArrayLike, lane_mask: ArrayLike, width: ArrayLike = 32) -> Array:
    """Every lane reads lane `lane ^ lane_mask`, unless that lies in a later segment; shfl.sync.bfly.

    Types as in `shfl_sync`.  A butterfly sum, after which every lane holds it:

    >>> v = np.arange(32, dtype=np.int32)
    >>> for i in (16, 8, 4, 2, 1):
    ...     v = v + shfl_xor_sync(0xFFFFFFFF, v, i)
    >>> bool((v == 496).all())
    True
    """
    return _door.shuffle("shfl_xor_sync", mask, var, lane_mask, width)


class Reduction(Protocol):
    """A reduction over the lanes of a mask."""

    def __call__(self, mask: ArrayLike, value: ArrayLike) -> Array: ...


class Vote(Protocol):
    """A vote of the lanes of a mask."""

    def __call__(self, mask: ArrayLike, predicate: ArrayLike) -> Array: ...


def _finish(function: Any, name: str, text: str, example: str, result: str) -> None:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"{text}\n\n    >>> {example}\n    {result}\n    "


def _reduction(name: str, text: str, result: str) -> Reduction:
    """reduce_NAME_sync with its docstring; the example reduces 5, 6, ... 36 over lanes 0 to 3."""

    def function(mask: ArrayLike, value: ArrayLike) -> Array:
        return _door.reduction(name, mask, value)

    full = f"reduce_{name}_sync"
    head = f"{text} of `value` over the lanes of `mask`, given to each of them; PTX redux.sync.{name}.\n\n"
    body = "    value: (..., 32) of int32 or uint32, and so is the result; lanes outside the mask keep their value."
    example = f"{full}(0xF, np.arange(5, 37, dtype=np.int32))[:5]"
    _finish(function, full, head + body, example, result)
    _jit.register_reduction(function, name)
    return function


def _vote(name: str, text: str, result: str) -> Vote:
    """NAME_sync with its docstring; in the example lanes 1 and 3 of the mask's lanes 0 to 3 agree."""

    def function(mask: ArrayLike, predicate: ArrayLike) -> Array:
        return _door.vote(name, mask, predicate)

    full, dtype = f"{name}_sync", "uint32" if name == "ballot" else "int32"
    head = f"{text}; lanes outside the mask get 0; PTX vote.sync.\n\n"
    body = f"    predicate: (..., 32) integers or booleans, true when not 0.  Returns {dtype} (..., 32)."
    _finish(function, full, head + body, f"{full}(0xF, np.arange(32) % 2)[:5]", result)
    _jit.register_vote(function, name)
    return function


reduce_add_sync: Reduction = _reduction("add", "The sum modulo 2**32", "array([26, 26, 26, 26,  9], dtype=int32)")
reduce_min_sync: Reduction = _reduction("min", "The minimum", "array([5, 5, 5, 5, 9], dtype=int32)")
reduce_max_sync: Reduction = _reduction("max", "The maximum", "array([8, 8, 8, 8, 9], dtype=int32)")
reduce_and_sync: Reduction = _reduction("and", "The bitwise and", "array([0, 0, 0, 0, 9], dtype=int32)")
reduce_or_sync: Reduction = _reduction("or", "The bitwise or", "array([15, 15, 15, 15,  9], dtype=int32)")
reduce_xor_sync: Reduction = _reduction("xor", "The bitwise exclusive or", "array([12, 12, 12, 12,  9], dtype=int32)")

all_sync: Vote = _vote("all", "1 if the predicate holds in all lanes of `mask`", "array([0, 0, 0, 0, 0], dtype=int32)")
any_sync: Vote = _vote("any", "1 if the predicate holds in some lane of `mask`", "array([1, 1, 1, 1, 0], dtype=int32)")
uni_sync: Vote = _vote(
    "uni", "1 if the predicate is the same in all lanes of `mask`", "array([0, 0, 0, 0, 0], dtype=int32)"
)
ballot_sync: Vote = _vote(
    "ballot", "The lanes of `mask` whose predicate holds", "array([10, 10, 10, 10,  0], dtype=uint32)"
)


def match_any_sync(mask: ArrayLike, value: ArrayLike) -> Array:
    """The lanes of `mask` that hold the same bits as the lane itself, as a mask; PTX match.any.sync.

    value: (..., 32) of int32, uint32, int64, uint64, float32, float64 (compared as bits: 0.0 is not -0.0).
    Returns uint32 (..., 32), 0 in lanes outside of `mask`.

    >>> [hex(m) for m in match_any_sync(0xFF, np.arange(32, dtype=np.int32) % 4)[[0, 1, 2, 3, 8]]]
    ['0x11', '0x22', '0x44', '0x88', '0x0']
    """
    return _door.match("match_any_sync", mask, value)


def match_all_sync(mask: ArrayLike, value: ArrayLike) -> tuple[Array, Array]:
    """(lanes, predicate): `mask` and 1 if all its lanes hold the same bits, else 0 and 0; PTX match.all.sync.

    Types as in `match_any_sync`; the predicate is int32 (..., 32).

    >>> lanes, same = match_all_sync(0x3, np.arange(32, dtype=np.int32) // 2)
    >>> lanes[:3], same[:3]
    (array([3, 3, 0], dtype=uint32), array([1, 1, 0], dtype=int32))
    """
    lanes = _door.match("match_all_sync", mask, value)
    return lanes, (lanes != 0).astype(np.int32)


def activemask() -> np.uint32:
    """The lanes that are active: all of them, since the lanes of a warp run in step here; CUDA __activemask.

    >>> hex(activemask())
    '0xffffffff'
    """
    return np.uint32(0xFFFFFFFF)


def syncwarp(mask: ArrayLike = 0xFFFFFFFF) -> None:
    """Barrier over the lanes of `mask`; PTX bar.warp.sync.  The lanes run in step here, so only the mask is checked.

    >>> syncwarp()
    """
    _door.check_mask("syncwarp", mask)


def nanosleep(ns: int) -> None:
    """Suspend for about `ns` nanoseconds; PTX nanosleep.  CUDA allows 0 to 2 * ns: here other threads get a turn.

    >>> nanosleep(100)
    """
    _door.check_nanoseconds(ns)
    time.sleep(0)


_jit.register_shuffles(shfl_sync, shfl_up_sync, shfl_down_sync, shfl_xor_sync)
_jit.register_matches(match_any_sync, match_all_sync)
_jit.register_rest(activemask, syncwarp, nanosleep)
_refresh_numba_registry()
