"""Rows of matrices on the move: ldmatrix, stmatrix, movmatrix.

(PTX ISA, "ldmatrix", "stmatrix", "movmatrix".)  Where each register byte lies is what the instruction rows say
(`isa.move`); here that becomes 16-byte rows and one shuffle of bytes a register.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir

from nbtc.compiler.builder import I8, I16, I32, VectorBuilder, vector
from nbtc.compiler.cpu.processors import GENERIC, host_processor
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.memory import reach
from nbtc.executor.memory.resolve import ADDRESSES, POINTER, Access
from nbtc.executor.text.data import Instruction
from nbtc.executor.text.matrix_names import isa_row, without_space
from nbtc.isa.spec import Operand, Row
from nbtc.ops.mma.vector_code import present

ROW = 16  # bytes of a memory row of ldmatrix and stmatrix
L32 = vector(I32, WARP)
# bytes of eight rows of eight 16-bit elements, column by column
COLUMNS = [ROW * row + 2 * column + n for column in range(8) for row in range(8) for n in (0, 1)]
_HALVES = range(8), range(8, 16)  # elements of two interleaved registers
EXPANDED = {"b8x16.b4x16_p64": 4, "b8x16.b6x16_p32": 6}  # bits of an element in memory; in a register it is a byte


def row_and_space(lanes: Lanes) -> tuple[Row, str]:
    """The instruction row, and the state space that the text names."""
    text, space = without_space(lanes.instruction.mnemonic)
    row = isa_row(text)
    if row is None:
        lanes.refuse("no such form")
    return row, space


@cache
def _sources(row: Row) -> tuple[np.ndarray, np.ndarray]:
    """(memory row, byte in it) of each byte of each register: [register][lane][byte]."""
    operand = row.d if row.d is not None else row.a
    coords = operand.coords()  # type: ignore[union-attr]
    size = operand.format.bits // 8  # type: ignore[union-attr]
    shape = (WARP, operand.registers, 4)  # type: ignore[union-attr]
    line = np.repeat(coords[..., 0], size, axis=1).reshape(shape)
    byte = (coords[..., 1:] * size + np.arange(size)).reshape(shape)
    return line.transpose(1, 0, 2), byte.transpose(1, 0, 2)


def _rows_of(line: Any) -> list[int]:
    """The memory rows that one register draws from: 8 or 16 neighbours."""
    return list(range(int(line.min()), int(line.max()) + 1))


def _givers(operand: Operand) -> Any:
    """The mask of the lanes that give the rows' addresses; on sm_80 and later the others' are ignored."""
    return ir.Constant(I32, (1 << operand.rows) - 1)


def _load_matrix(lanes: Lanes) -> None:
    row, space = row_and_space(lanes)
    target, address = lanes.operands
    v, registers = lanes.v, lanes.elements(target)
    among = _givers(present(row.d))
    addresses = reach.address(lanes, address)
    mine, site = reach.tell(lanes, space, addresses, ROW, among, reach.READ)
    out = lanes.machine.scratch.image(lanes, 4 * WARP * len(registers))
    access = Access(reach.space_of(space), ROW, False)
    helper = lanes.helper(
        f"nbtc_{row.mnemonic}_{access.space}",
        ir.VoidType(),
        (ADDRESSES, I32, I32, POINTER, POINTER, POINTER),
        lambda v, args: _matrix_loader(v, lanes.machine.helpers, access, row, args),
    )
    lanes.b.call(helper, [addresses, mine.active, ir.Constant(I32, site), lanes.block, lanes.warp, out])
    for n, register in enumerate(registers):
        lanes.write(register, v.load(out, L32, 64, 4 * WARP * n))


def _matrix_loader(v: VectorBuilder, helpers: Any, access: Access, row: Row, args: Any) -> None:
    """The body of a helper: addresses of rows, the lanes that give them, site, block, warp, the registers' image."""
    addresses, active, *where, out = args
    found = reach.places_in(v, helpers, access, addresses, active, where)
    bits = EXPANDED.get(".".join(row.mnemonic.split(".")[-2:]))
    with v.b.if_then(v.b.icmp_unsigned("==", found.good, active), likely=True):
        for n, (line, byte) in enumerate(zip(*_sources(row), strict=True)):
            first, *_ = rows = _rows_of(line)
            parts = [_expanded(v, v.load(found.pointer(v, r), vector(I8, ROW), 1), bits) for r in rows]
            order = (ROW * (line - first) + byte).ravel().tolist()
            # rows stored one by one and loaded as a whole would wait for the stores
            v.store(v.bits(_ordered(v, parts, order), L32), out, 64, 4 * WARP * n)
    v.b.ret_void()


def _ordered(v: VectorBuilder, rows: list[Any], order: list[int]) -> Any:
    """The bytes of all rows, one after the other, in an order.

    Where a register holds less than half of a matrix, LLVM takes 150 ms to make AVX2's instructions of a shuffle that
    gives the columns, and 15 for rows that are interleaved with those half of all further on, three times; that is two
    thirds of the code too.
    """
    if order != COLUMNS or (host_processor() or GENERIC).bytes >= 4 * ROW:
        whole = v.joined(rows)
        return v.shuffle(whole, whole, order)
    rows = [v.bits(x, vector(I16, ROW // 2)) for x in rows]
    for _ in range(3):
        both = zip(rows[:4], rows[4:], strict=True)
        rows = [v.shuffle(x, y, [n // 2 + ROW // 2 * (n % 2) for n in half]) for x, y in both for half in _HALVES]
    return v.joined(rows)


def _expanded(v: VectorBuilder, x: Any, bits: int | None) -> Any:
    """Sixteen elements of 4 or 6 bits as bytes."""
    if bits is None:
        return x
    b = v.b
    pairs = b.zext(x, vector(I16, ROW))
    low = [n * bits // 8 for n in range(ROW)]
    words = b.or_(
        v.shuffle(pairs, pairs, low),
        b.shl(v.shuffle(pairs, pairs, [min(n + 1, ROW - 1) for n in low]), v.const(vector(I16, ROW), 8)),
    )
    moved = b.lshr(words, ir.Constant(vector(I16, ROW), [n * bits % 8 for n in range(ROW)]))
    return b.trunc(b.and_(moved, v.const(vector(I16, ROW), (1 << bits) - 1)), vector(I8, ROW))


def _store_matrix(lanes: Lanes) -> None:
    row, space = row_and_space(lanes)
    address, source = lanes.operands
    lines, octets = _sources(row)
    v, lines_of = lanes.v, [_rows_of(line) for line in lines]
    images = []  # of each register: the rows that it holds, one after the other
    for register, line, byte, rows in zip(lanes.elements(source), lines, octets, lines_of, strict=True):
        order = np.zeros(ROW * len(rows), np.int64)
        order[(ROW * (line - rows[0]) + byte).ravel()] = np.arange(4 * WARP)
        x = v.bits(lanes.read(register, "b32", lanes=True), vector(I8, 4 * WARP))
        images.append(v.shuffle(x, x, order.tolist()))
    seen = reach.WRITE._replace(values=_words_of_rows(v, images, [r for rows in lines_of for r in rows]))
    among = _givers(present(row.a))
    found = reach.places(lanes, space, address, ROW, True, among, seen)
    with reach.if_all(lanes, found, lanes.b.and_(among, lanes.active)):
        for image, rows in zip(images, lines_of, strict=True):
            for n, r in enumerate(rows):
                v.store(v.shuffle(image, image, list(range(ROW * n, ROW * (n + 1)))), found.pointer(lanes, r), 1)


def _words_of_rows(v: VectorBuilder, images: list[Any], rows: list[int]) -> tuple[Any, ...]:
    """The four words of the row that each lane gives the address of, as vectors; rows: those of the images in turn."""
    whole = v.joined(images)
    held = v.bits(whole, vector(I32, whole.type.count // 4))
    place = [rows.index(lane) if lane in rows else 0 for lane in range(WARP)]
    return tuple(v.shuffle(held, held, [ROW // 4 * p + word for p in place]) for word in range(ROW // 4))


def _transpose(lanes: Lanes) -> None:
    row, _ = row_and_space(lanes)
    source, result = (o.coords().reshape(-1, 2) for o in (row.a, row.d))  # type: ignore[union-attr]
    holder = np.zeros((8, 8), np.int64)
    holder[source[:, 0], source[:, 1]] = np.arange(2 * WARP)
    target, register = lanes.operands
    x = lanes.v.bits(lanes.read(register, "b32", lanes=True), vector(I16, 2 * WARP))
    order = holder[result[:, 0], result[:, 1]].tolist()
    lanes.write(target, lanes.v.bits(lanes.v.shuffle(x, x, order), L32))


def accepts(opcode: str, family: str) -> Any:
    """For an action: whether a mnemonic, but for its state space, is a row of a family."""

    def accepts(modifiers: tuple[str, ...]) -> bool:
        row = isa_row(without_space(".".join((opcode, *modifiers)))[0])
        return row is not None and row.family == family and row.executable

    return accepts


def _always(instruction: Instruction) -> bool:
    return True


ACTIONS = (
    Action("ldmatrix", (), _load_matrix, 1, varying=_always, accepts=accepts("ldmatrix", "ldmatrix")),
    Action("stmatrix", (), _store_matrix, accepts=accepts("stmatrix", "stmatrix")),
    Action("movmatrix", slots("sync", "aligned", "m8n8", "trans", "b16"), _transpose, 1, varying=_always),
)
