"""Operands of wgmma in a program's shared memory: rows of 16 bytes at the addresses that their descriptors give."""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I8, I16, I32, I64, VectorBuilder, vector
from nbtc.executor.matrix.product_records import LANES, REGISTER, VECTOR
from nbtc.executor.matrix.product_split import P
from nbtc.fragments.smem_descriptors import UNIT, WINDOW, swizzled_address, unit_offset

ROWS = 8  # of a matrix that one register of a warp holds


class SharedMemory(NamedTuple):
    """Shared memory of the block: its address, its bytes (i64 both)."""

    base: Any
    size: Any


def _field(v: VectorBuilder, word: Any, low: int) -> Any:
    """A 14-bit field of a descriptor in bytes, as i32."""
    x = v.b.and_(v.b.lshr(word, v.int(low)), v.int((1 << 14) - 1))
    return v.b.trunc(v.b.shl(x, v.int(4)), I32)


def _operator(name: str, turned: bool = False) -> Any:
    """An operator of `EmittedWords`; turned: of a number before them."""

    def apply(self: EmittedWords, other: Any) -> EmittedWords:
        x, y = self.x, other.x if isinstance(other, EmittedWords) else self.v.const(self.x.type, other)
        return EmittedWords(self.v, getattr(self.v.b, name)(*((y, x) if turned else (x, y))))

    return apply


class EmittedWords:
    """A vector of i32 with the operators of `unit_offset` and `swizzled_address`."""

    def __init__(self, v: VectorBuilder, x: Any) -> None:
        self.v, self.x = v, x

    __add__, __sub__, __mul__ = _operator("add"), _operator("sub"), _operator("mul")
    __and__, __xor__, __lshift__, __rshift__ = (_operator(name) for name in ("and_", "xor", "shl", "lshr"))
    __rsub__, __rlshift__ = _operator("sub", True), _operator("shl", True)

    def __gt__(self, other: int) -> EmittedWords:
        found = self.v.b.icmp_unsigned(">", self.x, self.v.const(self.x.type, other))
        return EmittedWords(self.v, self.v.b.zext(found, self.x.type))


class DescribedTile:
    """An operand in shared memory by its descriptor (i64): addresses of 16-byte rows."""

    def __init__(self, v: VectorBuilder, word: Any) -> None:
        self.v, b, none = v, v.b, ir.Constant(I32, 0)
        self.start, self.leading, self.stride = (_field(v, word, low) for low in (0, 16, 32))
        self.base = b.trunc(b.and_(b.lshr(word, v.int(49)), v.int(7)), I32)
        mode = b.trunc(b.lshr(word, v.int(62)), I32)  # 0 none, 1 128B, 2 64B, 3 32B
        swizzled = b.icmp_unsigned("!=", mode, none)
        self.log2 = b.select(swizzled, b.sub(ir.Constant(I32, 4), mode), none)  # of the units of a row of an atom

    def rows(self, mn: Any, k: Any, transposed: bool) -> Any:
        """Offsets in shared memory (<n x i32>) of units: mn and k in elements' rows and units as the order has them.

        K-major: mn counts rows, k units of 16 bytes.  MN-major: mn counts units of eight elements, k rows.
        """
        v, fields = self.v, (self.leading, self.stride, self.log2, self.start, self.base)
        leading, stride, log2, start, base = (EmittedWords(v, v.splat(x, mn.type.count)) for x in fields)
        offset = unit_offset(EmittedWords(v, mn), EmittedWords(v, k), leading, stride, log2, transposed)
        return swizzled_address((offset + start) & (WINDOW - 1), log2, base).x


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
    rows = [b.inttoptr(b.extract_element(addresses, ir.Constant(I32, n)), P) for n in range(count)]
    together = VECTOR // UNIT  # loads of whole vectors would wait for stores of single rows
    for n in range(0, count, together):
        x = v.joined([v.load(p, vector(I8, UNIT), UNIT) for p in rows[n : n + together]])
        v.store(x, image, VECTOR, UNIT * n)
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
