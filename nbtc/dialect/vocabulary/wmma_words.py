"""Words of wmma: fragments, loads, products and stores as rows of the instruction tables (PTX ISA, "wmma")."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import fragments, rows
from nbtc.dialect.vocabulary.fragments import LocalFragmentType, tile_of
from nbtc.errors import NbtcError
from nbtc.isa.parse import row
from nbtc.isa.wmma_names import AccumulateOp, BitOp, Use
from nbtc.isa.wmma_products import memory_layout, product_row, saturation
from nbtc.numba_door import fragment as door
from nbtc.numba_door.constants import constant_of
from nbtc.numba_door.fragment import FragmentKind

HERE = "nbtc.wmma"
I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)


@words.word(f"{HERE}.fragment")
def _fragment(context: Any, use: Any, m: Any, n: Any, k: Any, T: Any, layout: Any = None, batch: Any = None) -> Any:
    try:
        tile = door.tile_of(use, m, n, k, fragments.format_of(T), layout)
    except NbtcError as error:
        words.refuse(str(error))
    if batch is not types.none:
        words.refuse("fragment: batch= is for Python; in a kernel each warp has fragments of its own")
    kind = LocalFragmentType(tile)
    return signature(kind, use, m, n, k, T, layout, batch), lambda c, b, s, a: fragments.made(b, tile)


# -------------------------------------------------------------------------------------------------------------- memory


def _layout(tile: FragmentKind, layout: Any, name: str) -> str:
    try:
        return memory_layout(tile, constant_of(layout), name)
    except NbtcError as error:
        words.refuse(str(error))


def _check(mem: Any, frag: LocalFragmentType, name: str, ldm: Any, offset: Any) -> None:
    """Memory holds elements of the format, words of their size, or of packed formats 32-bit words."""
    tile, fmt, kind = frag.tile, frag.tile.format, frag.element
    legal = {types.int32, types.uint32} if fmt.packed else {kind, types.Integer.from_bitwidth(fmt.bits, signed=False)}
    if not isinstance(mem, types.Array) or mem.dtype not in legal:
        how = f"packed words, as nbtc.pack(x, nbtc.{fmt.name}) makes them" if fmt.packed else f"an array of {kind}"
        words.refuse(f"{name}({tile}): memory is {how}, not {mem}")
    for label, number in (("ldm", ldm), ("offset", offset)):
        if not isinstance(number, types.Integer):
            words.refuse(f"{name}({tile}): {label} is a whole number of elements, not {number}")


def _address(c: Any, b: Any, tile: FragmentKind, mem: tuple[Any, Any], offset: tuple[Any, Any]) -> Any:
    """Where the tile begins."""
    data = b.ptrtoint(c.make_array(mem[0])(c, b, mem[1]).data, I64)
    elements = c.cast(b, offset[1], offset[0], types.int64)
    bits = b.mul(elements, ir.Constant(I64, tile.format.bits))
    return b.add(data, b.ashr(bits, ir.Constant(I64, 3)))  # 2^3 bits a byte


def _form(tile: FragmentKind, head: str, layout: str) -> Any:
    return row(f"{head}.sync.aligned.{layout}.m{{}}n{{}}k{{}}.{tile.format}".format(*tile.shape))


@words.word(f"{HERE}.load_matrix_sync")
def _load_matrix_sync(context: Any, frag: Any, mem: Any, ldm: Any, layout: Any = None, offset: Any = 0) -> Any:
    tile = tile_of(frag, "load_matrix_sync")
    _check(mem, frag, "load_matrix_sync", ldm, offset)
    form = _form(tile, f"wmma.load.{tile.use.value}", _layout(tile, layout, "load_matrix_sync"))

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = {
            "p": _address(c, b, tile, (mem, args[1]), (offset, args[4])),
            "stride": c.cast(b, args[2], ldm, types.int32),
        }
        kinds = [rows.register_type(tile.operand)] * rows.count(tile.operand)
        fragments.put(b, tile, args[0], rows.emit(b, form, {"r": kinds}, given, memory=True))
        return c.get_dummy_value()

    return signature(types.none, frag, mem, ldm, layout, offset), emit


@words.word(f"{HERE}.store_matrix_sync")
def _store_matrix_sync(context: Any, mem: Any, frag: Any, ldm: Any, layout: Any, offset: Any = 0) -> Any:
    tile = tile_of(frag, "store_matrix_sync", Use.accumulator)
    _check(mem, frag, "store_matrix_sync", ldm, offset)
    form = _form(tile, "wmma.store.d", _layout(tile, layout, "store_matrix_sync"))

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = {
            "p": _address(c, b, tile, (mem, args[0]), (offset, args[4])),
            "r": fragments.registers(b, tile, args[1]),
            "stride": c.cast(b, args[2], ldm, types.int32),
        }
        rows.emit(b, form, {}, given, memory=True)
        return c.get_dummy_value()

    return signature(types.none, mem, frag, ldm, layout, offset), emit


def _filled(frag, v):
    for t in range(frag.num_storage_elements):
        frag.x[t] = v


@words.word(f"{HERE}.fill_fragment")
def _fill_fragment(context: Any, frag: Any, v: Any) -> Any:
    tile = tile_of(frag, "fill_fragment")
    fmt, number = tile.format, types.unliteral(v)
    if not isinstance(number, types.Number | types.Boolean) or (
        fmt.kind != "float" and isinstance(number, types.Float)
    ):
        words.refuse(f"fill_fragment({tile}): {number} is not a number of {fmt.name}: pass one, such as 0")
    whole = sum(1 << n for n in range(0, 32, fmt.bits)) if fmt.packed else 1  # an element in every place of a word

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        value, kind = args[1], v
        if fmt.packed:
            low = b.and_(c.cast(b, value, v, types.uint32), ir.Constant(I32, (1 << fmt.bits) - 1))
            value, kind = b.mul(low, ir.Constant(I32, whole)), frag.element
        elif isinstance(v, types.Literal):
            value, kind = c.cast(b, value, v, number), number
        return c.compile_internal(b, _filled, signature(types.none, frag, kind), [args[0], value])

    return signature(types.none, frag, v), emit


# ------------------------------------------------------------------------------------------------------------ products


def _product(name: str, given: tuple[Any, ...], saturate: bool, op: str | None) -> tuple[Any, bool]:
    """What emits a product, and whether its floats are made finite after it."""
    uses = (Use.accumulator, Use.matrix_a, Use.matrix_b, Use.accumulator)
    tiles = [tile_of(kind, f"{name}: {label}", use) for kind, use, label in zip(given, uses, "dabc", strict=True)]
    try:
        d, a, b, c = tiles
        rule = saturation(d, saturate)
        form = product_row(d, a, b, c, rule.clamps, op)
    except NbtcError as error:
        words.refuse(f"{name}: {error}")

    def emit(b: Any, addresses: Any) -> None:
        d = tiles[0]
        values = [fragments.registers(b, t, p) for t, p in zip(tiles[1:], addresses[1:4], strict=True)]
        kinds = [rows.register_type(d.operand)] * rows.count(d.operand)
        fragments.put(b, d, addresses[0], rows.emit(b, form, {"d": kinds}, dict(zip("abc", values, strict=True))))

    return emit, rule.makes_finite


def _saturated(frag, most):
    """The programming guide's old rule for floats: infinities become the largest number, NaN becomes +0."""
    for t in range(frag.num_elements):
        x = frag.x[t]
        if x != x:
            frag.x[t] = 0
        elif x > most:
            frag.x[t] = most
        elif x < -most:
            frag.x[t] = -most


@words.word(f"{HERE}.mma_sync")
def _mma_sync(context: Any, d: Any, a: Any, b: Any, c: Any, satf: Any = False, arch: Any = None) -> Any:
    wanted = constant_of(satf)
    if not isinstance(wanted, bool | int):
        words.refuse(f"mma_sync: satf must be written out, satf=True or False; it is {satf}")
    if arch is not types.none:
        words.refuse("mma_sync: arch= is for Python; a kernel has one, @nbtc.kernel(arch=...) or kernel.on(...)")
    fmt = tile_of(d, "mma_sync: d").format
    emit_product, makes_finite = _product("mma_sync", (d, a, b, c), bool(wanted), None)

    def emit(cx: Any, builder: Any, sig: Any, args: Any) -> Any:
        emit_product(builder, args)
        if makes_finite:
            most = float(fmt.dtype.type(2) ** fmt.emax * (2 - 2.0**-fmt.mantissa))
            number = cx.get_constant(types.float64, most)
            cx.compile_internal(builder, _saturated, signature(types.none, d, types.float64), [args[0], number])
        return cx.get_dummy_value()

    return signature(types.none, d, a, b, c, satf, arch), emit


@words.word(f"{HERE}.bmma_sync")
def _bmma_sync(
    context: Any, d: Any, a: Any, b: Any, c: Any, op: Any = None, acc: Any = None, arch: Any = None
) -> Any:  # fmt: skip
    chosen, counted = constant_of(op), constant_of(acc)
    if not isinstance(chosen, BitOp | None) or not isinstance(counted, AccumulateOp | None):
        words.refuse(f"bmma_sync: op is wmma.bmmaBitOpXOR or wmma.bmmaBitOpAND, not {op}")
    emit_product, _ = _product("bmma_sync", (d, a, b, c), False, "and" if chosen is BitOp.bmmaBitOpAND else "xor")

    def emit(cx: Any, builder: Any, sig: Any, args: Any) -> Any:
        emit_product(builder, args)
        return cx.get_dummy_value()

    return signature(types.none, d, a, b, c, op, acc, arch), emit
