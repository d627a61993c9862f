"""wmma.load and wmma.store (PTX ISA, "wmma.load", "wmma.store"): fragments from and to tiles in memory.

Where all lanes name one tile (the ISA asks for that) and it lies in one piece of memory, its lines are moved in chunks
of bytes and shuffled; each element by itself otherwise, which also finds and reports what is wrong.
"""

from __future__ import annotations

from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.state import SHARED_WINDOW
from nbtc.executor.matrix.matrix_moves import ROW, accepts, row_and_space
from nbtc.executor.memory import memory, reach
from nbtc.executor.memory.gather import gather, scatter
from nbtc.executor.memory.resolve import POINTER, RANK_SHIFT, TAG
from nbtc.executor.memory.side_by_side import LaneElements
from nbtc.executor.text.data import Instruction
from nbtc.isa.spec import Operand

VECTOR = 64  # bytes
SOURCES = 2 * VECTOR  # bytes that one shuffle takes from
EIGHT = 8  # rows or columns that the 32 lanes of one register lie in
L32, L64 = vector(I32, WARP), vector(I64, WARP)


class RegisterPiece(NamedTuple):
    """Part of a register that is one access: first bit, bits, and each lane's row and column in the tile."""

    shift: int
    bits: int
    rows: list[int]
    cols: list[int]


@cache
def _pieces(operand: Operand, layout: str) -> list[list[RegisterPiece]]:
    """The accesses of each register of a fragment: elements that lie side by side in memory are one."""
    size, coords = operand.format.bits, operand.coords()
    register, shift = operand.slots()
    out: list[list[RegisterPiece]] = [[] for _ in range(max(1, operand.registers * 32 // max(32, size)))]
    along = 1 if layout == "row" else 0
    n = 0
    while n < operand.elements:
        count = 1
        while (
            n + count < operand.elements
            and register[n + count] == register[n]
            and (coords[:, n + count, along] - coords[:, n, along] == count).all()
            and (coords[:, n + count, 1 - along] == coords[:, n, 1 - along]).all()
        ):
            count += 1
        place_of = int(register[n]) * 32 // max(32, size)
        rows, cols = (coords[:, n, i].tolist() for i in (0, 1))
        out[place_of].append(RegisterPiece(int(shift[n]), count * size, rows, cols))
        n += count
    return out


Access = tuple[RegisterPiece, LaneElements, Any]  # with its addresses, <32 x i64>


class MovedTile:
    """A tile in memory, as one instruction names it."""

    def __init__(self, lanes: Lanes, address: Any, rest: tuple[Any, ...]) -> None:
        row, space = row_and_space(lanes)
        self.fragment: Operand = next(o for o in (row.a, row.b, row.c, row.d) if o is not None)
        self.layout = "col" if "col" in row.mnemonic.split(".") else "row"
        self.space, self.width = reach.space_of(space), self.fragment.format.bits
        self.pieces = _pieces(self.fragment, self.layout)
        extents = (self.fragment.rows, self.fragment.cols)
        self.lines, natural = extents if self.layout == "row" else extents[::-1]
        self.line_bytes = natural * self.width // 8
        stride = lanes.read(rest[0], "u32", lanes=True) if rest else lanes.v.const(L32, natural)
        self.address = reach.address(lanes, address)
        self.pitch = lanes.b.mul(lanes.b.zext(stride, L64), lanes.v.const(L64, self.width))  # bits from line to line
        self.site = lanes.machine.site(lanes)

    @property
    def align(self) -> int:
        """Bytes of the largest access of a lane."""
        return max(piece.bits for pieces in self.pieces for piece in pieces) // 8

    def accesses(self, lanes: Lanes) -> list[list[Access]]:
        """Each register's pieces with their shape and <32 x i64> addresses."""
        return [
            [(p, LaneElements(self.space, p.bits, 1, False), self._place(lanes, p)) for p in ps] for ps in self.pieces
        ]

    def _place(self, lanes: Lanes, piece: RegisterPiece) -> Any:
        b = lanes.b
        line, along = (piece.rows, piece.cols) if self.layout == "row" else (piece.cols, piece.rows)
        bits = b.add(b.mul(self.pitch, ir.Constant(L64, line)), ir.Constant(L64, [n * self.width for n in along]))
        return b.add(self.address, b.lshr(bits, lanes.v.const(L64, 3)))

    def whole(self, lanes: Lanes) -> tuple[Any, Any, Any]:
        """(i1: the tile may be moved at once, its address in the host's memory, bytes from line to line)."""
        b, v = lanes.b, lanes.v
        address, bits = (b.extract_element(x, ir.Constant(I32, 0)) for x in (self.address, self.pitch))
        one = v.const(vector(I64, WARP), 0)
        differ = b.or_(b.xor(self.address, v.splat(address, WARP)), b.xor(self.pitch, v.splat(bits, WARP)))
        fine = b.icmp_unsigned("==", lanes.mask(b.icmp_unsigned("==", differ, one)), ir.Constant(I32, -1))
        fine = b.and_(fine, b.icmp_unsigned("==", b.and_(bits, v.int(8 * self.align - 1)), v.int(0)))
        pitch = b.lshr(bits, v.int(3))
        total = b.add(b.mul(pitch, v.int(self.lines - 1)), v.int(self.line_bytes))
        host, fits = self._host(lanes, address, total)
        return b.and_(fine, fits), host, pitch

    def _host(self, lanes: Lanes, address: Any, total: Any) -> tuple[Any, Any]:
        """Where so many bytes lie in the host's memory, and whether they all may be touched."""
        b, v = lanes.b, lanes.v
        if self.space == "global":
            return address, memory.fits_global(lanes, address, total, self.align, self.site)
        offset = b.and_(address, v.int(0xFFFFFFFF))
        own = b.icmp_unsigned("<", b.add(offset, total), v.int(1 << RANK_SHIFT))  # others' blocks are found one by one
        fits = b.and_(own, memory.fits_shared(lanes, offset, total, self.align))
        host = b.add(lanes.get("block", "shared"), offset)
        if self.space == "shared":
            return host, fits
        shared = b.icmp_unsigned("==", b.lshr(address, v.int(TAG)), v.int(SHARED_WINDOW >> TAG))
        elsewhere = memory.fits_global(lanes, address, total, self.align, self.site)
        return b.select(shared, host, address), b.select(shared, fits, elsewhere)

    def bytes_of(self, register: int) -> NDArray[np.int64]:
        """Where in the tile each byte of a register lies, [lane][byte], line by line without gaps."""
        out = np.zeros((WARP, max(32, self.width) // 8), np.int64)
        for piece in self.pieces[register]:
            line, along = (piece.rows, piece.cols) if self.layout == "row" else (piece.cols, piece.rows)
            first = np.array(line) * self.line_bytes + np.array(along) * self.width // 8
            size = piece.bits // 8
            at = piece.shift // 8
            out[:, at : at + size] = first[:, None] + np.arange(size)
        return out


def picked(v: VectorBuilder, parts: list[Any], order: list[int]) -> Any:
    """Bytes in an order out of vectors of bytes end to end; a shuffle for every `SOURCES` bytes of them, and blends."""
    size = parts[0].type.count
    count = SOURCES // size
    found = None
    for n in range(0, len(parts), count):
        some = parts[n : n + count]
        some += [some[-1]] * ((1 << (len(some) - 1).bit_length()) - len(some))
        joined = v.joined(some)
        first, limit = n * size, (n + count) * size
        mine = [first <= i < limit for i in order]
        x = v.shuffle(joined, joined, [i - first if own else 0 for i, own in zip(order, mine, strict=True)])
        blend = [i + len(order) * own for i, own in enumerate(mine)]
        found = x if found is None else v.shuffle(found, x, blend)
    return found


class TileLines:
    """A tile's lines in the host's memory, in chunks of bytes, which count along the first line, then the next."""

    def __init__(self, v: VectorBuilder, tile: MovedTile, host: Any, pitch: Any, chunk: int) -> None:
        self.v, self.chunk = v, min(chunk, tile.line_bytes)
        self.per_line = tile.line_bytes // self.chunk
        self.pointers = [v.b.inttoptr(v.b.add(host, v.b.mul(pitch, v.int(n))), POINTER) for n in range(tile.lines)]
        self.loaded: dict[int, Any] = {}

    @property
    def count(self) -> int:
        """Of chunks."""
        return len(self.pointers) * self.per_line

    def load(self, number: int) -> Any:
        """A chunk, loaded once."""
        if number not in self.loaded:
            line, part = divmod(number, self.per_line)
            self.loaded[number] = self.v.load(self.pointers[line], vector(I8, self.chunk), 1, part * self.chunk)
        return self.loaded[number]

    def store(self, number: int, x: Any) -> None:
        """Write a chunk."""
        line, part = divmod(number, self.per_line)
        self.v.store(x, self.pointers[line], 1, part * self.chunk)


def _load_lines(v: VectorBuilder, tile: MovedTile, host: Any, pitch: Any) -> list[Any]:
    """The registers of a fragment."""
    in_line = all(len(pieces) == 1 for pieces in tile.pieces)
    # a register meets eight rows and columns: where it goes across lines, it takes eight elements of each
    lines = TileLines(v, tile, host, pitch, ROW if in_line else min(ROW, EIGHT * tile.width // 8))
    found = []
    for register in range(len(tile.pieces)):
        vectors = []
        for places in tile.bytes_of(register).reshape(-1, VECTOR):
            chunks = np.unique(places // lines.chunk)
            order = np.searchsorted(chunks, places // lines.chunk) * lines.chunk + places % lines.chunk
            vectors.append(picked(v, [lines.load(c) for c in chunks.tolist()], order.tolist()))
        found.append(v.bits(v.joined(vectors), vector(ir.IntType(max(32, tile.width)), WARP)))
    return found


def _store_lines(v: VectorBuilder, tile: MovedTile, host: Any, pitch: Any, registers: list[Any]) -> None:
    """The way back."""
    lines = TileLines(v, tile, host, pitch, VECTOR // 2)
    places = np.concatenate([tile.bytes_of(n).ravel() for n in range(len(registers))])
    source = np.zeros(tile.lines * tile.line_bytes, np.int64)
    source[places] = np.arange(len(places))
    octets = [v.bits(x, vector(I8, x.type.count * x.type.element.width // 8)) for x in registers]
    per_vector = octets[0].type.count // VECTOR
    for number, wanted in enumerate(source.reshape(-1, lines.chunk)):
        parts = np.unique(wanted // VECTOR)
        order = np.searchsorted(parts, wanted // VECTOR) * VECTOR + wanted % VECTOR
        cut = [_part(v, octets[n // per_vector], n % per_vector) for n in parts.tolist()]
        lines.store(number, picked(v, cut, order.tolist()))


def _part(v: VectorBuilder, x: Any, n: int) -> Any:
    """Vector n of those that x is made of."""
    return v.shuffle(x, x, list(range(VECTOR * n, VECTOR * (n + 1))))


def _load_fragment(lanes: Lanes) -> None:
    target, address, *rest = lanes.operands
    tile = MovedTile(lanes, address, tuple(rest))
    b, accesses = lanes.b, tile.accesses(lanes)
    for _, shape, at in chain.from_iterable(accesses):
        memory.watched(lanes, shape, kinds.READ, at, tile.site)
    kind = vector(ir.IntType(max(32, tile.width)), WARP)
    slots = [lanes.frame.code.scratch(kind) for _ in accesses]
    whole, host, pitch = tile.whole(lanes)
    with b.if_else(whole, likely=True) as (at_once, one_by_one):
        with at_once:
            for x, slot in zip(_load_lines(lanes.v, tile, host, pitch), slots, strict=True):
                b.store(x, slot)
        with one_by_one:
            for pieces, slot in zip(accesses, slots, strict=True):
                b.store(_load_pieces(lanes, pieces, kind, tile.site), slot)
    for register, slot in zip(lanes.elements(target), slots, strict=True):
        lanes.write(register, b.load(slot))


def _load_pieces(lanes: Lanes, pieces: list[Access], kind: Any, site: int) -> Any:
    """One register, each lane's part of it by itself."""
    b, total = lanes.b, ir.Constant(kind, None)
    for piece, shape, at in pieces:
        x = gather(lanes, shape, at, site)[0]
        x = x if x.type == kind else b.zext(x, kind)
        total = b.or_(total, b.shl(x, lanes.v.const(kind, piece.shift)) if piece.shift else x)
    return total


def _store_fragment(lanes: Lanes) -> None:
    address, source, *rest = lanes.operands
    tile = MovedTile(lanes, address, tuple(rest))
    b, accesses = lanes.b, tile.accesses(lanes)
    registers = [lanes.read(r, f"b{max(32, tile.width)}", lanes=True) for r in lanes.elements(source)]
    if len(registers) != len(accesses):
        lanes.refuse(f"a fragment of {len(registers)} registers where the form has {len(accesses)}")
    parts = [
        [(shape, at, _cut(lanes, x, piece)) for piece, shape, at in pieces]
        for x, pieces in zip(registers, accesses, strict=True)
    ]
    for shape, at, x in chain.from_iterable(parts):
        memory.watched(lanes, shape, kinds.WRITE, at, tile.site, [x])
    whole, host, pitch = tile.whole(lanes)
    with b.if_else(whole, likely=True) as (at_once, one_by_one):
        with at_once:
            _store_lines(lanes.v, tile, host, pitch, registers)
        with one_by_one:
            for shape, at, x in chain.from_iterable(parts):
                scatter(lanes, shape, at, [x], tile.site)


def _cut(lanes: Lanes, register: Any, piece: RegisterPiece) -> Any:
    """A piece of a register."""
    b, kind = lanes.b, vector(ir.IntType(piece.bits), WARP)
    x = b.lshr(register, lanes.v.const(register.type, piece.shift)) if piece.shift else register
    return x if x.type == kind else b.trunc(x, kind)


def _always(instruction: Instruction) -> bool:
    return True


ACTIONS = (
    Action("wmma", (), _load_fragment, 1, varying=_always, accepts=accepts("wmma", "wmma.load")),
    Action("wmma", (), _store_fragment, accepts=accepts("wmma", "wmma.store")),
)
