"""Products of bytes in AMX's tile registers: sixteen rows by sixteen columns by 64 bytes of K in one instruction.

Bytes are signed or not, each operand for itself, so that nothing is raised and taken back, and sums wrap as all sums
of int32 do.  A is packed [tile][64 bytes of K][row][64 bytes], B [panel][word of four bytes][column]: both are padded
with zeros to whole registers, so that one configuration serves every product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I8, I32, I64, LINE, VectorBuilder, stack_array
from nbtc.compiler.cpu.host import AMX, AVX512
from nbtc.compiler.loops import Values, repeated
from nbtc.compiler.machine_code.emitted import Named
from nbtc.kernels.words.words_pack import BYTES, Packer

NEEDS = AVX512 | AMX
ROWS, WORDS_AT_ONCE = 16, LINE // 4  # of a tile register: rows, and words of K in each
LINES = COLUMNS = 2 * ROWS  # of a tile of sums: four registers, beside two of A and two of B
CHUNK = LINES * LINE  # bytes of A that are multiplied at a time, and of B
A, B = (4, 5), (6, 7)  # registers of operands; sums have those before
PALETTE, CONFIGURATION = 1, 64  # Intel 64 manual, LDTILECFG: bytes of a row from 16 on, rows from 48 on


class AmxPacker(Packer):
    """Bytes as tile registers hold them."""

    @property
    def corrected(self) -> bool:
        """Nothing is raised."""
        return False

    def words_in_line(self, units: Any) -> Any:
        """Whole registers."""
        b, v = self.b, self.v
        up = b.add(self.words_of(units), v.int(WORDS_AT_ONCE - 1))
        return b.and_(up, v.int(-WORDS_AT_ONCE))

    # --- A ---
    def rows(self, source: Named, rows: Any, units: Any, lines: int, own: Named) -> None:
        """Rows of A into own["a"], with zeros beyond them."""
        v, b = self.v, self.b
        spare = stack_array(b, LINE)
        size = b.mul(self.words_in_line(units), v.int(lines * self.word_size))
        tiles = b.udiv(b.add(rows, v.int(lines - 1)), v.int(lines))
        with cgutils.for_range(b, b.mul(tiles, v.int(lines))) as loop:
            i = loop.index
            tile, line = b.udiv(i, v.int(lines)), b.urem(i, v.int(lines))
            to = v.at(own["a"], b.mul(tile, size), b.mul(line, v.int(LINE)))
            at = v.at(source["x"], b.mul(b.add(source["at"], b.mul(i, source["ld"])), v.int(self.size)))
            inside = b.icmp_signed("<", i, rows)
            self.line(at, b.select(inside, units, v.int(0)), to, b.select(inside, v.int(0), size), spare)

    def line(self, at: Any, units: Any, to: Any, blank: Any, spare: Any) -> None:
        """A row's registers, or zeros into `blank` bytes of its tile."""
        v, b = self.v, self.b
        per = LINE // self.made // self.word_size * self.of  # units of a register's row
        whole = b.udiv(units, v.int(per))
        with cgutils.for_range(b, whole) as loop:
            self.put_register(v.at(at, b.mul(loop.index, v.int(per * self.size))), v.at(to, self.chunk(loop.index)))
        rest = b.urem(units, v.int(per))
        with b.if_then(b.icmp_signed("!=", rest, v.int(0))):
            begun = v.at(at, b.mul(b.sub(units, rest), v.int(self.size)))
            v.store(self.nothing(LINE), spare)
            with cgutils.for_range(b, rest) as loop:
                here = b.mul(loop.index, v.int(self.size))
                v.store(v.load(v.at(begun, here), self.unit, 1), v.at(spare, here), 1)
            self.put_register(spare, v.at(to, self.chunk(whole)))
        with cgutils.for_range(b, b.udiv(blank, v.int(CHUNK))) as loop:
            v.store(self.nothing(LINE), v.at(to, self.chunk(loop.index)))

    def chunk(self, n: Any) -> Any:
        return self.b.mul(n, self.v.int(CHUNK))

    def nothing(self, size: int) -> ir.Constant:
        return self.v.const(ir.VectorType(I32, size // 4), 0)

    def put_register(self, at: Any, to: Any) -> None:
        """One register's row."""
        words = self.along(at, WORDS_AT_ONCE // self.made)
        n = words[0].type.count
        by_turns = [q * n + i for i in range(n) for q in range(self.made)]
        self.v.store(self.v.shuffle(words[0], words[-1], by_turns), to)

    # --- B ---
    def across(self, lines: list[Any]) -> list[Any]:
        return super().across(lines) if self.source == BYTES else self.of_unit(lines[0], raised=False)

    def columns(self, source: Named, units: Any, columns: Any, width: int, out: Named) -> None:
        """Columns of B into out["words"], [panel][k][width], with zeros beyond them."""
        super().columns(source, units, columns, width, out)
        v, b = self.v, self.b
        words, filled, size = self.words_in_line(units), self.words_of(units), v.int(width * self.word_size)
        panels = b.udiv(b.add(columns, v.int(width - 1)), v.int(width))
        with cgutils.for_range(b, panels) as panel, cgutils.for_range(b, b.sub(words, filled)) as line:
            word = b.add(b.add(b.mul(panel.index, words), filled), line.index)
            v.store(self.nothing(width * self.word_size), v.at(out["words"], b.mul(word, size)))


class AmxTiles:
    """AMX's instructions; registers by their numbers."""

    def __init__(self, v: VectorBuilder) -> None:
        self.v = v

    def _do(self, name: str, *args: Any) -> None:
        self.v.call(f"llvm.x86.{name}", ir.VoidType(), *(ir.Constant(I8, x) if isinstance(x, int) else x for x in args))

    def configure(self) -> None:
        """All registers whole."""
        v = self.v
        row_sizes = int.from_bytes(LINE.to_bytes(2, "little") * 4, "little")
        rows = int.from_bytes(bytes([ROWS] * 8), "little")
        said = stack_array(v.b, CONFIGURATION)
        v.store(ir.Constant(ir.VectorType(I64, 8), [PALETTE, 0, row_sizes, row_sizes, 0, 0, rows, 0]), said)
        self._do("ldtilecfg", said)

    def release(self) -> None:
        """The registers are free; without it every switch of threads saves them."""
        self._do("tilerelease")

    def zero(self, to: int) -> None:
        self._do("tilezero", to)

    def load(self, to: int, at: Any, ld: Any) -> None:
        """Sixteen rows, ld bytes apart."""
        self._do("tileloadd64", to, at, ld)

    def store(self, from_: int, at: Any, ld: Any) -> None:
        self._do("tilestored64", from_, at, ld)

    def add(self, to: int, a: int, b: int, signs: tuple[bool, bool]) -> None:
        """Add the products of bytes of A by those of B, each signed or not."""
        self._do(f"tdpb{''.join('us'[sign] for sign in signs)}d", to, a, b)


@contextmanager
def tile_registers(v: VectorBuilder) -> Iterator[None]:
    """What is written inside has them."""
    registers = AmxTiles(v)
    registers.configure()
    yield
    registers.release()


class AmxEmitter:
    """Writes the loop of one tile of sums; places and the rest are those of `words.TileEmitter`."""

    def __init__(self, v: VectorBuilder, signs: tuple[bool, bool], places: list[Any], ld: Any, fresh: Any) -> None:
        self.v, self.b, self.signs = v, v.b, signs
        self.a, self.columns, self.d, *_ = places
        self.size, self.fresh, self.registers = v.b.mul(ld, v.int(4)), fresh, AmxTiles(v)

    def sums(self) -> Iterator[tuple[int, Any]]:
        """Registers of sums and where they are in D."""
        for n in range(len(A) * len(B)):
            row, column = divmod(n, len(B))
            yield n, self.v.at(self.d, self.b.mul(self.size, self.v.int(ROWS * row)), LINE * column)

    def announce_next(self) -> None:
        """Fetch the lines of the tile below while this one is summed."""
        v, b = self.v, self.b
        for row in range(LINES):
            for column in range(len(B)):
                v.prefetch(v.at(self.d, b.mul(self.size, v.int(LINES + row)), LINE * column), write=True)

    def write(self, depth: Any) -> None:
        """D += A * B; depth: words of K."""
        v, b, registers = self.v, self.b, self.registers
        self.announce_next()
        with b.if_else(self.fresh) as (without, with_start):
            with without:
                for n, _ in self.sums():
                    registers.zero(n)
            with with_start:
                for n, at in self.sums():
                    registers.load(n, at, self.size)

        def chunk(k: Any, values: Values) -> Values:
            at = b.mul(k, v.int(CHUNK // WORDS_AT_ONCE))
            left, right = v.at(self.a, at), v.at(self.columns, at)
            for i in range(2):
                registers.load(A[i], v.at(left, i * ROWS * LINE), v.int(LINE))
                registers.load(B[i], v.at(right, i * LINE), v.int(len(B) * LINE))
            for n in range(len(A) * len(B)):
                i, j = divmod(n, len(B))
                registers.add(n, A[i], B[j], self.signs)
            return values

        repeated(v, v.int(0), depth, WORDS_AT_ONCE, {}, chunk)
        for n, at in self.sums():
            registers.store(n, at, self.size)
