"""Trials of what moves matrices: wmma.load and wmma.store, ldmatrix, stmatrix, movmatrix."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from nbtc import ptx
from nbtc.formats.table import Format
from nbtc.isa import inline
from nbtc.isa.archs import Target
from nbtc.isa.spec import Operand, Row
from nbtc.ops.memory.wmma import extent, span
from nbtc.verify.hardware import draws
from nbtc.verify.hardware.trial import Array, Trial
from nbtc.verify.text import WARP, Block, instruction_text, kernel, matrices_text

LINE = 16  # bytes of a row of an 8x8 matrix
SHARED_ROWS = 64  # rows of the shared memory that ldmatrix and stmatrix address


def fragments(rows: list[Row], target: Target) -> Iterator[Trial]:
    """wmma.load and wmma.store, dense and with longer lines."""
    for row in rows:
        for more in (0, 1):
            yield fragment(row, more, target)


def fragment(row: Row, more: int, target: Target) -> Trial:
    """A load or store of a tile in global memory; more: lines are longer by so many of the least steps."""
    held: Operand | None = row.a or row.b or row.c or row.d
    if held is None:
        raise LookupError(f"{row.mnemonic} has no fragment")
    operand, layout = held.on(target.arch), "col" if ".col." in row.mnemonic else "row"
    length = extent(operand, layout)
    stride = length + more * _step(operand.format, length)
    size = -(-span(operand, layout, stride) // 32) * 32
    registers = next(r for r in inline.operands(row) if r.name == "r")
    stores = row.family == "wmma.store"
    line = inline.text(row, {}).replace("[p0]", "[window]").replace("stride0", str(stride))
    reads, writes = ([registers], []) if stores else ([], [registers])
    body = kernel(reads, writes, [line], WARP, has=Block(memory=size, memory_out=stores))
    outputs = size if stores else WARP * operand.registers
    call = partial(_stored if stores else _loaded, row.mnemonic, stride, target.arch.name)
    return Trial(f"{row.mnemonic}, stride {stride}", body, WARP, outputs, partial(_draw, operand, size, stores), call)


def _step(fmt: Format, length: int) -> int:
    """Elements by which a leading dimension may grow: 16 bytes, or a whole line where that is shorter."""
    return max(1, min(8 * LINE, length * fmt.bits) // fmt.bits)


def _draw(
    operand: Operand, size: int, stores: bool, rng: np.random.Generator, blocks: int
) -> tuple[list[Array], list[Array]]:
    memory = draws.words(rng, (blocks, size), np.uint8)
    registers = draws.words(rng, (blocks, WARP, operand.registers))
    return ([registers], [memory]) if stores else ([memory], [registers])


def _loaded(mnemonic: str, stride: int, arch: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    return [np.asarray(ptx.wmma_load(mnemonic, inputs[0], 0, stride, arch=arch))]


def _stored(mnemonic: str, stride: int, arch: str, inputs: list[Array], before: list[Array]) -> list[Array]:
    memory = before[0].copy()
    ptx.wmma_store(mnemonic, memory, inputs[0], 0, stride, arch=arch)
    return [memory]


def matrices(rows: list[Row], target: Target) -> Iterator[Trial]:
    """ldmatrix and stmatrix with a random address a lane, and movmatrix."""
    for row in rows:
        yield {"ldmatrix": load_matrices, "stmatrix": store_matrices, "movmatrix": transpose}[row.family](row)


def _parts(row: Row) -> tuple[int, bool]:
    """How many 8x8 matrices, and whether they are transposed."""
    return int(row.mnemonic.split(".x")[1][0]), ".trans" in row.mnemonic


def load_matrices(row: Row) -> Trial:
    """ldmatrix: any lane may name any row."""
    number, trans = _parts(row)
    size = SHARED_ROWS * LINE

    def draw(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
        at = rng.integers(0, SHARED_ROWS, (blocks, WARP, 1), np.uint32) * np.uint32(LINE)
        return [at, draws.words(rng, (blocks, size), np.uint8)], [np.zeros((blocks, WARP, number), np.uint32)]

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        return [np.asarray(ptx.ldmatrix(inputs[1], inputs[0][..., 0].astype(np.int64), number, trans))]

    return Trial(row.mnemonic, matrices_text(row, size), WARP, WARP * number, draw, expect, size)


def store_matrices(row: Row) -> Trial:
    """stmatrix: every lane names a row of its own, since the order of two stores to one place is nobody's."""
    number, trans = _parts(row)
    size = SHARED_ROWS * LINE

    def draw(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
        rows = np.argsort(rng.random((blocks, SHARED_ROWS)), axis=-1)[:, :WARP, None].astype(np.uint32)
        image = draws.words(rng, (blocks, size), np.uint8)
        return [rows * np.uint32(LINE), draws.words(rng, (blocks, WARP, number)), image], [np.zeros_like(image)]

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        image = inputs[2].copy()
        ptx.stmatrix(image, inputs[0][..., 0].astype(np.int64), inputs[1], number, trans)
        return [image]

    return Trial(row.mnemonic, matrices_text(row, size), WARP, size, draw, expect, size)


def transpose(row: Row) -> Trial:
    """movmatrix."""

    def draw(rng: np.random.Generator, blocks: int) -> tuple[list[Array], list[Array]]:
        return [draws.words(rng, (blocks, WARP))], [np.zeros((blocks, WARP), np.uint32)]

    def expect(inputs: list[Array], before: list[Array]) -> list[Array]:
        return [np.asarray(ptx.movmatrix(inputs[0]))]

    return Trial(row.mnemonic, instruction_text(row), WARP, WARP, draw, expect)
