"""Every mma.sync form on register images, on every architecture that has it, against the exact oracle."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from nbtc.formats.arrays import from_bits, to_bits
from nbtc.instructions import Instruction, instructions
from nbtc.isa.archs import arch as arch_row
from nbtc.numerics import models
from nbtc.numerics.exact import Oracle
from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import Case
from nbtc.testing.strategies import operands, strategies

NUMERICS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
FORMS = [i for i in instructions(family="mma") if i.executable and not i.row.scale and i.c.format == i.d.format]


def case_of(i: Instruction, arch: str) -> Case:
    """The arithmetic of a form."""
    quad = i.a.products == 4
    how = {"saturate": i.row.saturate, "rounding": i.row.rounding or "rn", "op": i.row.op or "xor"}
    return Case(arch, "quad" if quad else "mma", i.a.format.name, i.b.format.name, i.d.format.name, i.shape[2], **how)


@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
@pytest.mark.parametrize("kind", sorted({i.a.format.name for i in FORMS}))
def test_forms(kind: str) -> None:
    """Four strategies a form and architecture, a warp each; a quad's four products have a strategy each."""
    count = 0
    for i in (f for f in FORMS if f.a.format.name == kind):
        for arch in (a for a in NUMERICS if a in i.archs):
            case = case_of(i, arch)
            rng = np.random.default_rng(zlib.crc32(f"{i.mnemonic} {arch}".encode()))
            names = strategies(i.a.format)
            chosen = [names[int(n)] for n in rng.permutation(max(4, len(names)))[:4] % len(names)]
            m, n, k = i.d.rows, i.d.cols, i.shape[2]
            parts = [operands(rng, s, (m, n, k), *case.formats) for s in chosen]
            bits = [
                np.stack(p).astype(f.bits_dtype) for p, f in zip(zip(*parts, strict=True), case.formats, strict=True)
            ]
            a, b, c = (from_bits(x, f) for x, f in zip(bits, case.formats, strict=True))
            d = i.unpack_d(i(i.pack_a(a), i.pack_b(b), i.pack_c(c), arch=arch))
            oracle = case.oracle()
            want = np.stack([oracle.matrix(*x) for x in zip(*bits, strict=True)])
            assert_bits_equal(
                to_bits(d), want, case.acc if case.acc != "s32" else None, f"{i.mnemonic} {arch} {chosen}"
            )
            count += want.size
    assert count >= 4 * 64


MIXED = [
    i for i in (*instructions(family="mma"), *instructions(family="wmma.mma"))
    if i.c.format.name == "f16" != i.d.format.name and i.shape in ((8, 8, 4), (16, 16, 16))
]  # fmt: skip


@pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
def test_f16_accumulators_of_f32_results() -> None:
    """Volta aligns C as the f16 it is, subnormals too; what came later converts it to f32 first."""
    words = {f.name: f for i in MIXED for f in (i.a.format, i.d.format)}
    f16, f32 = words["f16"], words["f32"]
    values = np.array([2.0**-24, -(2.0**-23), 2.0**-16, 2.0**-14, 1.5, -0.0], np.float16).view(np.uint16)
    count, differing = 0, 0
    for i in MIXED:
        for arch in (a for a in ("sm_70", "sm_72", "sm_75", "sm_80", "sm_90") if a in i.archs):
            row = models.model(arch_row(arch).numerics, i.row.unit, f16)
            oracle = Oracle(row, f16, f16, f32, i.shape[2], c=f16)
            converted = Oracle(replace(row, c_as_given=False), f16, f16, f32, i.shape[2], c=f16)
            for c in values.tolist():  # one value an operand: where its elements lie does not matter
                a, b = (int(np.float16(x).view(np.uint16)) for x in (2.0**-20, 1.5 * 2.0**-20))
                images = [np.full((32, o.registers), x * 0x10001, np.uint32) for o, x in ((i.a, a), (i.b, b), (i.c, c))]
                k = i.shape[2]
                want = oracle.dot([a] * k, [b] * k, c)
                assert (i(*images, arch=arch) == want).all(), (i.mnemonic, arch, hex(c))
                differing += want != converted.dot([a] * k, [b] * k, c)
                count += 1
            if i.shape[2] == 4 and arch != "sm_80" and arch != "sm_90":
                images[2][:] = 0x10001
                assert (i(*images, arch=arch).view(np.float32) == 2.0**-24).all()
    assert count > 100 and differing > 20
