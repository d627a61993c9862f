"""mma, mma.sp and wmma.mma in a program: functions of its module that work on register-major images of a warp.

An image is [register][lane]: 32 words a register, or 32 double words a register of f64.  A product has up to two ways
with the same bits: vector code (`product_split` where decoded operands can be kept, else one function from images to
images), and the general function of `product_general`, which takes what the vector code reports as needing a fallback
(Inf, NaN, sums out of range) and all forms that have none.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64, VectorBuilder, vector
from nbtc.compiler.cache.added_rows import cached, digest
from nbtc.compiler.cpu.float_mode import DOWN, enter, leave, separate_function
from nbtc.compiler.loops import Values, repeated
from nbtc.compiler.machine_code.split import shared_module
from nbtc.executor.matrix.product_general import FUNCTION, ProductTables
from nbtc.executor.matrix.product_records import LANES, REGISTER, VECTOR
from nbtc.executor.matrix.product_split import P, Records, Split, place
from nbtc.formats.table import Format
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row
from nbtc.kernels.warps.float_code import FloatCode
from nbtc.kernels.warps.warp import emit_warp
from nbtc.kernels.warps.warp_f64 import DoubleCode
from nbtc.kernels.warps.warp_fp8 import Fp8Code, added, halves
from nbtc.kernels.warps.warp_words import IntegerCode
from nbtc.numerics.models import KIND, Kind
from nbtc.ops.mma.product import Prepared, executable, prepare
from nbtc.ops.mma.vector_code import present


class ProductImages(NamedTuple):
    """Addresses of a warp's operands; meta is null where the form is dense."""

    a: Any
    b: Any
    c: Any
    meta: Any
    d: Any


def by_lane(v: VectorBuilder, p: Any, count: int, size: int) -> Any:
    """A copy of `count` registers of `size` bytes as [lane][register], on the stack."""
    if count == 1:
        return p
    out, lanes = place(v, LANES * count * size), VECTOR // size
    kind = vector(ir.IntType(8 * size), lanes)
    for first in range(0, LANES, lanes):
        whole = v.joined([v.load(p, kind, size, size * (LANES * r + first)) for r in range(count)])
        order = [r * lanes + n for n in range(lanes) for r in range(count)]
        v.store(v.shuffle(whole, whole, order), out, VECTOR, size * count * first)
    return out


def by_register(v: VectorBuilder, p: Any, count: int, size: int, out: Any) -> None:
    """The inverse of `by_lane`, to `out`."""
    lanes = VECTOR // size
    for first in range(0, LANES, lanes):
        x = v.load(p, vector(ir.IntType(8 * size), lanes * count), size, size * count * first)
        for r in range(count):
            v.store(v.shuffle(x, x, list(range(r, lanes * count, count))), out, size, size * (LANES * r + first))


class WholeProduct:
    """Vector code that goes from images to images."""

    def __init__(self, code: Any, numbers: tuple[int, int], skipped: int) -> None:
        self.code, self.numbers, self.skipped = code, numbers, skipped

    def call(self, v: VectorBuilder, images: ProductImages) -> Any:
        """i1: needs a fallback."""
        key = hashlib.sha256(repr((self.code, self.numbers, self.skipped)).encode()).hexdigest()[:16]
        module = shared_module(v.b.module)
        f = module.globals.get(f"nbtc_whole_{key}") or self._function(module, f"nbtc_whole_{key}")
        found = v.b.call(f, list(images))
        return v.const(I1, 0) if isinstance(self.code, IntegerCode) else found  # LLVM doesn't look into the function

    def _function(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, I1, [P] * len(ProductImages._fields))
        size = 8 if isinstance(self.code, DoubleCode) else 4
        counts = [n * 4 // size for n in self.code.images]
        a, b, c, meta, d = f.args
        pointers = [by_lane(v, p, n, size) for p, n in zip((a, b, c), counts, strict=False)]
        if len(counts) == 5:
            pointers.append(v.at(meta, 4 * self.skipped))
        result = place(v, LANES * counts[-1] * size)
        bad = v.b.call(self._sums(module, f"{name}_sums"), [*pointers, result])
        by_register(v, result, counts[-1], size, d)
        v.b.ret(bad)
        return f

    def _sums(self, module: ir.Module, name: str) -> Any:
        """The sums alone, without even the images' change of order: what LLVM knows without reading memory
        it computes before the rounding mode is set."""
        f, v = separate_function(module, name, I1, [P] * len(self.code.images))
        v.b.ret(emit_warp(v, self.code, list(f.args), [v.const(I32, n) for n in self.numbers]))
        return f


class RecordAddresses(NamedTuple):
    """Addresses of a form's decoded operands: of each of its `slices` of A and of B."""

    a: Sequence[Any] = ()
    b: Sequence[Any] = ()


NO_RECORDS = RecordAddresses()


class RunMember(NamedTuple):
    """A product of a run: addresses of the records of A and B, which their images lie before, and of C and D.

    raw: whether A and B are still to be decoded (lowest bit).
    """

    a: Any
    b: Any
    c: Any
    d: Any
    raw: tuple[Any, Any]


RUN_WORDS = 4  # addresses among those


def _pair(kept: RecordAddresses, a: int, b: int) -> Records:
    """The records of one product; of none where no operands are decoded beforehand."""
    return Records(kept.a[a], kept.b[b]) if kept.a else Records(None, None)


class Emulated:
    """Dense fp8 as f16 products: of the lower, then of the upper two elements of each word; C is added in the end."""

    def __init__(self, split: Split, formats: list[Format]) -> None:
        self.split, self.formats = split, formats
        self.size_a, self.size_b = 2 * split.size_a, 2 * split.size_b
        self.operand_keys = tuple(f"{f.name}_{split.operand_key}" for f in formats)

    def decode(self, v: VectorBuilder, side: int, image: Any, record: Any) -> None:
        """The operand on a side (0: A, 1: B) into its record."""
        count, size = self.split.shape.images[side], (self.split.size_a, self.split.size_b)[side]
        images = [place(v, REGISTER * count) for _ in range(2)]
        for r in range(count):
            words = v.load(image, vector(I32, LANES), VECTOR, REGISTER * r)
            for x, p in zip(halves(v, words, self.formats[side]), images, strict=True):
                v.store(x, p, VECTOR, REGISTER * r)
        for half, p in enumerate(images):
            self.split.decode(v, side, p, v.at(record, half * size))

    def core(self, v: VectorBuilder, records: Records, c: Any, d: Any) -> Any:
        """Both products and the sum with C; i1: needs a fallback, and D is not written."""
        s, f16_acc = self.split, self.split.shape.f16_acc
        registers = s.shape.images[-1]
        first, second = place(v, REGISTER * registers), place(v, REGISTER * registers)
        zero = v.const(vector(I32, LANES), 0)
        for r in range(registers):
            v.store(zero, second, VECTOR, REGISTER * r)
        upper = Records(v.at(records.a, s.size_a), v.at(records.b, s.size_b))
        old = enter(v, DOWN)
        bad = s.core(v, records, second, first)
        bad, totals = v.b.or_(bad, s.core(v, upper, first, second)), []
        leave(v, old)
        for r in range(registers):
            x, y = (v.load(p, vector(I32, LANES), VECTOR, REGISTER * r) for p in (c, second))
            total, special = added(v, x, y, f16_acc)
            totals.append(total)
            bad = v.b.or_(bad, special)
        with v.b.if_then(v.b.not_(bad), likely=True):
            for r, total in enumerate(totals):
                v.store(total, d, VECTOR, REGISTER * r)
        return bad


class Product:
    """A form on an architecture, as a program executes it.

    counts: registers of A, B, C and D.  tiles: where a wmma form is several m16n8 products, their registers.
    adds_c_last: whether instructions of their own add C, register by register.
    """

    def __init__(self, row: Row, plan: Prepared, selector: int, key: str) -> None:
        self.row = row
        self.tables = ProductTables(row, plan, selector)
        operands = [present(o) for o in (row.a, row.b, row.c, row.d)]
        f64 = operands[0].format.bits == 64
        self.size = 8 if f64 else 4
        self.counts = tuple(o.registers * 4 // self.size for o in operands)
        self.tiles = plan.tiles if plan.shape is not None else ()
        self.turned = bool(self.tiles) and operands[1].cols == 32  # 8 x 32: a 32 x 8 tile with A and B exchanged
        self.code = _vector_code(plan)
        self.adds_c_last = bool(plan.params[KIND] == Kind.EMULATED_FP8)
        self.key = hashlib.sha256(key.encode()).hexdigest()[:16]

    @property
    def records(self) -> Split | Emulated | None:
        """The code whose decoded operands can be kept, if it has such."""
        return self.code if isinstance(self.code, Split | Emulated) else None

    def role(self, side: int) -> int:
        """What the operand on a side (0: A, 1: B) is to the vector code: its A (0) or its B (1)."""
        return 1 - side if self.turned else side

    def slices(self, side: int) -> list[slice]:
        """The registers of an operand that are decoded together: all, or those of each row or column of tiles."""
        if not self.tiles:
            return [slice(0, self.counts[side])]
        starts = {way.start: way for way in (tile[self.role(side)] for tile in self.tiles)}
        return list(starts.values())

    @property
    def in_place(self) -> bool:
        """Whether D's image may be C's: it is written once no fallback is needed."""
        return self.records is not None and not self.tiles and self.counts[2] == self.counts[3]

    def call(
        self, v: VectorBuilder, images: ProductImages, services: Any, records: RecordAddresses = NO_RECORDS
    ) -> None:
        """Write the image of D.  records: operands decoded before, where `records` keeps such.  services: address of
        the launch's table."""
        if self.code is None:
            self.general(v, images, services)
            return
        if self.records is None:  # which is one call already
            self._sums(v, self.code, (images, records), services)
            return
        f = self._function(shared_module(v.b.module), len(records.a), len(records.b))
        v.b.call(f, [*records.a, *records.b, *images, services])

    @property
    def runs(self) -> bool:
        """Whether products that follow one another may be one call (`call_all`)."""
        return isinstance(self.code, Split) and self.in_place

    def decode(self, v: VectorBuilder, side: int, image: Any, records: Sequence[Any]) -> None:
        """An operand into its records."""
        code: Any = self.records
        for way, record in zip(self.slices(side), records, strict=True):
            code.decode(v, self.role(side), v.at(image, REGISTER * way.start), record)

    def call_all(self, v: VectorBuilder, run: Sequence[RunMember], services: Any) -> None:
        """Several products, one after the other, where `runs` says so."""
        raw = sum(1 << 2 * n + side for n, x in enumerate(run) for side in (0, 1) if x.raw[side])
        f = self._run_function(shared_module(v.b.module), len(run))
        v.b.call(f, [*(p for x in run for p in x[:RUN_WORDS]), v.int(raw), services])

    def _run_function(self, module: ir.Module, count: int) -> Any:
        """What `call_all` calls: (addresses of each product, which operands are to be decoded, services).

        The processor rounds down for the whole run.  A change of that mode waits for all arithmetic under way, and took
        6 to 50 ns of the 140 to 190 that a product of f16 took by itself.  Operands are decoded just before they are
        needed, which is exact in any mode: all of them at once took a quarter longer.
        """
        name = f"nbtc_product_run{count}_{self.key}"
        if name in module.globals:
            return module.globals[name]
        words = count * RUN_WORDS
        f, v = separate_function(module, name, ir.VoidType(), [P] * words + [I64, P])
        *places, raw, services = f.args
        table = v.b.alloca(ir.ArrayType(P, words))
        for n, p in enumerate(places):
            v.b.store(p, v.b.gep(table, [v.int(0), v.int(n)]))
        old = enter(v, DOWN)

        def one(n: Any, left: Values) -> Values:
            first = v.b.mul(n, v.int(RUN_WORDS))
            a, b, c, d = (v.b.load(v.b.gep(table, [v.int(0), v.b.add(first, v.int(m))])) for m in range(RUN_WORDS))
            self._one_of_run(v, RunMember(a, b, c, d, (left["raw"], v.b.lshr(left["raw"], v.int(1)))), services, old)
            return {"raw": v.b.lshr(left["raw"], v.int(2))}

        repeated(v, v.int(0), v.int(count), 1, {"raw": raw}, one)
        leave(v, old)
        v.b.ret_void()
        return f

    def _one_of_run(self, v: VectorBuilder, x: RunMember, services: Any, mode: Any) -> None:
        """A product in the mode that rounds down; mode: what else runs in."""
        code: Any = self.code
        images = v.at(x.a, -REGISTER * self.counts[0]), v.at(x.b, -REGISTER * self.counts[1])
        for side in (0, 1):
            with v.b.if_then(v.b.trunc(x.raw[side], I1)):
                self.decode(v, side, images[side], x[side : side + 1])
        found = code.core(v, Records(x.a, x.b), x.c, x.d)
        with v.b.if_then(found, likely=False):
            leave(v, mode)
            self._fall_back(v, ProductImages(*images, x.c, ir.Constant(P, None), x.d), services)
            enter(v, DOWN)

    def _function(self, module: ir.Module, of_a: int, of_b: int) -> Any:
        """What `call` calls, since a program has many products of a form: (records, images, services)."""
        name = f"nbtc_product_{self.key}"
        if name in module.globals:
            return module.globals[name]
        f, v = separate_function(module, name, ir.VoidType(), [P] * (of_a + of_b + len(ProductImages._fields) + 1))
        records = RecordAddresses(f.args[:of_a], f.args[of_a : of_a + of_b])
        *images, services = f.args[of_a + of_b :]
        self._sums(v, self.code, (ProductImages(*images), records), services)
        v.b.ret_void()
        return f

    def _sums(
        self, v: VectorBuilder, code: Any, operands: tuple[ProductImages, RecordAddresses], services: Any
    ) -> None:
        """The vector code, and where that reports it the general function."""
        (images, records), bad = operands, v.const(I1, 0)
        old = enter(v, DOWN) if isinstance(code, Split) else None
        for part, pair in self._parts(v, images, records):
            if isinstance(code, WholeProduct):
                found = code.call(v, part)
            else:
                found = code.core(v, pair, part.c, part.d)
            bad = v.b.or_(bad, found)
        if isinstance(code, Split):
            leave(v, old)
        with v.b.if_then(bad, likely=False):
            self._fall_back(v, images, services)

    def _fall_back(self, v: VectorBuilder, images: ProductImages, services: Any) -> None:
        """D of what the vector code reported."""
        if self.in_place:  # the general function begins with a D of zeros
            c = place(v, REGISTER * self.counts[2])
            for r in range(self.counts[2]):
                v.store(v.load(images.c, vector(I32, LANES), VECTOR, REGISTER * r), c, VECTOR, REGISTER * r)
            images = images._replace(c=c)
        self.general(v, images, services)

    def _parts(
        self, v: VectorBuilder, images: ProductImages, records: RecordAddresses
    ) -> Iterator[tuple[ProductImages, Records]]:
        """Images and records of each tile; of a form that is a single product, all."""
        if not self.tiles:
            yield images, _pair(records, 0, 0)
            return
        a, b = (images.b, images.a) if self.turned else (images.a, images.b)
        for left, right, both in self.tiles:
            places = zip((a, b, images.c, images.d), (left, right, both, both), strict=True)
            moved = [v.at(p, REGISTER * way.start) for p, way in places]
            places_kept = [way.start // (way.stop - way.start) for way in (left, right)]
            kept = RecordAddresses(records.b, records.a) if self.turned else records
            yield ProductImages(moved[0], moved[1], moved[2], images.meta, moved[3]), _pair(kept, *places_kept)

    def general(self, v: VectorBuilder, images: ProductImages, services: Any) -> None:
        """The same by the general function."""
        table = self.tables.constant(v.b.module, f"nbtc_tables_{self.key}")
        address = v.load(services, I64, 8, 8 * self.tables.slot)
        f = v.b.inttoptr(address, FUNCTION.as_pointer())
        v.b.call(f, [*images, table])


def _vector_code(plan: Prepared) -> Split | WholeProduct | Emulated | None:
    """The vector code of a plan, if any."""
    code = plan.shape
    if code is None:
        return None
    shape = code.product if isinstance(code, Fp8Code) else code
    if not isinstance(shape, FloatCode) or shape.sparse:
        return WholeProduct(code, plan.numbers, plan.skipped)
    split = Split(shape, plan.numbers)
    return Emulated(split, code.formats) if isinstance(code, Fp8Code) else split


@cached
def product(mnemonic: str, arch: str, selector: int = 0) -> Product:
    """The product of a mnemonic; raises UnsupportedInstructionError where the architecture has none."""
    row = parse_row(mnemonic)
    plan = prepare(row, arch, selector)
    return Product(executable(row, arch)[0], plan, selector, f"{row.mnemonic} {arch} {selector} {digest()}")
