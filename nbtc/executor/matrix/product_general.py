"""The general way of a program's products: any form, any value, one compiled function, and one for f64.

A form is tables (where each element lies in the images, the geometry, the parameters of its model), which stand in the
program's module as constants.  The functions are compiled when a program first needs one (`services`).
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from nbtc.compiler.builder import I8, I64, VectorBuilder
from nbtc.compiler.jit import c_function, jit
from nbtc.executor.emit.slots import WORD_BYTES
from nbtc.fragments import sparse
from nbtc.isa.spec import Operand, Row
from nbtc.ops.mma import general
from nbtc.ops.mma.product import Prepared
from nbtc.ops.mma.vector_code import present

P = I8.as_pointer()
IMAGE = 1 << 20  # words that an image is taken to have: more than any has
FUNCTION = ir.FunctionType(ir.VoidType(), [P] * 6)


def element_places(operand: Operand, by_column: bool = False) -> NDArray[np.int32]:
    """32 * word + shift of every matrix element in a [register][lane] image, row by row (or column by column).

    Where a fragment holds copies of an element, the first one counts, as in the hardware's own loads.
    """
    register, shift = operand.slots()
    coords, lane = operand.coords(), np.arange(operand.lanes)[:, None]
    row, col = coords[..., 0], coords[..., 1]
    position = col * operand.rows + row if by_column else row * operand.cols + col
    groups = 0 if operand.layout is None else operand.layout.products()[:, None]
    position = position + groups * operand.rows * operand.cols
    f64 = operand.format.bits == 64
    word = 2 * (register // 2 * operand.lanes + lane) if f64 else register * operand.lanes + lane
    out = np.zeros(operand.products * operand.rows * operand.cols, np.int32)
    out[position.T.ravel()[::-1]] = (32 * word + shift[None, :]).T.ravel()[::-1]
    return out


class ProductTables:
    """A form's tables as constants of a module: places, geometry, parameters, sizes of scratch."""

    def __init__(self, row: Row, plan: Prepared, selector: int) -> None:
        a, b, c, d = (present(o) for o in (row.a, row.b, row.c, row.d))
        parts = [element_places(a), element_places(b, True), element_places(c), element_places(d)]
        if row.sparse:
            lane, shift = sparse.places(row, selector)
            parts.append((32 * lane + shift).astype(np.int32).ravel())
        starts = np.cumsum([0] + [len(p) for p in parts])
        self.geometry = plan.geometry.copy()
        self.geometry[[general.AT_B, general.AT_C, general.AT_D]] = starts[1:4]
        self.geometry[general.AT_E] = starts[4]
        self.places = np.concatenate(parts).astype(np.int32)
        self.params, self.scratch = plan.params, plan.scratch
        self.slot = WORD_BYTES.index(plan.word.itemsize)

    def constant(self, module: ir.Module, name: str) -> Any:
        """Address of one block of words in the module: lengths, geometry, parameters, places two a word."""
        places = np.resize(self.places, -(-len(self.places) // 2) * 2).view(np.int64)
        words = np.concatenate([[len(self.geometry), len(self.params), *self.scratch], self.geometry, self.params])
        words = np.concatenate([words.astype(np.int64), places])
        if name not in module.globals:
            kind = ir.ArrayType(I64, len(words))
            block = ir.GlobalVariable(module, kind, name)
            block.global_constant, block.linkage = True, "internal"
            block.initializer = ir.Constant(kind, words.tolist())
        return module.globals[name].bitcast(P)


_WORDS = {4: np.uint32, 8: np.uint64}
_U32 = types.CPointer(types.uint32)
_I64 = types.CPointer(types.int64)
_I32 = types.CPointer(types.int32)
_LENGTHS = 5  # words before the geometry


@intrinsic
def _moved(typing, p, words):
    """A pointer so many 64-bit words further, to int32."""

    def codegen(context, builder, sig, args):
        v = VectorBuilder(context, builder)
        p = builder.bitcast(args[0], P)
        return builder.bitcast(v.at(p, builder.mul(args[1], v.int(8))), context.get_value_type(_I32))

    return _I32(p, types.int64), codegen


@cache
def function(size: int) -> Any:
    """The general function of multiplicands in words of `size` bytes: images of A, B, C, metadata, D, and tables."""
    word = _WORDS[size]
    run = general.run

    @jit(cached=False)
    def product(a, b, c, meta, d, table, places):
        at, geometry = _LENGTHS, table[0]
        run(
            general.Images(a, b, c, meta, d), np.zeros(4, np.int64), 0, 1, places,
            table[at : at + geometry], table[at + geometry : at + geometry + table[1]],
            general.ElementBuffers(np.empty(table[2], word), np.empty(table[3], word), np.empty(table[4], word)),
        )  # fmt: skip

    @c_function(types.void(_U32, _U32, _U32, _U32, _U32, _I64))
    def entry(a, b, c, meta, d, table):
        words = carray(table, 1 << 10)
        places = _moved(table, _LENGTHS + words[0] + words[1])
        product(
            carray(a, IMAGE), carray(b, IMAGE), carray(c, IMAGE), carray(meta, IMAGE), carray(d, IMAGE), words,
            carray(places, IMAGE),
        )  # fmt: skip

    return entry
