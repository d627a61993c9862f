"""wgmma in a program: a warp sums its own sixteen rows, by the products of the mma form of the same depth.

(PTX ISA, "wgmma.mma_async".)  A warpgroup is four independent warps: its fragments are those of mma m16n8, metadata
too.  Only the numerics model is the warpgroup unit's.  Operands in shared memory are read row by row, 16 bytes each,
at the addresses that their descriptors give.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder, vector
from nbtc.compiler.cache.added_rows import cached, digest
from nbtc.executor.matrix.product_records import LANES, REGISTER, VECTOR
from nbtc.executor.matrix.product_split import P, place
from nbtc.executor.matrix.products import NO_RECORDS, Product, ProductImages, RecordAddresses
from nbtc.executor.matrix.warpgroup_memory import (
    ROWS,
    DescribedTile,
    SharedMemory,
    negate,
    read_rows,
    row_addresses,
    tile_offsets,
)
from nbtc.executor.matrix.warpgroup_slice import Flags, slice_shape, unit_places
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row
from nbtc.kernels.slices.slice_operands import bytes_of_b
from nbtc.kernels.slices.slice_product import SliceArguments, slice_function
from nbtc.kernels.slices.slice_shape import SliceShape
from nbtc.numerics.models import FRACTION, model, params
from nbtc.ops.mma.product import Prepared, prepare
from nbtc.ops.mma.vector_code import present, vector_code

TILE = 8  # columns of D that one product gives
OWNER = VECTOR  # bytes before the decoded B: launch, block, warpgroup with product, descriptor
UNITS_A = ((0, 0), (8, 0), (0, 1), (8, 1))  # (first row, 16-byte unit of K) of each register of A


def slice_row(row: Row) -> Row:
    """The mma form of a warp's slice of a wgmma form: 16 rows and 8 columns of the same depth."""
    a, b, d = (present(o).format.name for o in (row.a, row.b, row.d))
    _, _, k = row.shape or (0, 0, 0)
    if a == "b1":
        return parse_row(f"mma.sync.aligned.m16n8k{k}.row.col.s32.b1.b1.s32.and.popc")
    head = "mma.sp::ordered_metadata" if row.sparse else "mma"
    clamp = ".satfinite" if row.saturate else ""
    return parse_row(f"{head}.sync.aligned.m16n8k{k}.row.col{clamp}.{d}.{a}.{b}.{d}")


@cached
def warpgroup_product(mnemonic: str, arch: str, selector: int = 0) -> Product:
    """The product of a warp's slice, 16 x 8, with the arithmetic of the warpgroup unit of an architecture."""
    row, target = parse_row(mnemonic), arch_row(arch)
    row.require(target)
    # there are warpgroup forms whose slices mma.sp has on other architectures alone, with arithmetic of their own
    mine = replace(slice_row(row), executable=True, min_arch=row.min_arch)
    a, b, d = (present(o) for o in (mine.a, mine.b, mine.d))
    numerics = model(target.numerics, "wgmma", a.format, label=target.name, validated=target.validated)
    numbers = params(numerics, a.format, b.format, d.format, a.cols, saturate=row.saturate, op=row.op or "and")
    plan: Prepared = replace(
        prepare(mine, arch, selector),
        params=numbers,
        shape=vector_code(mine, numerics, numbers),
    )
    return Product(mine, plan, selector, f"{mnemonic} {arch} {selector} {int(numbers[FRACTION])} {digest()}")


class ProductTiles(NamedTuple):
    """What the tiles of D have in common: B's descriptor, images of A and of metadata, whether D counts, its image."""

    word_b: Any
    a: Any
    meta: Any
    keep: Any
    d: Any


class WarpgroupEmitter:
    """Writes the function of one form with its flags.

    Its arguments: address and bytes of shared memory, descriptors of A and B (i64), the warp's first row (i32), whether
    D counts (i1), images of A (read if in registers), metadata and D (in place), the pointers of the launch, memory of
    the instruction (`kept` bytes), and which product of which warpgroup this is (launch, block, and both in one word,
    i64).  Returns i1: an operand lies outside of shared memory.
    """

    ARGUMENTS = (I64, I64, I64, I64, I32, I1, P, P, P, P, P, I64, I64, I64)

    def __init__(self, form: Product, columns: int, flags: Flags) -> None:
        self.form, self.columns, self.flags = form, columns, flags
        self.bits = present(form.row.a).format.bits
        self.slices = slice_shape(form.row, form.tables.params, flags)

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
        base, size, word_a, word_b, first, keep, a, meta, d, services, kept, *who = arguments
        self.v, self.b, self.shared, self.services = v, v.b, SharedMemory(base, size), services
        self.bad = self.b.alloca(I1)
        self.b.store(ir.Constant(I1, 0), self.bad)
        tiles = ProductTiles(word_b, ir.Constant(P, None), meta, keep, d)
        shared_b = kept, [*who, word_b]
        if self.slices is not None:
            self._sum_slices(tiles, self.slices, (word_a, first, a), shared_b)
        else:
            self._sum_tiles(tiles._replace(a=self._read_a(word_a, first, a)), shared_b)
        self.b.ret(self.b.load(self.bad))

    def _sum_tiles(self, tiles: ProductTiles, shared_b: tuple[Any, list[Any]]) -> None:
        """All tiles by the product's own ways; shared_b: as of `_sum_slices`."""
        v, b, record, (memory, words) = self.v, self.b, None, shared_b
        code = self.form.records
        if code is not None:
            record = place(v, code.size_a)
            code.decode(v, 0, tiles.a, record)
        missing = b.not_(self._is_of(memory, words))
        self._loop(lambda n: self._tile(n, tiles, record, self._tile_of_b(n, tiles.word_b, memory, missing)))
        with b.if_then(missing):
            self._own(memory, words, b.load(self.bad))

    @property
    def kept(self) -> int:
        """Bytes of memory that the instruction has for itself."""
        count = self.columns // TILE
        return OWNER + (count * self._bytes_of_tile if self.slices is None else bytes_of_b(self.slices, count))

    @property
    def _bytes_of_tile(self) -> int:
        """Those of a tile of B without slices: its image, then its record if it has one."""
        records = self.form.records
        decoded = 0 if records is None else -(-records.size_b // VECTOR) * VECTOR
        return REGISTER * self.form.counts[1] + decoded

    def _sum_slices(
        self, tiles: ProductTiles, shape: SliceShape, of_a: tuple[Any, Any, Any], shared_b: tuple[Any, list[Any]]
    ) -> None:
        """All tiles by the slice's vector code; those that it reports by the general function.

        shared_b: memory for the decoded B, and words that say whose it is.  The four warps of a warpgroup multiply the
        same B, which nobody may change before all have: the first of them decodes it.
        """
        v, b, count = self.v, self.b, self.columns // TILE
        if shape.a_rows:
            a = place(v, 8 * 4 * ROWS)
            addresses, outside = row_addresses(v, self.shared, self._offsets_a(*of_a[:2]))
            self._note(outside)
            v.store(addresses, a, VECTOR)
        else:
            a = self._read_a(*of_a)
        memory, words = shared_b
        known = self._is_of(memory, words)
        result = b.alloca(I64)
        given = SliceArguments(
            a, ir.Constant(P, None), v.at(memory, OWNER), tiles.meta, tiles.d, v.int(count), tiles.keep
        )
        with b.if_else(known) as (there, missing):
            with there:
                b.store(b.call(slice_function(b.module, shape, False), given), result)
            with missing:
                units, outside = unit_places(v, self.shared, DescribedTile(v, tiles.word_b), shape, count)
                self._note(outside)
                b.store(b.call(slice_function(b.module, shape, True), given._replace(b=units)), result)
                self._own(memory, words, outside)
        found = b.load(result)
        with b.if_then(b.icmp_unsigned("!=", found, v.int(0)), likely=False):
            whole = tiles._replace(a=self._read_a(*of_a) if shape.a_rows else a)

            def general(n: Any) -> None:
                wanted = b.trunc(b.lshr(found, b.zext(n, I64)), I1)
                with b.if_then(wanted, likely=False):
                    image_b = place(v, REGISTER * self.form.counts[1])
                    self._read_b(whole.word_b, n, image_b)
                    self.form.general(v, self._images(n, whole, image_b), self.services)

            self._loop(general)

    def _is_of(self, memory: Any, words: list[Any]) -> Any:
        """Whether the words at the beginning of memory are these (i1)."""
        v, b = self.v, self.b
        differences = [b.xor(v.load(memory, I64, 8, 8 * n), word) for n, word in enumerate(words)]
        return b.icmp_unsigned("==", reduce(b.or_, differences), v.int(0))

    def _own(self, memory: Any, words: list[Any], nobody: Any) -> None:
        """Say at the beginning of memory whose it is; nobody (i1): or that it is nobody's."""
        for n, word in enumerate(words):
            self.v.store(self.b.select(nobody, self.v.int(0), word), memory, 8, 8 * n)

    def _note(self, outside: Any) -> None:
        self.b.store(self.b.or_(self.b.load(self.bad), outside), self.bad)

    def _offsets_a(self, word: Any, first: Any) -> Any:
        """Offsets of A's 16-byte rows, eight a register."""
        v, b, count = self.v, self.b, 4 * ROWS
        kind = vector(I32, count)
        if self.flags.trans_a:  # units of eight rows of A; a register's eight rows of memory run along K
            unit = b.add(
                v.splat(b.lshr(first, ir.Constant(I32, 3)), count),
                ir.Constant(kind, [r // 8 for r, _ in UNITS_A for _ in range(ROWS)]),
            )
            k = ir.Constant(kind, [ROWS * u + n for _, u in UNITS_A for n in range(ROWS)])
            return DescribedTile(v, word).rows(unit, k, True)
        mn = b.add(v.splat(first, count), ir.Constant(kind, [r + n for r, _ in UNITS_A for n in range(ROWS)]))
        return DescribedTile(v, word).rows(mn, ir.Constant(kind, [u for _, u in UNITS_A for _ in range(ROWS)]), False)

    def _read_a(self, word: Any, first: Any, given: Any) -> Any:
        """The image of A: the registers', or the warp's rows of shared memory."""
        v, f = self.v, self.flags
        if f.registers:
            if f.minus_a:
                negate(v, given, 4, self.bits)  # an image of this instruction: the registers stay as they are
            return given
        image = place(v, 4 * REGISTER)
        self._note(read_rows(v, self.shared, self._offsets_a(word, first), image, f.trans_a))
        if f.minus_a:
            negate(v, image, 4, self.bits)
        return image

    def _read_b(self, word: Any, n: Any, image: Any) -> None:
        """Tile n of B."""
        v, f, registers = self.v, self.flags, self.form.counts[1]
        offsets = tile_offsets(v, DescribedTile(v, word), n, registers, f.trans_b)
        self._note(read_rows(v, self.shared, offsets, image, f.trans_b))
        if f.minus_b:
            negate(v, image, registers, self.bits)

    def _tile_of_b(self, n: Any, word: Any, memory: Any, missing: Any) -> Any:
        """Where tile n of B is, image and record; made here where it is missing (i1)."""
        v, b, records = self.v, self.b, self.form.records
        to = v.at(memory, OWNER, b.mul(b.zext(n, I64), v.int(self._bytes_of_tile)))
        with b.if_then(missing):
            self._read_b(word, n, to)
            if records is not None:
                records.decode(v, 1, to, v.at(to, REGISTER * self.form.counts[1]))
        return to

    def _images(self, n: Any, tiles: ProductTiles, image_b: Any) -> ProductImages:
        """Images of a tile: eight columns of D."""
        v, b, form = self.v, self.b, self.form
        registers = form.counts[3]
        before = place(v, REGISTER * registers)
        at = v.at(tiles.d, b.zext(b.mul(n, ir.Constant(I32, REGISTER * registers)), I64))
        for r in range(registers):
            x = v.load(at, vector(I32, LANES), VECTOR, REGISTER * r)
            v.store(b.select(tiles.keep, x, ir.Constant(x.type, None)), before, VECTOR, REGISTER * r)
        return ProductImages(tiles.a, image_b, before, tiles.meta, at)

    def _tile(self, n: Any, tiles: ProductTiles, record_a: Any, tile_of_b: Any) -> None:
        """Eight columns of D."""
        v, form = self.v, self.form
        images, records = self._images(n, tiles, tile_of_b), NO_RECORDS
        if form.records is not None:
            records = RecordAddresses((record_a,), (v.at(tile_of_b, REGISTER * form.counts[1]),))
        form.call(v, images, self.services, records)

    def _loop(self, body: Callable[[Any], None]) -> None:
        """body(n) for each tile of columns."""
        with cgutils.for_range(self.b, ir.Constant(I32, self.columns // TILE)) as loop:
            body(loop.index)
