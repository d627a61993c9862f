"""Bulk tensor copies: a box of an array to or from a tile of shared memory, by the tensor map's numbers.

(PTX ISA, "cp.async.bulk.tensor", "cp.reduce.async.bulk.tensor", "Tensors".)  A tile lies in shared memory row by row;
the swizzle exchanges 16-byte units by the bits of their own address.  What lies outside of the array is filled when
it is read, and left alone when it is written, except that a row is written, or reduced, in whole units of 16 bytes
(programs tma_copy and tma_dims, recorded on an H200: elements between the end of a row and the end of its last unit are
written; tests/executor/transfer/test_reduction_units.py: and reduced).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types
from numba.extending import intrinsic

from nbtc.compiler.builder import I8, VectorBuilder
from nbtc.compiler.jit import jit
from nbtc.executor.transfer.tensor_map import ELEMENTS, LAYOUT, MOST_DIMS, PADDED, PADDED_ROW, SIZES, UNIT
from nbtc.numerics.ieee import add32, bits64, f16_to_f32, f32_of, f32_to_f16, f64_of

LOAD, STORE, REDUCE = range(3)
# what is wrong with a copy: nothing, an access outside of the memory that the program was given (at an address), or
# one of REASONS
FINE, MISALIGNED, NEGATIVE, OUTSIDE, OTHER_MODE, OUT_OF_BOX, LOAD_ONLY = range(7)
REASONS = {
    MISALIGNED: "begins at a byte of a row that is no multiple of 16 (in maps of padded 4-bit elements, at an element "
    "that is no multiple of 128): choose another first coordinate",
    NEGATIVE: "stores to coordinates below 0, which only loads may have",
    OTHER_MODE: "names a tensor map of another mode, tiled or im2col",
    OUT_OF_BOX: "begins at a pixel outside the corners of its map, or stores where these leave the array",
    LOAD_ONLY: "stores through a map of padded 4-bit elements, from which programs can only load",
}
REDUCTIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_AT = {name: LAYOUT.fields[name][1] for name in LAYOUT.names}  # type: ignore[index, union-attr]
_RANK, _TYPE, _SWIZZLE, _FILL = _AT["rank"], _AT["elemtype"], _AT["swizzle_mode"], _AT["fill_mode"]
_ATOMICITY, _IM2COL = _AT["swizzle_atomicity"], _AT["im2col"]
_LOWER, _UPPER, _CHANNELS, _PIXELS = (_AT[n] for n in ("lower", "upper", "channels", "pixels"))
_BOX, _DIM, _STRIDE, _STEP, _BASE = (
    _AT[n] for n in ("box_dim", "global_dim", "global_stride", "element_stride", "global_address")
)
_F16, _F32, _F64, _BF16, _S32, _S64 = (ELEMENTS[n].number for n in ("f16", "f32", "f64", "bf16", "s32", "s64"))
# an H200 loads the same bits of both (test_loads_of_tf32_round): subnormals are rounded, not flushed
_TF32 = (ELEMENTS["tf32"].number, ELEMENTS["tf32_ftz"].number)
# what out-of-bounds floats are filled with: 0x7ff7 repeated (program tma_copy_f32_nanfill, recorded on an H200)
_NAN = np.array([0xF7, 0x7F], np.uint8)


def accessors(kind: Any) -> tuple[Any, Any]:
    """Load from and store to an address, as compiled code sees them."""

    @intrinsic
    def load(typing, address):
        def codegen(context, builder, sig, args):
            v = VectorBuilder(context, builder)
            return v.load(builder.inttoptr(args[0], I8.as_pointer()), context.get_value_type(kind))

        return kind(types.int64), codegen

    @intrinsic
    def store(typing, address, value):
        def codegen(context, builder, sig, args):
            VectorBuilder(context, builder).store(args[1], builder.inttoptr(args[0], I8.as_pointer()))
            return context.get_dummy_value()

        return types.void(types.int64, kind), codegen

    return load, store


load8, store8 = accessors(types.uint8)
load16, store16 = accessors(types.uint16)
load32, store32 = accessors(types.uint32)
load64, store64 = accessors(types.uint64)


@jit(inline=True)
def swizzled(at, mode, atom):
    """The byte address where byte `at` of shared memory lies: units exchanged within 32, 64 or 128 bytes.

    atom: the units are of 16 bytes, or (1) 32 or (3) 64 of a pattern of 128 bytes, whose number of lines falls with
    the number of units.
    """
    wider = (0, 1, 0, 2)[atom] if mode == 3 else 0  # 2, the flip of halves, is refused by name
    return at ^ (((at >> 7) & ((1 << mode - wider) - 1)) << 4 + wider)


@jit
def inside(regions, address, size, writes):
    """Whether `size` bytes lie in one of the regions: first byte, bytes, whether it may be written, by turns."""
    for n in range(0, regions.size, 3):
        if regions[n] <= address and address + size <= regions[n] + regions[n + 1]:
            return regions[n + 2] != 0 or not writes
    return regions.size == 0


@jit
def _reduced_word(op, x, y, bits, signed):
    """x op y of integers of some width; inc and dec wrap at y."""
    one, top = np.uint64(1), np.uint64(1) << np.uint64(bits - 1)
    flip = top if signed else np.uint64(0)
    if op == 0:
        r = x + y
    elif op == 1:
        r = x if (x ^ flip) < (y ^ flip) else y
    elif op == 2:
        r = x if (x ^ flip) > (y ^ flip) else y
    elif op == 3:
        r = np.uint64(0) if x >= y else x + one
    elif op == 4:
        r = y if x == np.uint64(0) or x > y else x - one
    elif op == 5:
        r = x & y
    elif op == 6:
        r = x | y
    else:
        r = x ^ y
    return r & (top | (top - one))


@jit
def load_element(address, size):
    """An element of 1, 2, 4 or 8 bytes."""
    if size == 8:
        return load64(address)
    if size == 4:
        return np.uint64(load32(address))
    return np.uint64(load16(address)) if size == 2 else np.uint64(load8(address))


@jit
def store_element(address, size, value):
    """The inverse of `load_element`."""
    if size == 8:
        store64(address, value)
    elif size == 4:
        store32(address, np.uint32(value))
    elif size == 2:
        store16(address, np.uint16(value))
    else:
        store8(address, np.uint8(value))


@jit
def copy_bytes(target, source, count):
    """`count` bytes, eight at a time."""
    for n in range(0, count - 7, 8):
        store64(target + n, load64(source + n))
    for n in range(count & ~7, count):
        store8(target + n, load8(source + n))


@jit
def _reduced_single(op, x, y):
    """x op y of f32 bits: a NaN is ignored by min and max, and +0 is more than -0 (PTX ISA, "min", "max")."""
    if op == 0:
        return add32(x, y)
    a, b = f32_of(x), f32_of(y)
    if a != a or b != b:
        return y if a != a else x
    if a == b:
        return x | y if op == 1 else x & y
    return x if (a < b) == (op == 1) else y


@jit
def _added_doubles(x, y):
    """The bits of memory's x + y: a NaN stays as it is, y's before x's, as in red.global.add.f64 (an H200)."""
    a, b = f64_of(np.int64(x)), f64_of(np.int64(y))
    if b != b:
        return y
    if a != a:
        return x
    total = a + b
    return np.uint64(bits64(total)) if total == total else np.uint64(0xFFF8000000000000)


@jit
def _reduce(op, number, size, address, at):
    """The element at `address` op that at `at`, to `address`."""
    x, y = load_element(address, size), load_element(at, size)
    if number == _F16:
        low = f32_to_f16(_reduced_single(op, f16_to_f32(np.int64(x)), f16_to_f32(np.int64(y))))
        store_element(address, size, np.uint64(low))
    elif number == _BF16:
        wide = _reduced_single(op, np.int64(x << np.uint64(16)), np.int64(y << np.uint64(16)))
        nan = wide & 0x7FFFFFFF > 0x7F800000
        rounded = (wide + 0x7FFF + (wide >> 16 & 1)) >> 16  # to nearest even: f32 sums have bits enough for that
        store_element(address, size, np.uint64(0x7FFF if nan else rounded))
    elif number in (_F32, _F32 + 1):
        store_element(address, size, np.uint64(_reduced_single(op, np.int64(x), np.int64(y))))
    elif number == _F64:
        store_element(address, size, _added_doubles(x, y))
    else:
        store_element(address, size, _reduced_word(op, x, y, 8 * size, number in (_S32, _S64)))


@jit
def _to_tf32(word):
    """A float32's bits rounded to tf32, to nearest even; what is too large becomes infinite, every NaN one NaN.

    Not as `cvt.rna.tf32.f32`, which rounds ties away: an H200's copies differ from that in every second tie
    (test_loads_of_tf32_round).
    """
    if word & np.uint32(0x7FFFFFFF) > np.uint32(0x7F800000):
        return np.uint32(0x7FFFE000)
    odd = (word >> np.uint32(13)) & np.uint32(1)
    return np.uint32((word + np.uint32(0x0FFF) + odd) & np.uint32(0xFFFFE000))


@jit
def _row(kind, op, place, box, kinds, shared, tile, regions, status):
    """One row of a box: between `tile` (an offset in shared memory) and `place`, the address of its first element.

    box: whether the row is in the array, its first coordinate and its elements.
    """
    there, x0, count = box
    columns, size, mode, atom, fill, number = kinds
    whole, packed = UNIT // size, np.int64(number == PADDED)  # bytes of the array are half as many as there
    limit = columns if kind == LOAD else -(-columns * size // UNIT) * whole
    for first in range(0, count, whole):
        at = shared + swizzled(tile + first * size, mode, atom)
        low, high = max(0, -(x0 + first)), min(whole, limit - (x0 + first))
        if not there or high <= low:
            low, high = whole, whole
        address = place + (first * size >> packed)
        bytes_there = (min(high, columns - x0 - first) - low) * size >> packed
        if high > low and not inside(regions, address + low * size, bytes_there, kind != LOAD):
            status[1] = address + low * size
            return OUTSIDE
        if kind == LOAD:
            for n in range(UNIT >> packed):
                kept = low * size <= n < high * size >> packed
                store8(at + n, load8(address + n) if kept else (_NAN[n & 1] if fill else np.uint8(0)))
            if number in _TF32:
                for n in range(low, high):
                    store32(at + 4 * n, _to_tf32(load32(at + 4 * n)))
        elif kind == STORE:
            copy_bytes(address + low * size, at + low * size, (high - low) * size)
        else:
            for n in range(low, high):
                _reduce(op, number, size, address + n * size, at + n * size)
    return FINE


@jit
def _kinds(tensor):
    """Of a map: elements of an innermost row of the array, size of one, swizzle, its atom, fill, element type."""
    number = np.int64(load8(tensor + _TYPE))
    mode, atom = np.int64(load8(tensor + _SWIZZLE)), np.int64(load16(tensor + _ATOMICITY))
    return np.int64(load32(tensor + _DIM)), SIZES[number], mode, atom, load8(tensor + _FILL), number


@jit
def is_packed(tensor):
    """1 for a map whose elements take up half as many bytes of the array as of shared memory, else 0."""
    return np.int64(load8(tensor + _TYPE) == PADDED)


@jit
def tile_copy(kind, op, tensor, shared, tile, start, regions, status):
    """Copy the box at coordinates `start` (innermost first) of the tensor map at address `tensor`.

    kind: LOAD, STORE or REDUCE.  shared: address of shared memory; tile: offset of the tile there.  regions: memory
    that may be touched (none: not checked).  Returns FINE or what is wrong; status = [bytes of the tile, address].
    """
    rank, kinds = np.int64(load32(tensor + _RANK)) + 1, _kinds(tensor)
    size, mode = kinds[1], kinds[2]
    count = np.ones(MOST_DIMS, np.int64)
    for d in range(rank):
        step = 1 if d == 0 else np.int64(load32(tensor + _STEP + 4 * d))
        count[d] = (np.int64(load32(tensor + _BOX + 4 * d)) + step - 1) // step
    x0 = start[0]
    pitch = max(count[0] * size, (UNIT << mode) if mode else 0)
    status[0] = count[0] * count[1] * count[2] * count[3] * count[4] * size
    if load16(tensor + _IM2COL):
        return OTHER_MODE
    packed = is_packed(tensor)
    if packed and kind != LOAD:
        return LOAD_ONLY
    if x0 * size % (PADDED_ROW if packed else UNIT):
        return MISALIGNED
    base, rows = np.int64(load64(tensor + _BASE)), count[1] * count[2] * count[3] * count[4]
    for row in range(rows):
        left, there, place = row, True, base + (x0 * size >> packed)
        for d in range(1, rank):
            at = start[d] + left % count[d] * np.int64(load32(tensor + _STEP + 4 * d))
            left //= count[d]
            there = there and 0 <= at < np.int64(load32(tensor + _DIM + 4 * d))
            if kind != LOAD and at < 0:
                return NEGATIVE
            place += at * np.int64(load64(tensor + _STRIDE + 8 * (d - 1)))
        if kind != LOAD and x0 < 0:
            return NEGATIVE
        bad = _row(kind, op, place, (there, x0, count[0]), kinds, shared, tile + row * pitch, regions, status)
        if bad:
            return bad
    return FINE


@jit
def column_copy(kind, op, tensor, shared, tile, start, offsets, regions, status):
    """Copy a column of pixels in im2col mode: as `tile_copy`, with one offset for each spatial dimension.

    (PTX ISA, "im2col mode".)  `start` names channel, pixel (width, height, depth) and image.  The pixel goes through
    the box between the map's corners, width first, then through the next images; what is copied of it lies `offsets`
    away.
    """
    rank, kinds = np.int64(load32(tensor + _RANK)) + 1, _kinds(tensor)
    channels, pixels = np.int64(load16(tensor + _CHANNELS)), np.int64(load16(tensor + _PIXELS))
    size, mode, x0, at = kinds[1], kinds[2], start[0], start.copy()
    pitch = max(channels * size, (UNIT << mode) if mode else 0)
    status[0] = channels * pixels * size
    if not load16(tensor + _IM2COL):
        return OTHER_MODE
    if x0 * size % UNIT:
        return MISALIGNED
    if kind != LOAD:
        for x in start:  # an array's least element would take Numba as long to compile as this whole function
            if x < 0:
                return NEGATIVE
    if not _may_begin(tensor, rank, start, kind != LOAD):
        return OUT_OF_BOX
    for pixel in range(pixels):
        there, place = True, np.int64(load64(tensor + _BASE)) + x0 * size
        for d in range(1, rank):
            x = at[d] + (offsets[d - 1] if d < rank - 1 else 0)
            there = there and 0 <= x < np.int64(load32(tensor + _DIM + 4 * d))
            place += x * np.int64(load64(tensor + _STRIDE + 8 * (d - 1)))
        bad = _row(kind, op, place, (there, x0, channels), kinds, shared, tile + pixel * pitch, regions, status)
        if bad:
            return bad
        _next_pixel(tensor, rank, at)
    return FINE


@jit
def _may_begin(tensor, rank, start, stores):
    """Whether a column may begin at a pixel: in the box, which is inside of the array where the column is stored.

    The PTX ISA is silent about others; an H100 ends them as illegal instructions (156 copies, 77 of them refused).
    """
    for d in range(1, rank - 1):
        lower = np.int64(np.int16(load16(tensor + _LOWER + 2 * (d - 1))))
        upper = np.int64(np.int16(load16(tensor + _UPPER + 2 * (d - 1))))
        if not lower <= start[d] < np.int64(load32(tensor + _DIM + 4 * d)) + upper:
            return False
        if stores and (lower < 0 or upper > 0):
            return False
    return True


@jit
def _next_pixel(tensor, rank, at):
    """The next position in the box between the corners, or the first one of the next image."""
    for d in range(1, rank - 1):
        at[d] += np.int64(load32(tensor + _STEP + 4 * d))
        last = np.int64(load32(tensor + _DIM + 4 * d)) - 1 + np.int16(load16(tensor + _UPPER + 2 * (d - 1)))
        if at[d] <= last:
            return
        at[d] = np.int16(load16(tensor + _LOWER + 2 * (d - 1)))
    at[rank - 1] += 1


@jit
def copy_masked(mask, target, source, count):
    """The bytes of every 16 whose bit in `mask` is set."""
    for n in range(count):
        if mask >> (n % UNIT) & 1:
            store8(target + n, load8(source + n))


@jit
def reduce_bytes(op, number, size, target, source, count):
    """`count` elements at `target` op those at `source`."""
    for n in range(count):
        _reduce(op, number, size, target + n * size, source + n * size)
