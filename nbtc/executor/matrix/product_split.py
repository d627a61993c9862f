"""Dense f16, bf16 and tf32 products of a program in two steps: operands decoded into records, and a core that sums.

A record is memory of the program: as long as the registers of an operand are not written, its record stays good, and
the next product that reads them starts with the core.  In a tile of 8 x 8 products that leaves 16 of 128 decodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder
from nbtc.compiler.cpu.float_mode import separate_function
from nbtc.compiler.cpu.lowering import lowering
from nbtc.compiler.machine_code.split import shared_module
from nbtc.kernels.register_sums import V16
from nbtc.kernels.warps.float_code import W16, FloatCode, Label
from nbtc.kernels.warps.warp_floats import Codegen, Stage
from nbtc.kernels.warps.warp_operands import D8, OpaqueBuffer, WarpOperands
from nbtc.kernels.warps.warp_sums import FullWarpSums, LimitedWarpSums

P = I8.as_pointer()
VECTOR = 64  # bytes of a vector, and the alignment of records and images
LANES = 32
REGISTER = 4 * LANES  # bytes of one register of a warp


def place(v: VectorBuilder, size: int) -> Any:
    """Stack memory of the function that is being written."""
    with v.b.goto_entry_block():
        buffer = v.b.alloca(ir.ArrayType(I8, size))
        buffer.align = VECTOR
        return v.b.bitcast(buffer, P)


class RecordOperands(WarpOperands):
    """Decoded operands that live in the caller's records instead of on the stack and in registers."""

    def __init__(self, shape: FloatCode, v: VectorBuilder, a: Any, b: Any) -> None:
        self.record_a, self.record_b, self.used = a, b, 0
        super().__init__(shape, v)
        self.special_at = self.used

    def buffer(self, size: int) -> OpaqueBuffer:
        """The next part of A's record; a constant in place of a record that a function does not have."""
        at = self.used
        self.used += -(-size // VECTOR) * VECTOR
        place = self.v.at(self.record_a, at)
        return OpaqueBuffer(place, place)

    @property
    def size_a(self) -> int:
        """Bytes of a record of A; its last vector notes Inf and NaN."""
        return self.special_at + VECTOR

    def _parts_b(self) -> list[Label | int]:
        """What a record of B holds, a vector each: values by product, exponents by group."""
        return [label for slots in self._slots() for label in slots] + list(range(len(self.s.groups)))

    @property
    def size_b(self) -> int:
        """Bytes of a record of B: values, exponents, signs, nonzero bits, and the note of Inf and NaN."""
        return VECTOR * (len(self._parts_b()) + 3)

    def store_b(self, p: Any) -> None:
        """Decode B from its image into its record."""
        self.decode_b(p)
        found = [*self.b_values.values(), *(self.b_fields[g] for g in sorted(self.b_fields))]
        for n, x in enumerate([*found, self.b_signs, self.b_nonzero, self.special]):
            self.v.store(x, self.record_b, VECTOR, VECTOR * n)

    def load_b(self) -> None:
        """Find a decoded B in its record: values when they are asked for, the rest now."""
        v, parts = self.v, self._parts_b()
        self.places = {part: VECTOR * n for n, part in enumerate(parts)}
        self.load_values_again()
        self.b_fields = {
            g: v.load(self.record_b, self.s.exponents, VECTOR, self.places[g]) for g in range(len(self.s.groups))
        }
        end = VECTOR * len(parts)
        self.b_signs, self.b_nonzero = (v.load(self.record_b, W16, VECTOR, end + n) for n in (0, VECTOR))
        a = v.load(self.record_a, self.special.type, VECTOR, self.special_at)
        b = v.load(self.record_b, self.special.type, VECTOR, end + 2 * VECTOR)
        self.special = self.larger(a, b)

    def load_values_again(self) -> None:
        """From here on, values of B come from the record: kept, most would be stored, which costs more than loads."""
        kind = self.record_b.type
        same = ir.InlineAsm(ir.FunctionType(kind, [kind]), "", "=r,0", side_effect=True)
        self.b_values, self.now_b = {}, self.b.call(same, [self.record_b])

    def value_b(self, j: int, row: int, label: Label) -> Any:
        """An element of each column, from the record."""
        if label not in self.b_values:
            self.b_values[label] = self.v.load(self.now_b, D8, VECTOR, self.places[label])
        return self.b_values[label]


class CompleteRecords(RecordOperands):
    """Operands whose records are complete: nothing is decoded again."""

    def decode_a(self, p: Any, pairs: range) -> Iterator[None]:
        """A is there."""
        return iter(())

    def decode_b(self, p: Any) -> None:
        """B is found in its record."""
        self.load_b()


def _turned(v: VectorBuilder, x: list[Any]) -> list[Any]:
    """Sixteen lanes of four registers to four vectors of four lanes with their registers side by side."""
    order = [4 * g + t + 16 * r for g in (0, 1) for t in range(4) for r in (0, 1)]
    low, high = ([v.shuffle(x[n], x[n + 1], [8 * half + i for i in order]) for half in (0, 1)] for n in (0, 2))
    out = []
    for g in range(4):
        lanes = [8 * (g % 2) + 16 * k + 2 * t + r for t in range(4) for k in (0, 1) for r in (0, 1)]
        out.append(v.shuffle(low[g // 2], high[g // 2], lanes))
    return out


def _turned_back(v: VectorBuilder, x: list[Any]) -> list[Any]:
    """The inverse of `_turned`."""
    out = []
    for side in (0, 2):
        lanes = [16 * q + 4 * t + r + side for q in (0, 1) for t in range(4) for r in (0, 1)]
        pairs = [v.shuffle(x[g], x[g + 1], lanes) for g in (0, 2)]
        for r in (0, 1):
            rows = [16 * h + 8 * q + 2 * t + r for h in (0, 1) for q in (0, 1) for t in range(4)]
            out.append(v.shuffle(pairs[0], pairs[1], rows))
    return out


def _one_of(v: VectorBuilder, second: Any, p: Any, q: Any) -> Any:
    """The pointer p, or q, by numbers that LLVM can't tell are a choice.  It makes a branch of those, and computes what
    is stored only after it, far from the loads that this comes of."""
    b = v.b
    number = b.call(ir.InlineAsm(ir.FunctionType(I64, [I64]), "", "=r,0"), [b.zext(second, I64)])
    return v.at(p, b.mul(number, b.sub(b.ptrtoint(q, I64), b.ptrtoint(p, I64))))


class Core(Codegen):
    """The sums of decoded operands; C and D are moved by whole vectors of [register][lane] images."""

    rate = 6  # nothing is decoded
    operands: CompleteRecords

    def __init__(self, shape: FloatCode, v: VectorBuilder, numbers: list[Any], operands: CompleteRecords) -> None:
        self.s, self.v, self.b, self.operands, self.m = shape, v, v.b, operands, lowering(v)
        self.sums = (LimitedWarpSums if shape.limited_range else FullWarpSums)(shape, v, operands, *numbers)
        self.peaks, self.accs, self.begun, self.totals = {}, {}, {}, {}
        self.loaded: dict[int, list[Any]] = {}
        self.finished: dict[int, Any] = {}

    def _sum(self, stage: Stage, others: Iterator[None]) -> None:
        self.operands.load_values_again()
        super()._sum(stage, others)

    def load_c(self, j: int, c: Any) -> Any:
        if self.s.f16_acc:
            return super().load_c(j, c)
        half = j // 4
        if half not in self.loaded:
            images = [self.v.load(c, W16, VECTOR, REGISTER * r + VECTOR * half) for r in range(4)]
            self.loaded[half] = _turned(self.v, images)
        return self.v.bits(self.loaded[half][j % 4], V16)

    def store_d(self, j: int, d: Any, x: Any) -> None:
        """Kept until `store`: D may lie where C does, which a fallback reads again."""
        self.finished[j] = x

    def store(self, d: Any) -> None:
        """All of D."""
        if self.s.f16_acc:
            for j, x in self.finished.items():
                super().store_d(j, d, x)
            return
        for half in (0, 1):
            rows = [self.v.bits(self.finished[4 * half + n], W16) for n in range(4)]
            for r, y in enumerate(_turned_back(self.v, rows)):
                self.v.store(y, d, VECTOR, REGISTER * r + VECTOR * half)


class Split:
    """The functions of a dense floating product.

    decode_a(image, record), decode_b(image, record), core(record of A, record of B, image of C, image of D), which
    returns whether a fallback is needed, and then leaves D as it was.
    """

    def __init__(self, shape: FloatCode, numbers: tuple[int, int]) -> None:
        self.shape, self.numbers = shape, numbers
        f, v = separate_function(ir.Module(), "measured", ir.VoidType(), [P, P])
        measured = RecordOperands(shape, v, *f.args)
        self.size_a, self.size_b = measured.size_a, measured.size_b

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
        key = self.operand_key if part != "core" else f"{self.operand_key}_{self.numbers[0]}_{self.numbers[1] % 2**32}"
        return module.globals.get(f"nbtc_{part}_{key}") or getattr(self, f"_{part}")(module, f"nbtc_{part}_{key}")

    def decode(self, v: VectorBuilder, side: int, image: Any, record: Any) -> None:
        """The operand on a side (0: A, 1: B) into its record."""
        v.b.call(self._named(v.b.module, ("decode_a", "decode_b")[side]), [image, record])

    def core(self, v: VectorBuilder, records: Any, c: Any, d: Any) -> Any:
        """The sums, in code that rounds down (`float_mode.DOWN`); i1: needs a fallback."""
        return v.b.call(self._named(v.b.module, "core"), [*records, c, d])

    def _decode_a(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, ir.VoidType(), [P, P])
        operands = RecordOperands(self.shape, v, f.args[1], None)
        for _ in operands.decode_a(f.args[0], range(8)):
            pass
        v.store(operands.special, f.args[1], VECTOR, operands.special_at)
        v.b.ret_void()
        return f

    def _decode_b(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, ir.VoidType(), [P, P])
        RecordOperands(self.shape, v, f.args[1], f.args[1]).store_b(f.args[0])
        v.b.ret_void()
        return f

    def _core(self, module: ir.Module, name: str) -> Any:
        f, v = separate_function(module, name, I1, [P] * 4)
        operands = CompleteRecords(self.shape, v, f.args[0], f.args[1])
        numbers = [v.const(I32, n) for n in self.numbers]
        core = Core(self.shape, v, numbers, operands)
        bad = core.emit(*f.args)
        core.store(_one_of(v, bad, f.args[-1], place(v, REGISTER * self.shape.images[-1])))
        v.b.ret(bad)
        return f
