"""Operands of wgmma in a program's shared memory: rows of 16 bytes at the addresses that their descriptors give."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I8, I16, I32, I64, VectorBuilder, vector
from nbtc.executor.matrix.product_split import LANES, REGISTER, VECTOR, P
from nbtc.fragments.smem_descriptors import UNIT, WINDOW

ROWS = 8  # of a matrix that one register of a warp holds


class SharedMemory(NamedTuple):
    """Shared memory of the block: its address, its bytes (i64 both)."""

    base: Any
    size: Any


def _field(v: VectorBuilder, word: Any, low: int) -> Any:
    """A 14-bit field of a descriptor in bytes, as i32."""
    x = v.b.and_(v.b.lshr(word, v.int(low)), v.int((1 << 14) - 1))
    return v.b.trunc(v.b.shl(x, v.int(4)), I32)


class DescribedTile:
    """An operand in shared memory by its descriptor (i64): addresses of 16-byte rows."""

    def __init__(self, v: VectorBuilder, word: Any) -> None:
        self.v, self.b = v, v.b
        self.start, self.leading, self.stride = (_field(v, word, low) for low in (0, 16, 32))
        self.base = self.b.trunc(self.b.and_(self.b.lshr(word, v.int(49)), v.int(7)), I32)
        mode = self.b.trunc(self.b.lshr(word, v.int(62)), I32)  # 0 none, 1 128B, 2 64B, 3 32B
        c = self._c
        self.swizzled = self.b.icmp_unsigned("!=", mode, c(0))
        self.log2 = self.b.select(self.swizzled, self.b.sub(c(4), mode), c(0))  # of the units of a row of an atom

    def _c(self, value: int) -> Any:
        return ir.Constant(I32, value)

    def rows(self, mn: Any, k: Any, transposed: bool) -> Any:
        """Offsets in shared memory (<n x i32>) of units: mn and k in elements' rows and units as the order has them.

        K-major: mn counts rows, k units of 16 bytes.  MN-major: mn counts units of eight elements, k rows.
        """
        v, b, count = self.v, self.b, mn.type.count
        many = lambda x: v.splat(x, count)  # noqa: E731
        fixed = lambda x: v.const(mn.type, x)  # noqa: E731
        log2, pitch = many(self.log2), many(b.shl(self._c(UNIT), self.log2))
        leading, stride = many(self.leading), many(self.stride)
        seven, three = fixed(7), fixed(3)
        if transposed:
            plain = b.add(b.mul(mn, stride), b.mul(b.lshr(k, three), leading))
            within = b.and_(mn, b.sub(b.shl(fixed(1), log2), fixed(1)))
            atoms = b.add(b.shl(within, fixed(4)), b.mul(b.lshr(mn, log2), leading))
            atoms = b.add(atoms, b.mul(b.lshr(k, three), stride))
            choice = b.select(many(self.swizzled), atoms, plain)
            offset = b.add(choice, b.mul(b.and_(k, seven), pitch))
        else:
            along = b.select(many(self.swizzled), fixed(UNIT), leading)
            offset = b.add(b.mul(b.and_(mn, seven), pitch), b.mul(b.lshr(mn, three), stride))
            offset = b.add(offset, b.mul(k, along))
        at = b.and_(b.add(offset, many(self.start)), fixed(WINDOW - 1))
        turn = b.and_(b.sub(b.lshr(at, seven), many(self.base)), b.sub(b.shl(fixed(1), log2), fixed(1)))
        return b.xor(at, b.shl(turn, fixed(4)))


def row_addresses(v: VectorBuilder, shared: SharedMemory, offsets: Any) -> tuple[Any, Any]:
    """(addresses (i64) of rows at offsets; i1: some lie outside of shared memory, whose begin stands instead)."""
    b, count = v.b, offsets.type.count
    wide = b.zext(offsets, vector(I64, count))
    outside = b.icmp_signed(">", wide, v.splat(b.sub(shared.size, v.int(UNIT)), count))
    wide = b.select(outside, ir.Constant(wide.type, None), wide)
    bits = ir.IntType(count)
    any_outside = b.icmp_unsigned("!=", b.bitcast(outside, bits), ir.Constant(bits, 0))
    return b.add(wide, v.splat(shared.base, count)), any_outside


def tile_offsets(v: VectorBuilder, tile: DescribedTile, n: Any, registers: int, transposed: bool) -> Any:
    """Offsets of the rows of 16 bytes that tile n (i32) of eight columns of B has, eight a register."""
    b, count = v.b, ROWS * registers
    kind = vector(I32, count)
    if transposed:
        return tile.rows(v.splat(n, count), ir.Constant(kind, list(range(count))), True)
    column = v.splat(b.shl(n, ir.Constant(I32, 3)), count)
    mn = b.add(column, ir.Constant(kind, list(range(ROWS)) * registers))
    return tile.rows(mn, ir.Constant(kind, [r for r in range(registers) for _ in range(ROWS)]), False)


def read_rows(v: VectorBuilder, shared: SharedMemory, offsets: Any, image: Any, transposed: bool) -> Any:
    """Rows of 16 bytes at offsets, 8 a register, to an image; transposed: each 8 x 8 of 16-bit elements turned.

    Returns i1: some row lies outside of shared memory (and is read at its begin instead).
    """
    b, count = v.b, offsets.type.count
    addresses, outside = row_addresses(v, shared, offsets)
    for n in range(count):
        p = b.inttoptr(b.extract_element(addresses, ir.Constant(I32, n)), P)
        v.store(v.load(p, vector(I8, UNIT), UNIT), image, UNIT, UNIT * n)
    if transposed:
        order = [(2 * (lane % 4) + half) * ROWS + lane // 4 for lane in range(LANES) for half in (0, 1)]
        for register in range(count // ROWS):
            x = v.load(image, vector(I16, 2 * LANES), VECTOR, REGISTER * register)
            v.store(v.shuffle(x, x, order), image, VECTOR, REGISTER * register)
    return outside


def negate(v: VectorBuilder, image: Any, registers: int, bits: int) -> None:
    """Flip the signs of an image's elements."""
    flip = sum(1 << at for at in range(bits - 1, 32, bits))
    for r in range(registers):
        x = v.load(image, vector(I32, LANES), VECTOR, REGISTER * r)
        v.store(v.b.xor(x, v.const(x.type, flip)), image, VECTOR, REGISTER * r)
