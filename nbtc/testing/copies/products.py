"""Products of a warpgroup among the moves: `wgmma` reads what copies of any kind brought."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from nbtc import ptx
from nbtc.fragments.smem_descriptors import SWIZZLES, Descriptor
from nbtc.instructions import Instruction, instructions
from nbtc.testing.copies.memories import IMAGE, Memories, Move
from nbtc.testing.warpgroup_programs import GROUP, NEVER, STEPS, Product, held, result

COLUMNS = (8, 16, 24)


@cache
def _forms() -> tuple[Instruction, ...]:
    found = instructions(family="wgmma.mma_async", arch="sm_90")
    return tuple(f for f in found if f.executable and f.shape and f.shape[1] in COLUMNS)


@dataclass(frozen=True)
class Multiply(Move):
    """D = A * B of two tiles, whose words are written register by register, each of all threads."""

    product: Product | None = None

    @property
    def of(self) -> Product:
        """The product."""
        if self.product is None:
            raise LookupError("no product")
        return self.product

    def lines(self) -> list[str]:
        """The product in a scope of its own; all warps take part."""
        d = result(self.of.form)
        count, kind = d.registers, "f32" if d.format.name == "f32" else "b32"
        zero = "0f00000000" if kind == "f32" else "0"
        place = f"mad.lo.u32 %s, %t, 4, {self.written[0]}; add.u32 %s, %s, %shared;"
        return [
            f"{{ .reg .{kind} %d0_<{count}>;", *(f"mov.{kind} %d0_{n}, {zero};" for n in range(count)),
            "wgmma.fence.sync.aligned;", *self.of.lines(), "wgmma.commit_group.sync.aligned;",
            "wgmma.wait_group.sync.aligned 0;", place,
            *(f"st.shared.{kind} [%s+{4 * GROUP * n}], %d0_{n};" for n in range(count)), "}",
        ]  # fmt: skip

    def apply(self, m: Memories) -> None:
        """By the function on arrays."""
        x, (at, size) = self.of, self.written
        zero = np.zeros((len(m.shared), GROUP, result(x.form).registers), np.uint32)
        a = x.a.encode() if isinstance(x.a, Descriptor) else x.a
        d = ptx.wgmma(x.form.mnemonic, zero, a, x.b.encode(), m.shared, threads=1, **x.keywords)
        words = np.ascontiguousarray(d.transpose(0, 2, 1)).reshape(len(d), -1)
        m.shared[:, at : at + size] = words.view(np.uint8)


def drawn(rng: np.random.Generator) -> tuple[Product, tuple[int, int], int]:
    """A product, the line of shared memory in which all that it reads lies, and the bytes of D."""
    forms = _forms()
    form = forms[rng.integers(len(forms))]
    trans = tuple(int(rng.integers(2)) for _ in form.row.trans)
    major = {n: "mn" if x else "k" for n, x in zip(form.row.trans, trans, strict=True)}
    a, b, d = held(form)
    while True:
        tiles, low, high = [], IMAGE, 0
        for name, fmt, rows, k in (("a", a.format, a.rows, a.cols), ("b", b.format, b.cols, b.rows)):
            start, (leading, stride) = 128 * int(rng.integers(0, IMAGE // 128)), rng.choice(STEPS, 2)
            tile = Descriptor(start, int(leading), int(stride), 0, str(rng.choice(list(SWIZZLES))))
            at = tile.address(np.arange(rows)[:, None], np.arange(k), fmt, major.get(name, "k"))
            low, high = min(low, int(at.min()) & -16), max(high, int(at.max()) + 16)
            tiles.append(tile)
        if high <= IMAGE and high - low <= IMAGE // 3:
            scales = tuple(int(rng.choice((1, -1))) for _ in form.row.scales)
            product = Product(form, 0, tiles[0], tiles[1], NEVER, 0, scales, trans)
            return product, (low, high - low), 4 * GROUP * d.registers
