"""Dense f16, bf16 and tf32 products of a program in two steps: operands decoded into records, and a core that sums.

A record is memory of the program: as long as the registers of an operand are not written, its record stays good, and
the next product that reads them starts with the core.  In a tile of 8 x 8 products that leaves 16 of 128 decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I16, I32, I64, VectorBuilder, vector
from nbtc.compiler.cpu.float_mode import separate_function
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.machine_code.split import shared_module
from nbtc.executor.matrix.product_records import GROUPS, LANES, PARITIES, REGISTER, VECTOR, RecordOperands
from nbtc.kernels.register_sums import V16
from nbtc.kernels.warps.float_code import W16, FloatCode
from nbtc.kernels.warps.warp_elements import B64
from nbtc.kernels.warps.warp_floats import ProductSchedule, Stage

P = I8.as_pointer()
EXACT = 23  # places after the first one that an f32 has


class Records(NamedTuple):
    """Decoded operands of one product: addresses."""

    a: Any
    b: Any


def place(v: VectorBuilder, size: int) -> Any:
    """Stack memory of the function that is being written."""
    with v.b.goto_entry_block():
        buffer = v.b.alloca(ir.ArrayType(I8, size))
        buffer.align = VECTOR
        return v.b.bitcast(buffer, P)


def _one_of(v: VectorBuilder, second: Any, p: Any, q: Any) -> Any:
    """The pointer p, or q, by numbers that LLVM can't tell are a choice.  It makes a branch of those, and computes what
    is stored only after it, far from the loads that this comes of."""
    b = v.b
    number = b.call(ir.InlineAsm(ir.FunctionType(I64, [I64]), "", "=r,0"), [b.zext(second, I64)])
    return v.at(p, b.mul(number, b.sub(b.ptrtoint(q, I64), b.ptrtoint(p, I64))))


class Core(ProductSchedule):
    """The sums of decoded operands; C and D are [register][lane] images."""

    rate = 6  # nothing is decoded

    def __init__(
        self, shape: FloatCode, v: VectorBuilder, operands: RecordOperands, c: Any, numbers: tuple[int, int]
    ) -> None:
        super().__init__(shape, v, operands, *(v.const(I32, n) for n in numbers))
        self.operands, self.c = operands, c
        # Stages of four vectors load B half as often: 300 numbers come from memory for f16, not 363, and Intel's
        # processors take 3 % less time (timed by hand).  By llvm-mca, eight products are too few to hide what surrounds
        # so many sums (6 % more), and Zen 4 takes 2 % more.
        if self.m.row.two_ports and len(shape.labels) > 8 * shape.blocks:
            self.together = 4
        self.finished: dict[int, Any] = {}
        operands.load_notes()
        operands.load_again()
        if shape.limited_range and numbers[0] >= EXACT:
            operands.empties_are_whole(numbers[0])

    def flags(self) -> Any:
        bad = super().flags()
        if self.operands.empties or self.s.f16_acc:
            return bad
        places = [_place_of(r, half) for r in range(4) for half in (0, 1)]
        words = [self.v.load(self.c, W16, VECTOR, at) for at in places]
        return self.b.or_(bad, self.operands.has_tiny(words))

    @property
    def halves_size(self) -> int:
        """Bytes of memory for both halves: D, and what they tell."""
        return self._told_at(3)

    def half(self, parity: Any, kept: Any) -> None:
        """The sums of the columns of a parity (i64), which operands and C have as those of parity 0, and what they tell
        of a fallback, to memory of `halves_size` bytes."""
        v, b, sums, operands = self.v, self.b, self.sums, self.operands
        self.run([stage for stage in self._stages() if stage[0].stop <= GROUPS])
        self.store(v.at(kept, b.mul(parity, v.int(REGISTER))), 1)
        tell = [sums.highest, sums.largest]
        if not operands.empties:
            tell.append(reduce(v.umin, operands.lowest_tops))
        for n, x in enumerate(tell):
            v.store(x, v.at(kept, b.mul(parity, v.int(VECTOR))), VECTOR, self._told_at(n))

    def join(self, kept: Any) -> None:
        """Take over what both halves have told."""

        def told(n: int, t: Any) -> list[Any]:
            return [self.v.load(kept, t, VECTOR, self._told_at(n) + VECTOR * parity) for parity in range(PARITIES)]

        self.sums.highest = self.v.smax(*told(0, W16))
        self.sums.largest = self.m.larger(*told(1, V16))
        if not self.operands.empties:
            self.operands.lowest_tops = told(2, B64)

    def _told_at(self, n: int) -> int:
        """Where in that memory one of the things is that both halves tell."""
        return REGISTER * self.s.images[-1] + PARITIES * VECTOR * n

    def sum(self, stage: Stage, others: Iterator[None]) -> None:
        self.operands.load_again()
        super().sum(stage, others)

    def load_c(self, j: int) -> Any:
        v, (parity, group) = self.v, divmod(j, GROUPS)
        if not self.s.f16_acc:
            return v.load(self.c, V16, VECTOR, _place_of(2 * (group // 2) + parity, group))
        words = v.load(self.c, W16, VECTOR, _place_of(group // 2, group))
        return self.m.from_f16(self.b.trunc(self.b.lshr(words, v.const(W16, 16 * parity)), vector(I16, 16)))

    def store_d(self, j: int, x: Any) -> None:
        """Kept until `store`: D may lie where C does, which a fallback reads again.

        Without the barrier LLVM moves all sums to after the branch that asks for a fallback.
        """
        self.finished[j] = self.m.opt_barrier(x, here=True)

    def store(self, d: Any, parities: int = PARITIES) -> None:
        """All of D, or of its columns of the first parity."""
        v, b = self.v, self.b
        for group in range(GROUPS):
            both = [self.finished[GROUPS * parity + group] for parity in range(parities)]
            if self.s.f16_acc:
                low, high = (b.zext(self.m.to_f16(x), W16) for x in both)
                v.store(b.or_(low, b.shl(high, v.const(W16, 16))), d, VECTOR, _place_of(group // 2, group))
                continue
            for parity, x in enumerate(both):
                v.store(x, d, VECTOR, _place_of(2 * (group // 2) + parity, group))


def _place_of(register: int, group: int) -> int:
    """Where in an image the rows of a group are."""
    return REGISTER * register + VECTOR * (group % 2)


class Split:
    """The functions of a dense floating product.

    decode_a(image, record), decode_b(image, record), core(record of A, record of B, image of C, image of D), which
    returns whether a fallback is needed, and then leaves D as it was.
    """

    def __init__(self, shape: FloatCode, numbers: tuple[int, int]) -> None:
        self.shape, self.numbers = shape, numbers
        f, v = separate_function(ir.Module(), "measured", ir.VoidType(), [P, P])
        self.size_a, self.size_b = RecordOperands(shape, v, *f.args).sizes

    @property
    def operand_key(self) -> str:
        """What records depend on: forms that agree in it may share them."""
        return "_".join(map(str, self.shape.key))

    @property
    def operand_keys(self) -> tuple[str, str]:
        """What records of A and of B depend on."""
        return self.operand_key, self.operand_key

    def _named(self, module: ir.Module, part: str) -> Any:
        module = shared_module(module)
        key = self.operand_key
        if part in ("core", "half"):
            key += f"_{self.numbers[0]}_{self.numbers[1] % 2**32}"
        return module.globals.get(f"nbtc_{part}_{key}") or getattr(self, f"_{part}")(module, f"nbtc_{part}_{key}")

    def decode(self, v: VectorBuilder, side: int, image: Any, record: Any) -> None:
        """The operand on a side (0: A, 1: B) into its record."""
        v.b.call(self._named(v.b.module, ("decode_a", "decode_b")[side]), [image, record])

    def core(self, v: VectorBuilder, records: Any, c: Any, d: Any) -> Any:
        """The sums, in code that rounds down (`float_mode.DOWN`); i1: needs a fallback."""
        return v.b.call(self._named(v.b.module, "core"), [*records, c, d])

    def _decode_a(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, ir.VoidType(), [P, P])
        RecordOperands(self.shape, v, f.args[1], None).store_a(f.args[0])
        v.b.ret_void()
        return f

    def _decode_b(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, ir.VoidType(), [P, P])
        RecordOperands(self.shape, v, None, f.args[1]).store_b(f.args[0])
        v.b.ret_void()
        return f

    def _core(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, I1, [P] * 4)
        a, b, c, d = f.args
        if lowering(v).row.lanes < 16 and not self.shape.f16_acc:
            self._core_by_halves(v, Records(a, b), c, d)
            return f
        core = Core(self.shape, v, RecordOperands(self.shape, v, a, b), c, self.numbers)
        bad = core.emit()
        core.store(_one_of(v, bad, d, place(v, REGISTER * self.shape.images[-1])))
        v.b.ret(bad)
        return f

    def _core_by_halves(self, v: VectorBuilder, records: Records, c: Any, d: Any) -> None:
        """The same by two calls of one function, which sums the columns of a parity.

        With vectors shorter than 512 bits, all sums at once are so much code that the cache of decoded operations has
        no room for operands' decoding too.
        """
        core = Core(self.shape, v, RecordOperands(self.shape, v, *records), c, self.numbers)
        kept, half = place(v, core.halves_size), self._named(v.b.module, "half")
        for parity in range(PARITIES):
            v.b.call(half, [*records, c, kept, v.int(parity)])
        core.join(kept)
        bad = core.flags()
        to = _one_of(v, bad, d, place(v, REGISTER * self.shape.images[-1]))
        for r in range(self.shape.images[-1]):
            v.store(v.load(kept, vector(I32, LANES), VECTOR, REGISTER * r), to, VECTOR, REGISTER * r)
        v.b.ret(bad)

    def _half(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, ir.VoidType(), [*[P] * 4, I64])
        a, b, c, kept, parity = f.args
        operands = RecordOperands(self.shape, v, a, b, parity)
        Core(self.shape, v, operands, v.at(c, v.b.mul(parity, v.int(REGISTER))), self.numbers).half(parity, kept)
        v.b.ret_void()
        return f
