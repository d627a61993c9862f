"""wgmma in a program: a warp sums its own sixteen rows, by the products of the mma form of the same depth.

(PTX ISA, "wgmma.mma_async".)  A warpgroup is four independent warps: its fragments are those of mma m16n8, metadata
too.  Only the numerics model is the warpgroup unit's.  Operands in shared memory are read row by row, 16 bytes each,
at the addresses that their descriptors give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.executor.product_split import LANES, REGISTER, VECTOR, P
from nbtc.executor.products import NO_RECORDS, Decoded, Images, Product, place
from nbtc.fragments.smem import UNIT, WINDOW
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row
from nbtc.numerics.models import FRACTION, Kind, model, params
from nbtc.ops.mma.product import Plan, prepare
from nbtc.ops.mma.vector_code import present, vector_code

TILE = 8  # columns of D that one product gives
UNITS_A = ((0, 0), (8, 0), (0, 1), (8, 1))  # (first row, 16-byte unit of K) of each register of A
ROWS = 8  # of a matrix that one register of a warp holds


class Flags(NamedTuple):
    """What is compiled in beside the form: A in registers, transposed operands, negated operands."""

    registers: bool = False
    trans_a: bool = False
    trans_b: bool = False
    minus_a: bool = False
    minus_b: bool = False


def slice_row(row: Row) -> Row:
    """The mma form of a warp's slice of a wgmma form: 16 rows and 8 columns of the same depth."""
    a, b, d = (present(o).format.name for o in (row.a, row.b, row.d))
    _, _, k = row.shape or (0, 0, 0)
    if a == "b1":
        return parse_row(f"mma.sync.aligned.m16n8k{k}.row.col.s32.b1.b1.s32.and.popc")
    head = "mma.sp::ordered_metadata" if row.sparse else "mma"
    clamp = ".satfinite" if row.saturate else ""
    return parse_row(f"{head}.sync.aligned.m16n8k{k}.row.col{clamp}.{d}.{a}.{b}.{d}")


@cache
def warpgroup_product(mnemonic: str, arch: str, selector: int = 0) -> Product:
    """The product of a warp's slice, 16 x 8, with the arithmetic of the warpgroup unit of an architecture."""
    row, target = parse_row(mnemonic), arch_row(arch)
    row.require(target)
    # there are warpgroup forms whose slices mma.sp has on other architectures alone, with arithmetic of their own
    mine = replace(slice_row(row), executable=True, min_arch=row.min_arch)
    a, b, d = (present(o) for o in (mine.a, mine.b, mine.d))
    numerics = model(target.numerics, "wgmma", a.format, label=target.name, validated=target.validated)
    numbers = params(numerics, a.format, b.format, d.format, a.cols, saturate=row.saturate, op=row.op or "and")
    emulated = numerics.kind == Kind.EMULATED_FP8
    plan: Plan = replace(
        prepare(mine, arch, selector),
        params=numbers,
        shape=vector_code(mine, numerics, numbers),
        emulated=(a.format, b.format) if emulated else None,
    )
    return Product(mine, plan, selector, f"{mnemonic} {arch} {selector} {int(numbers[FRACTION])}")


class Shared(NamedTuple):
    """Shared memory of the block: its address, its bytes (i64 both)."""

    base: Any
    size: Any


def _field(v: VectorBuilder, word: Any, low: int) -> Any:
    """A 14-bit field of a descriptor in bytes, as i32."""
    x = v.b.and_(v.b.lshr(word, v.int(low)), v.int((1 << 14) - 1))
    return v.b.trunc(v.b.shl(x, v.int(4)), I32)


class Tile:
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


def read_rows(v: VectorBuilder, shared: Shared, offsets: Any, image: Any, transposed: bool) -> Any:
    """Rows of 16 bytes at offsets, 8 a register, to an image; transposed: each 8 x 8 of 16-bit elements turned.

    Returns i1: some row lies outside of shared memory (and is read at its begin instead).
    """
    b, count = v.b, offsets.type.count
    wide = b.zext(offsets, vector(I64, count))
    limit = v.splat(b.sub(shared.size, v.int(UNIT)), count)
    outside = b.icmp_signed(">", wide, limit)
    wide = b.select(outside, ir.Constant(wide.type, None), wide)
    for n in range(count):
        p = b.inttoptr(b.add(shared.base, b.extract_element(wide, ir.Constant(I32, n))), P)
        v.store(v.load(p, vector(I8, UNIT), UNIT), image, UNIT, UNIT * n)
    if transposed:
        order = [(2 * (lane % 4) + half) * ROWS + lane // 4 for lane in range(LANES) for half in (0, 1)]
        for register in range(count // ROWS):
            x = v.load(image, vector(I16, 2 * LANES), VECTOR, REGISTER * register)
            v.store(v.shuffle(x, x, order), image, VECTOR, REGISTER * register)
    bits = ir.IntType(count)
    return b.icmp_unsigned("!=", b.bitcast(outside, bits), ir.Constant(bits, 0))


def _negate(v: VectorBuilder, image: Any, registers: int, bits: int) -> None:
    """Flip the signs of an image's elements."""
    flip = sum(1 << at for at in range(bits - 1, 32, bits))
    for r in range(registers):
        x = v.load(image, vector(I32, LANES), VECTOR, REGISTER * r)
        v.store(v.b.xor(x, v.const(x.type, flip)), image, VECTOR, REGISTER * r)


class Emitter:
    """Writes the function of one form with its flags.

    Its arguments: address and bytes of shared memory, descriptors of A and B (i64), the warp's first row (i32), whether
    D counts (i1), images of A (read if in registers), metadata and D (in place), and the pointers of the launch.
    Returns i1: an operand lies outside of shared memory.
    """

    ARGUMENTS = (I64, I64, I64, I64, I32, I1, P, P, P, P)

    def __init__(self, form: Product, columns: int, flags: Flags) -> None:
        self.form, self.columns, self.flags = form, columns, flags
        self.bits = present(form.row.a).format.bits

    @property
    def name(self) -> str:
        """Of the helper function."""
        return f"nbtc_wgmma_{self.form.key}_{self.columns}_{''.join(str(int(f)) for f in self.flags)}"

    @property
    def registers(self) -> int:
        """Of D."""
        return self.form.counts[3] * (self.columns // TILE)

    def build(self, v: VectorBuilder, arguments: Any) -> None:
        """The body."""
        base, size, word_a, word_b, first, keep, a, meta, d, cells = arguments
        self.v, self.b, self.shared, self.cells, self.meta = v, v.b, Shared(base, size), cells, meta
        bad = self.b.alloca(I1)
        self.b.store(ir.Constant(I1, 0), bad)
        self.bad = bad
        image = self._read_a(word_a, first, a)
        record = None
        code = self.form.records
        if code is not None:
            record = place(v, code.size_a)
            code.decode(v, 0, image, record)
        self._loop(lambda n: self._tile(n, word_b, image, record, keep, d))
        self.b.ret(self.b.load(bad))

    def _note(self, outside: Any) -> None:
        self.b.store(self.b.or_(self.b.load(self.bad), outside), self.bad)

    def _read_a(self, word: Any, first: Any, given: Any) -> Any:
        """The image of A: the registers', or the warp's rows of shared memory."""
        v, b, f = self.v, self.b, self.flags
        if f.registers:
            if f.minus_a:
                _negate(v, given, 4, self.bits)  # an image of this instruction: the registers stay as they are
            return given
        image, count = place(v, 4 * REGISTER), 4 * ROWS
        kind = vector(I32, count)
        if f.trans_a:  # units of eight rows of A; a register's eight rows of memory run along K
            unit = b.add(
                v.splat(b.lshr(first, ir.Constant(I32, 3)), count),
                ir.Constant(kind, [r // 8 for r, _ in UNITS_A for _ in range(ROWS)]),
            )
            k = ir.Constant(kind, [ROWS * u + n for _, u in UNITS_A for n in range(ROWS)])
            offsets = Tile(v, word).rows(unit, k, True)
        else:
            mn = b.add(v.splat(first, count), ir.Constant(kind, [r + n for r, _ in UNITS_A for n in range(ROWS)]))
            offsets = Tile(v, word).rows(mn, ir.Constant(kind, [u for _, u in UNITS_A for _ in range(ROWS)]), False)
        self._note(read_rows(v, self.shared, offsets, image, f.trans_a))
        if f.minus_a:
            _negate(v, image, 4, self.bits)
        return image

    def _read_b(self, word: Any, column: Any, image: Any) -> None:
        v, b, f = self.v, self.b, self.flags
        registers = self.form.counts[1]
        count = ROWS * registers
        kind = vector(I32, count)
        if f.trans_b:
            unit = v.splat(b.lshr(column, ir.Constant(I32, 3)), count)
            offsets = Tile(v, word).rows(unit, ir.Constant(kind, list(range(count))), True)
        else:
            mn = b.add(v.splat(column, count), ir.Constant(kind, [n for _ in range(registers) for n in range(ROWS)]))
            offsets = Tile(v, word).rows(
                mn, ir.Constant(kind, [r for r in range(registers) for _ in range(ROWS)]), False
            )
        self._note(read_rows(v, self.shared, offsets, image, f.trans_b))
        if f.minus_b:
            _negate(v, image, registers, self.bits)

    def _tile(self, n: Any, word: Any, image_a: Any, record_a: Any, keep: Any, d: Any) -> None:
        """Eight columns of D."""
        v, b, form = self.v, self.b, self.form
        registers = form.counts[3]
        image_b, before = place(v, REGISTER * form.counts[1]), place(v, REGISTER * registers)
        self._read_b(word, b.shl(n, ir.Constant(I32, 3)), image_b)
        at = v.at(d, b.zext(b.mul(n, ir.Constant(I32, REGISTER * registers)), I64))
        for r in range(registers):
            x = v.load(at, vector(I32, LANES), VECTOR, REGISTER * r)
            v.store(b.select(keep, x, ir.Constant(x.type, None)), before, VECTOR, REGISTER * r)
        records = NO_RECORDS
        if form.records is not None:
            record_b = place(v, form.records.size_b)
            form.records.decode(v, 1, image_b, record_b)
            records = Decoded((record_a,), (record_b,))
        form.call(v, Images(image_a, image_b, before, self.meta, at), self.cells, records)

    def _loop(self, body: Callable[[Any], None]) -> None:
        """body(n) for each tile of columns."""
        b = self.b
        before, loop, end = b.block, b.append_basic_block("tile"), b.append_basic_block("tiles_done")
        b.branch(loop)
        b.position_at_end(loop)
        n = b.phi(I32)
        n.add_incoming(ir.Constant(I32, 0), before)
        body(n)
        following = b.add(n, ir.Constant(I32, 1))
        n.add_incoming(following, b.block)
        b.cbranch(b.icmp_unsigned("<", following, ir.Constant(I32, self.columns // TILE)), loop, end)
        b.position_at_end(end)
