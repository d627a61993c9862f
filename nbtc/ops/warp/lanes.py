"""Exchange, reduction, vote and match between the 32 lanes of a warp.

Every lane-level helper here works on flat storage, with the lanes of a warp at `base .. base + 31`, and takes the
lanes that take part as one word: the mask of the instruction and the lanes that are active.  `run_*` loop them over a
batch of warps for the Python door; `nbtc.numba_door.warp` uses them for one warp inside a user's compiled function.
"""

from __future__ import annotations

import numpy as np

from nbtc.compiler.jit import jit

# Codes are NumPy integers because Numba would compile the helpers anew for each value of a Python int.
IDX, UP, DOWN, XOR = (np.int32(i) for i in range(4))
REDUCTIONS = {name: np.int32(i) for i, name in enumerate(("add", "min", "max", "and", "or", "xor"))}
ADD, MIN, MAX, AND, OR, EXOR = REDUCTIONS.values()
VOTES = {name: np.int32(i) for i, name in enumerate(("all", "any", "uni", "ballot"))}
ALL, ANY, UNI, BALLOT = VOTES.values()
MATCH_ANY, MATCH_ALL = np.int32(0), np.int32(1)
ALL_LANES = np.uint32(0xFFFFFFFF)


def bias_of(name: str, signed: bool) -> np.uint32:
    """What `reduced` flips: the sign bit where the order of signed values matters."""
    return np.uint32(0x80000000 if signed and name in ("min", "max") else 0)


# ---------------------------------------------------------------------------------------------------------------- lanes


@jit(inline=True)
def has(lanes, lane):
    """Whether a lane's bit is set."""
    return (lanes >> np.uint32(lane)) & np.uint32(1) != np.uint32(0)


@jit(inline=True)
def source(mode, lane, b, width):
    """The lane that `lane` reads from: PTX ISA, shfl.sync.  Its own lane where the source leaves its segment."""
    segment = (np.int32(32) - width) & np.int32(31)
    first = lane & segment
    last = first | (np.int32(31) & ~segment)
    step = b & np.int32(31)
    if mode == IDX:
        return first | (step & last & ~segment)
    if mode == UP:
        return lane - step if lane - step >= first else lane
    target = lane + step if mode == DOWN else lane ^ step
    return target if target <= last else lane


@jit(inline=True)
def exchanged(mode, values, base, lane, b, width, lanes):
    """What `lane` holds after the shuffle: 0 where its source does not take part, its own value where it does not."""
    own = values[base + lane]
    if not has(lanes, lane):
        return own
    target = source(mode, lane, b, width)
    if has(lanes, target):
        return values[base + target]
    return values.dtype.type(0)


@jit(inline=True)
def combined(op, x, y):
    if op == ADD:
        return np.uint32(x + y)
    if op == MIN:
        return min(x, y)
    if op == MAX:
        return max(x, y)
    if op == AND:
        return x & y
    if op == OR:
        return x | y
    return x ^ y


@jit(inline=True)
def reduced(op, bias, values, base, lanes):
    """The reduction over `lanes` of 32-bit words.  `bias` flips the sign bit, so that signed values order as words."""
    neutral = ALL_LANES if op in (MIN, AND) else np.uint32(0)
    total = neutral
    for lane in range(32):  # a select instead of a branch: compiles to vector code
        value = np.uint32(values[base + lane]) ^ bias
        total = combined(op, total, value if has(lanes, lane) else neutral)
    return total ^ bias


@jit(inline=True)
def voted(kind, predicates, base, lanes):
    """The vote over `lanes`, as a word."""
    ballot = np.uint32(0)
    for lane in range(32):
        if has(lanes, lane) and predicates[base + lane] != 0:
            ballot |= np.uint32(np.uint32(1) << np.uint32(lane))
    if kind == BALLOT:
        return ballot
    if kind == ANY:
        return np.uint32(ballot != 0)
    if kind == ALL:
        return np.uint32(ballot == lanes)
    return np.uint32(ballot == 0 or ballot == lanes)


@jit(inline=True)
def matching(values, base, lane, lanes):
    """The lanes among `lanes` whose bits equal those of `lane`; values are unsigned words."""
    same = np.uint32(0)
    for other in range(32):
        if has(lanes, other) and values[base + other] == values[base + lane]:
            same |= np.uint32(np.uint32(1) << np.uint32(other))
    return same


@jit(inline=True)
def matched(kind, values, base, lane, lanes):
    """match_any: the lanes that agree with `lane`; match_all: all of them, or 0."""
    same = matching(values, base, lane, lanes)
    if kind == MATCH_ANY or same == lanes:
        return same
    return np.uint32(0)


# ----------------------------------------------------------------------------------------------------- batches of warps
# A parameter arrives as flat storage with the two strides (warp, lane) that broadcast it.


@jit(inline=True)
def at(flat, strides, warp, lane):
    return flat[warp * strides[0] + lane * strides[1]]


@jit
def run_shuffle(mode, values, b, b_strides, width, width_strides, mask, mask_strides, active, out):
    for warp in range(out.size // 32):
        for lane in range(np.int32(32)):
            i = np.int32(lane)
            lanes = at(mask, mask_strides, warp, lane) & active
            step, segment = at(b, b_strides, warp, lane), at(width, width_strides, warp, lane)
            out[warp * 32 + lane] = exchanged(mode, values, warp * 32, i, step, segment, lanes)


@jit
def run_reduce(op, bias, values, mask, mask_strides, active, out):
    for warp in range(out.size // 32):
        lanes, total = np.uint32(0), np.uint32(0)
        for lane in range(32):
            wanted = at(mask, mask_strides, warp, lane) & active
            if not has(wanted, lane):
                out[warp * 32 + lane] = values[warp * 32 + lane]
                continue
            if wanted != lanes:  # one reduction serves all lanes with the same mask
                lanes = wanted
                total = reduced(op, bias, values, warp * 32, lanes)
            out[warp * 32 + lane] = total


@jit
def run_vote(kind, predicates, mask, mask_strides, active, out):
    for warp in range(out.size // 32):
        lanes, result = np.uint32(0), np.uint32(0)
        for lane in range(32):
            wanted = at(mask, mask_strides, warp, lane) & active
            if has(wanted, lane) and wanted != lanes:
                lanes = wanted
                result = voted(kind, predicates, warp * 32, lanes)
            out[warp * 32 + lane] = result if has(wanted, lane) else np.uint32(0)


@jit
def run_match(kind, values, mask, mask_strides, active, out):
    for warp in range(out.size // 32):
        for lane in range(32):
            lanes = at(mask, mask_strides, warp, lane) & active
            result = matched(kind, values, warp * 32, lane, lanes) if has(lanes, lane) else np.uint32(0)
            out[warp * 32 + lane] = result
