"""Operands of products in shared memory: read through the asynchronous proxy, until somebody has waited for the end."""

from __future__ import annotations

from nbtc.compiler.jit import jit
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.state import WARP
from nbtc.executor.watch import words as w
from nbtc.executor.watch.accesses import touch_line
from nbtc.executor.watch.order import begin_operation, epoch, knows, record_of, state_of
from nbtc.executor.watch.words import int32_at, put, word
from nbtc.fragments.smem_descriptors import UNIT, swizzled_address, unit_offset

WINDOW = (1 << 18) - 1  # of addresses that descriptors can name
_INDEX = WARP.offset("index")
_unit_offset, _swizzled = jit(unit_offset), jit(swizzled_address)


@jit
def _field(descriptor, low):
    return (descriptor >> low & 0x3FFF) << 4  # in units of 16 bytes


@jit
def unit_address(descriptor, mn, k, transposed):
    """Offset in shared memory of a 16-byte unit of a tile.  K-major: mn counts rows, k units; MN-major: mn counts
    units, k rows.  (PTX ISA, "Matrix Descriptor", "Strides", swizzling modes.)"""
    start, leading, stride = _field(descriptor, 0), _field(descriptor, 16), _field(descriptor, 32)
    mode, base = descriptor >> 62 & 3, descriptor >> 49 & 7
    log2 = 4 - mode if mode else 0
    return _swizzled((_unit_offset(mn, k, leading, stride, log2, transposed) + start) & WINDOW, log2, base)


@jit
def product(block, warp, a, b, columns, flags, sets, site):
    """A product is issued.

    a, b: descriptors (a 0: A is in registers).  columns: of D.  flags: A transposed, B transposed, D ignored, sparse
    (bits 0 to 3).  sets: of its registers.  The four warps of a warpgroup look at a quarter of B each.
    """
    record, quarter = record_of(block, warp), int32_at(warp + _INDEX) & 3
    put(record + w.OPERATION, begin_operation(block, warp, kinds.PRODUCTS))
    put(record + w.ISSUED, word(record + w.ISSUED) * w.MOST_SITES + site + 1)
    put(record + w.LAST_ISSUED, site)
    shared = word(block + w.AT_SHARED)
    if a:
        for n in range(32):
            if flags & 1:
                at = unit_address(a, 2 * quarter + (n & 1), n >> 1, True)
            else:
                at = unit_address(a, 16 * quarter + (n & 15), n >> 4, False)
            touch_line(block, warp, 0, shared + at, UNIT, kinds.PRODUCT, site)
    units = 4 if flags & 8 else 2
    if flags & 2:
        rows = 8 * units
        for n in range(quarter, columns // 8 * rows, 4):
            touch_line(block, warp, 0, shared + unit_address(b, n // rows, n % rows, True), UNIT, kinds.PRODUCT, site)
    else:
        for n in range(quarter, columns * units, 4):
            at = unit_address(b, n // units, n % units, False)
            touch_line(block, warp, 0, shared + at, UNIT, kinds.PRODUCT, site)
    put(record + w.SETS_NOW, word(record + w.SETS_NOW) | sets)
    put(record + w.SETS_PENDING, word(record + w.SETS_PENDING) | sets)


@jit
def operation_of(block, warp):
    """The epoch of the warp's asynchronous operation."""
    return word(record_of(block, warp) + w.OPERATION)


@jit
def known(block, warp, stamp):
    """Whether a warp knows that an operation is done."""
    row = epoch(state_of(block), stamp)
    if row == 0:
        return True
    done = word(row + w.DONE)
    return done != 0 and knows(record_of(block, warp), row, done)


@jit
def tensor_sources(block, warp, lane, base, offsets, count, site):
    """What tcgen05.mma or tcgen05.cp reads until its mbarrier tells: units of shared memory, as 64-bit offsets."""
    for n in range(count):
        touch_line(block, warp, lane, base + word(offsets + w.WORD * n), UNIT, kinds.BULK_SOURCE, site)
