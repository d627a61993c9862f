"""AVX-512's fused micro-kernels where there is no AVX-512: the same code, its own instructions in those of AVX2.

An emitter that is told of a processor with AVX-512 writes vectors of 512 bits, which LLVM compiles for any processor,
and a few instructions by their names.  `Builder` has those in other words: what rounds otherwise than the mode says
changes the mode for its one instruction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from llvmlite import ir

from nbtc.compiler import threads
from nbtc.compiler.builder import F32, F64, I1, I8, I16, I32, TO_NEAREST, VectorBuilder, vector
from nbtc.compiler.cpu.lowering import Avx2
from nbtc.compiler.cpu.plain_lowering import Lowering
from nbtc.compiler.cpu.processors import Processor
from nbtc.compiler.machine_code import emitted
from nbtc.compiler.machine_code.made_once import MadeOnce
from nbtc.gemm import repeated
from nbtc.gemm.engines import lone_block
from nbtc.kernels import repeated as repeated_kernels
from nbtc.kernels.panels import panel_code, panel_drivers, panel_pack, rounding

HALF = vector(F32, 8)
NEAREST, DOWN, ZERO = 0x1F80, 0x3F80, 0x7F80  # of the control word, MXCSR


class Builder(VectorBuilder):
    """Words for AVX-512 in instructions of AVX2."""

    def _in_mode(self, mode: int, text: str, *args: Any) -> Any:
        """Halves by one instruction of AVX2 in a rounding mode, between others in the mode that rounds down."""
        words = []
        with self.b.goto_entry_block():
            for word in (mode, DOWN):
                words.append(self.b.alloca(I32))
                self.b.store(ir.Constant(I32, word), words[-1])
        places = [self.b.bitcast(x, I32.as_pointer()) for x in words]
        kind = ir.FunctionType(HALF, [*(x.type for x in places), *(vector(x.type.element, 8) for x in args)])
        constraints = ",".join(["=&x", "*m", "*m", *["x"] * len(args)])
        asm = ir.InlineAsm(kind, f"ldmxcsr $1; {text}; ldmxcsr $2", constraints, side_effect=True)
        halves = []
        for at in (0, 8):
            parts = [self.shuffle(x, x, list(range(at, at + 8))) for x in args]
            attributes = dict.fromkeys((0, 1), ("elementtype",))
            halves.append(self.b.call(asm, [*places, *parts], arg_attrs=attributes))
        return self.joined(halves)

    def fma512(self, a: Any, b: Any, c: Any, rounding: int) -> Any:
        assert rounding == TO_NEAREST
        return self._in_mode(NEAREST, "vmovaps $3, $0; vfmadd213ps $5, $4, $0", a, b, c)

    def to_float_rz(self, x: Any) -> Any:
        return self._in_mode(ZERO, "vcvtdq2ps $3, $0", x)

    def round_to_f16(self, x: Any, *, native: bool) -> Any:
        if x.type.count < 16:
            return super().round_to_f16(x, native=native)
        halves = [self.shuffle(x, x, list(range(at, at + 8))) for at in (0, 8)]
        return self.joined([super(Builder, self).round_to_f16(half, native=native) for half in halves])

    def scalef512(self, x: Any, e: Any) -> Any:
        """By a product in f64, which is exact, and one conversion in the mode."""
        b, wide = self.b, vector(F64, x.type.count)
        field = b.shl(b.sext(b.fptosi(e, vector(I32, x.type.count)), _LONG), self.const(_LONG, 52))
        power = self.bits(b.add(field, self.const(_LONG, 1023 << 52)), wide)
        return b.fptrunc(b.fmul(b.fpext(x, wide), power), x.type)

    def unknown_mask(self, bits: int, count: int) -> Any:
        return ir.Constant(vector(I1, count), [bits >> n & 1 for n in range(count)])

    def or_where(self, mask: Any, x: Any, y: Any) -> Any:
        return self.b.select(mask, self.b.or_(x, y), x)

    def averages_where(self, mask: Any, x: Any, y: Any) -> Any:
        b, wide = self.b, vector(I32, x.type.count)
        mean = b.lshr(b.add(b.add(b.zext(x, wide), b.zext(y, wide)), self.const(wide, 1)), self.const(wide, 1))
        return b.select(mask, b.trunc(mean, x.type), self.const(x.type, 0))

    def difference(self, a: Any, b: Any) -> Any:
        return self._in_mode(NEAREST, "vsubps $4, $3, $0", a, b)

    def _products(self, total: Any, x: Any, y: Any, element: ir.Type, unsigned: bool) -> Any:
        b, n = self.b, 32 // element.width
        parts, wide = vector(element, 16 * n), vector(I32, 16 * n)
        x, y = self.bits(x, parts), self.bits(y, parts)
        each = b.mul(b.zext(x, wide) if unsigned else b.sext(x, wide), b.sext(y, wide))
        for i in range(n):
            total = b.add(total, self.shuffle(each, each, list(range(i, 16 * n, n))))
        return total

    def add_octets(self, total: Any, unsigned: Any, signed: Any) -> Any:
        return self._products(total, unsigned, signed, I8, unsigned=True)

    def add_halves(self, total: Any, x: Any, y: Any) -> Any:
        return self._products(total, x, y, I16, unsigned=False)

    def broadcast512(self, p: Any, element: Any) -> Any:
        size = 8 if element == F64 else 4
        return self.splat(self.load(p, element, size), 64 // size)


_LONG = vector(ir.IntType(64), 16)


def _unordered(_: Lowering, xs: list[Any]) -> list[Any]:
    return xs


@contextmanager
def kernels_of(row: Processor) -> Iterator[None]:
    """Inside, large fused products take the kernels of a processor with AVX-512, whatever the host is."""
    # all that remember addresses of code, which ends with `_LOADED`
    caches: tuple[Any, ...] = (
        panel_code.packer, panel_code._sums, panel_code.form, lone_block.piece, panel_drivers.drivers,
        repeated_kernels.repeated, repeated,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        for module in (panel_code, panel_pack):
            patch.setattr(module, "host_processor", lambda: row)
        for module in (emitted, rounding):
            patch.setattr(module, "VectorBuilder", Builder)
        for kind in (Lowering, Avx2):
            patch.setattr(kind, "in_order", _unordered)
        patch.setattr(emitted, "_LOADED", MadeOnce())
        patch.setattr(threads, "allowed_processors", lambda: 1)  # no other thread makes code that outlives this
        patch.setattr(emitted, "CODE_LEVEL", 1)  # it runs once
        patch.setattr(panel_code, "LEVEL", None)
        patch.setenv("NBTC_CACHE_DIR", "")
        try:
            for cache in caches:
                cache.cache_clear()
            yield
        finally:
            for cache in caches:
                cache.cache_clear()
