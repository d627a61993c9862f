"""The warp functions on arrays: argument rules, broadcasting, and arrays to and from the kernels' words."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, OptionError, RangeError, ShapeError
from nbtc.formats.arrays import as_array, dtype_name
from nbtc.ops.warp import lanes as ops

Array = NDArray[Any]
Spread = tuple[Array, tuple[int, int]]  # flat storage and its (warp, lane) strides

_WORD = {2: np.uint16, 4: np.uint32, 8: np.uint64}
_REDUCIBLE = ("int32", "uint32")
_MATCHABLE = (*_REDUCIBLE, "int64", "uint64", "float32", "float64")
_MOVABLE = (*_MATCHABLE, "float16", "bfloat16", "uint16")
_MODES = {"shfl_sync": ops.IDX, "shfl_up_sync": ops.UP, "shfl_down_sync": ops.DOWN, "shfl_xor_sync": ops.XOR}
_THIRD = {"shfl_sync": "src_lane", "shfl_up_sync": "delta", "shfl_down_sync": "delta", "shfl_xor_sync": "lane_mask"}
_MATCHES = {"match_any_sync": ops.MATCH_ANY, "match_all_sync": ops.MATCH_ALL}


def shuffle(name: str, mask: ArrayLike, var: ArrayLike, b: ArrayLike, width: ArrayLike) -> Array:
    """One of the four shuffles."""
    values = _values(name, "var", var, _MOVABLE)
    steps = _integers(name, _THIRD[name], b, -(2**31), 2**32 - 1, "0")
    widths, masks = _widths(name, width), check_mask(name, mask)
    batch = _batch(name, values, steps, widths, masks)
    _check_agreement(name, masks)
    words = _words(values, batch)
    out = np.empty(words.shape, words.dtype)
    # lanes and deltas count modulo 32: their low bits are all that matters
    b_flat, b_strides = _spread((steps & 31).astype(np.int32), batch)
    w_flat, w_strides = _spread(widths.astype(np.int32), batch)
    m_flat, m_strides = _spread(masks, batch)
    mode = _MODES[name]
    ops.run_shuffle(mode, words, b_flat, b_strides, w_flat, w_strides, m_flat, m_strides, ops.ALL_LANES, out)
    return out.view(values.dtype).reshape(*batch, 32)


def reduction(op: str, mask: ArrayLike, value: ArrayLike) -> Array:
    """reduce_OP_sync."""
    name = f"reduce_{op}_sync"
    values = _values(name, "value", value, _REDUCIBLE)
    masks, batch = _masks(name, values, mask)
    words = _words(values, batch)
    out = np.empty(words.shape, np.uint32)
    bias = ops.bias_of(op, values.dtype == np.int32)
    ops.run_reduce(ops.REDUCTIONS[op], bias, words, *_spread(masks, batch), ops.ALL_LANES, out)
    return out.view(values.dtype).reshape(*batch, 32)


def vote(kind: str, mask: ArrayLike, predicate: ArrayLike) -> Array:
    """KIND_sync."""
    name = f"{kind}_sync"
    values = as_array(predicate)
    if values.dtype.kind not in "biu":
        raise FormatError(
            f"{name}: predicate is {values.dtype}, but a vote takes integers or booleans; "
            f"pass a comparison, for example {name}(0xFFFFFFFF, x > 0)"
        )
    _check_lanes(name, "predicate", values)
    masks, batch = _masks(name, values, mask)
    truth = _flat((values != 0).view(np.uint8), batch)
    out = np.empty(truth.shape, np.uint32)
    ops.run_vote(ops.VOTES[kind], truth, *_spread(masks, batch), ops.ALL_LANES, out)
    return out.view(np.uint32 if kind == "ballot" else np.int32).reshape(*batch, 32)


def match(name: str, mask: ArrayLike, value: ArrayLike) -> Array:
    """The lanes of match_any_sync or match_all_sync."""
    values = _values(name, "value", value, _MATCHABLE)
    masks, batch = _masks(name, values, mask)
    words = _words(values, batch)
    out = np.empty(words.shape, np.uint32)
    ops.run_match(_MATCHES[name], words, *_spread(masks, batch), ops.ALL_LANES, out)
    return out.reshape(*batch, 32)


def check_mask(name: str, mask: ArrayLike) -> Array:
    """A mask as uint32, or RangeError."""
    return _integers(name, "mask", mask, 0, 0xFFFFFFFF, "0xFFFFFFFF").astype(np.uint32)


def check_nanoseconds(ns: int) -> None:
    """An unsigned 32-bit number of nanoseconds, or RangeError."""
    _integers("nanosleep", "ns", ns, 0, 2**32 - 1, "100")


# ------------------------------------------------------------------------------------------------------------ arguments


def _integers(name: str, label: str, x: ArrayLike, low: int, high: int, example: str) -> Array:
    """Integers within low..high as an array of int64."""
    if type(x) is int and low <= x <= high:  # the common case, without the cost of array reductions
        return np.array(x, np.int64)
    try:
        array = as_array(x)
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{name}: {label} is not an array of integers ({error}); pass {label}={example}") from None
    big = array.dtype.kind == "O" and array.size and all(isinstance(v, int) for v in array.flat)  # beyond 64 bits
    if array.dtype.kind not in "iu" and not big:
        raise FormatError(
            f"{name}: {label} is {array.dtype}, but it must be integers; pass for example {label}={example}"
        )
    if array.size and (array.min() < low or array.max() > high):
        worst = array.min() if array.min() < low else array.max()
        raise RangeError(
            f"{name}: {label} is {worst}, outside of its range {low}..{high}; pass for example {label}={example}"
        )
    return array.astype(np.int64)


def _widths(name: str, width: ArrayLike) -> Array:
    widths = _integers(name, "width", width, -(2**31), 2**31 - 1, "32")
    if type(width) is int and width in (1, 2, 4, 8, 16, 32):
        return widths
    wrong = (widths < 1) | (widths > 32) | (widths & (widths - 1) != 0)
    if wrong.any():
        given = int(widths[wrong].flat[0])
        raise OptionError(
            f"{name}: width is {given}, but segments are 1, 2, 4, 8, 16 or 32 lanes; pass for example width=16"
        )
    return widths


def _values(name: str, label: str, x: ArrayLike, allowed: tuple[str, ...]) -> Array:
    values = as_array(x)
    if dtype_name(values.dtype) not in allowed:
        raise FormatError(
            f"{name}: {label} is {values.dtype}, but the function takes {' '.join(allowed)}; "
            f"pass for example np.asarray({label}, np.int32)"
        )
    _check_lanes(name, label, values)
    return values


def _check_lanes(name: str, label: str, values: Array) -> None:
    if values.ndim == 0 or values.shape[-1] != 32:
        raise ShapeError(
            f"{name}: {label} has shape {values.shape}, but its last axis must be the 32 lanes of a warp; "
            f"pass for example {label}.reshape(-1, 32)"
        )


def _masks(name: str, values: Array, mask: ArrayLike) -> tuple[Array, tuple[int, ...]]:
    masks = check_mask(name, mask)
    batch = _batch(name, values, masks)
    _check_agreement(name, masks)
    return masks, batch


def _batch(name: str, *arrays: Array) -> tuple[int, ...]:
    """The batch axes that everything broadcasts to."""
    if all(x.ndim == 0 for x in arrays[1:]):  # the values come first and end in 32 lanes
        return arrays[0].shape[:-1]
    try:
        shape = np.broadcast_shapes(*(x.shape for x in arrays))
        if shape[-1] == 32:
            return shape[:-1]
    except ValueError:
        pass
    shapes = " ".join(str(x.shape) for x in arrays)
    raise ShapeError(
        f"{name}: arguments of shapes {shapes} do not broadcast to (..., 32); "
        "pass one number, (n, 1) for one a warp, or (..., 32) for one a lane"
    )


def _check_agreement(name: str, masks: Array) -> None:
    """Lanes that are in a mask must have come with the same mask: on a GPU anything else is a deadlock."""
    if masks.ndim == 0 or masks.shape[-1] == 1:
        return
    bits = (masks[..., None] >> np.arange(32, dtype=np.uint32)) & np.uint32(1) == 1  # [..., lane, named lane]
    taking_part = np.einsum("...ii->...i", bits)[..., None]
    differ = bits & taking_part & (masks[..., None] != masks[..., None, :])
    if differ.any():
        *_, lane, other = (int(i) for i in np.argwhere(differ)[0])
        raise RangeError(
            f"{name}: lane {lane} names lane {other} in its mask, but the two passed different masks; the lanes of a "
            "mask must pass the same one: give one mask a warp, or disjoint groups such as 0x0000FFFF and 0xFFFF0000"
        )


# ------------------------------------------------------------------------------------------------------ arrays to words


def _flat(x: Array, batch: tuple[int, ...]) -> Array:
    """Contiguous flat storage of `x` broadcast to the batch; read-only always, so that kernels compile once."""
    shape = (*batch, x.shape[-1])
    flat = np.ascontiguousarray(x if x.shape == shape else np.broadcast_to(x, shape)).reshape(-1)
    flat = flat.view()
    flat.flags.writeable = False
    return flat


def _words(values: Array, batch: tuple[int, ...]) -> Array:
    whole = values if values.shape == (*batch, 32) else np.broadcast_to(values, (*batch, 32))
    flat = np.ascontiguousarray(whole).reshape(-1).view(_WORD[values.dtype.itemsize])
    flat.flags.writeable = False
    return flat


def _spread(x: Array, batch: tuple[int, ...]) -> Spread:
    """A parameter as flat storage and strides: one number, one a warp, one a lane, or all."""
    if x.size == 1:
        return _flat(x.reshape(1), ()), (0, 0)
    if x.shape[-1] == 1:
        return _flat(x, batch), (1, 0)
    if x.ndim == 1:
        return _flat(x, ()), (0, 1)
    return _flat(x, batch), (32, 1)
