"""The functions of `nbtc.wmma` inside functions compiled by Numba: one warp; types and layouts are constants."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numba.core import types

from nbtc.compiler.callees import overload
from nbtc.compiler.copies import copied
from nbtc.compiler.jit import jit
from nbtc.errors import CompilerError, RangeError
from nbtc.formats.codec import convert_one
from nbtc.formats.conversions import KEEP, conversion, parameters
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.wmma_names import BitOp, Use
from nbtc.isa.wmma_products import memory_layout, product_row, saturation
from nbtc.numba_door import tiles
from nbtc.numba_door.constants import constant_of
from nbtc.numba_door.fragment import FragmentKind, FragmentType, made_fragment, tile_of, tile_of_fragment
from nbtc.numba_door.product import NO_WORDS, product
from nbtc.numerics.ieee import bits32, bits64
from nbtc.ops.mma.product import prepare

Function = Callable[..., Any]


def register(functions: Mapping[str, Function]) -> None:
    """Teach Numba the public functions of `nbtc.wmma`, by name."""
    overload(functions["fragment"], prefer_literal=True)(_fragment)
    overload(functions["load_matrix_sync"], prefer_literal=True)(_load)
    overload(functions["store_matrix_sync"], prefer_literal=True)(_store)
    overload(functions["fill_fragment"])(_fill)
    overload(functions["mma_sync"], prefer_literal=True)(_mma)
    overload(functions["bmma_sync"], prefer_literal=True)(_bmma)


# ----------------------------------------------------------------------------------------------------------- fragments


def _fragment(use, m, n, k, T, layout=None, batch=()):
    tile = tile_of(use, m, n, k, T, layout)
    if constant_of(batch) != ():
        raise CompilerError("fragment: batch= is for Python; in compiled functions a fragment is that of one warp")
    registers, kind = tile.operand.registers, FragmentType(tile)

    def made(use, m, n, k, T, layout=None, batch=()):
        return made_fragment(kind, np.zeros((32, registers), np.uint32))

    return made


def _encoder(fmt: Format) -> Function:
    """code(v) of a number as an element of f16 or bf16, as NumPy assigns one: a bf16 is rounded from float32."""
    source = "f64" if fmt.name == "f16" else "f32"
    row = replace(conversion(FORMATS["f32"], fmt), source=FORMATS[source], nan=KEEP)
    vector, bits = parameters(row, False, False), bits64 if source == "f64" else bits32
    number = FORMATS[source].dtype.type
    return jit(lambda v: convert_one(np.uint64(bits(number(v))), vector), inline=True)  # type: ignore[no-any-return]


def _fill(frag, v):
    tile = tile_of_fragment(frag, "fill_fragment")
    fmt, stored = tile.format, tile.stored.type
    if not isinstance(v, types.Number | types.Boolean) or (
        fmt.kind != "float" and not isinstance(v, types.Integer | types.Boolean)
    ):
        raise CompilerError(f"fill_fragment({tile}): {v} is not a number of {fmt.name}: pass one, such as 0")
    if fmt.packed:
        ones, mask = np.uint32(sum(1 << i for i in range(0, 32, fmt.bits))), (1 << fmt.bits) - 1

        def packed(frag, v):
            frag.image[:] = np.uint32(np.int64(v) & mask) * ones

        return packed
    if fmt.kind == "float" and fmt.bits < 32:
        code = _encoder(fmt)

        def encoded(frag, v):
            frag.x[:] = stored(code(v))

        return encoded
    if fmt.kind == "float":

        def stored_as_is(frag, v):
            frag.x[:] = stored(v)

        return stored_as_is
    low, high = fmt.low, fmt.high

    def integer(frag, v):
        if v < low or v > high:
            raise RangeError("fill_fragment: the number is outside of the range of the fragment's integers: clip it")
        frag.x[:] = stored(v)

    return integer


# -------------------------------------------------------------------------------------------------------------- memory


def _load(frag, mem, ldm, layout=None, offset=0):
    tile = tile_of_fragment(frag, "load_matrix_sync")
    tiles.check_memory(mem, tile, "load_matrix_sync")
    moved = tiles.mover(tile, memory_layout(tile, constant_of(layout), "load_matrix_sync"), tiles.gather)

    def load(frag, mem, ldm, layout=None, offset=0):
        moved(frag.image, mem, ldm, offset)

    return load


def _store(mem, frag, ldm, layout, offset=0):
    tile = tile_of_fragment(frag, "store_matrix_sync")
    if tile.use is not Use.accumulator:
        raise CompilerError(f"store_matrix_sync takes an accumulator, not {tile}: use frag.x to read the others")
    tiles.check_memory(mem, tile, "store_matrix_sync")
    moved = tiles.mover(tile, memory_layout(tile, constant_of(layout), "store_matrix_sync"), tiles.scatter)

    def store(mem, frag, ldm, layout, offset=0):
        moved(frag.image, mem, ldm, offset)

    return store


# ------------------------------------------------------------------------------------------------------------ products


@jit
def _saturate(codes, special, sign):
    """The guide's old rule for floats: infinities become the largest number, NaN becomes +0."""
    for n in range(codes.size):
        magnitude = codes[n] & (sign - 1)
        if magnitude > special:
            codes[n] = 0
        elif magnitude == special:
            codes[n] -= 1


def _product(fragments: tuple[Any, ...], saturate: bool, op: str | None, arch: object, name: str) -> Function:
    found: list[FragmentKind] = [tile_of_fragment(x, name) for x in fragments]
    uses = [tile.use for tile in found]
    if uses != [Use.accumulator, Use.matrix_a, Use.matrix_b, Use.accumulator]:
        raise CompilerError(
            f"{name}: the fragments are {', '.join(u.name for u in uses)}; the order is d, a, b, c: accumulator, "
            "matrix_a, matrix_b, accumulator"
        )
    d, a, b, c = found
    fmt = d.format
    rule = saturation(d, saturate)
    compute = product(prepare(product_row(d, a, b, c, rule.clamps, op), arch, 0, common=True))
    registers, after = d.operand.registers, rule.makes_finite
    word, special, sign = fmt.bits_dtype.type, fmt.special if fmt.kind == "float" else 0, 1 << (fmt.bits - 1)

    def multiply(d, a, b, c):
        out = np.empty(32 * registers, np.uint32)
        compute(a.image.reshape(-1), b.image.reshape(-1), c.image.reshape(-1), NO_WORDS, out)
        copied(d.image.reshape(-1), out)
        if after:
            _saturate(d.image.reshape(-1).view(word), special, sign)

    expanded: Function = jit(multiply, expanded=True)
    return expanded


def _mma(d, a, b, c, satf=False, arch="sm_90"):
    saturate = constant_of(satf)
    if not isinstance(saturate, bool | int):
        raise CompilerError(
            f"mma_sync: satf must be written out in compiled functions, satf=True or False; it is {satf}"
        )
    multiply = _product((d, a, b, c), bool(saturate), None, constant_of(arch), "mma_sync")
    return lambda d, a, b, c, satf=False, arch="sm_90": multiply(d, a, b, c)


def _bmma(d, a, b, c, op=BitOp.bmmaBitOpXOR, acc=None, arch="sm_90"):
    chosen = constant_of(op)
    if not isinstance(chosen, BitOp):
        raise CompilerError(f"bmma_sync: op is wmma.bmmaBitOpXOR or wmma.bmmaBitOpAND, not {op}")
    kind = "xor" if chosen is BitOp.bmmaBitOpXOR else "and"
    multiply = _product((d, a, b, c), False, kind, constant_of(arch), "bmma_sync")
    xor = BitOp.bmmaBitOpXOR
    return lambda d, a, b, c, op=xor, acc=None, arch="sm_90": multiply(d, a, b, c)
