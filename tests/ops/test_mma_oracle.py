"""Every mma.sync form on register images, on every architecture that has it, against the exact oracle."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

from nbtc.formats.arrays import from_bits, to_bits
from nbtc.instructions import Instruction, instructions
from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import Case
from nbtc.testing.strategies import operands, strategies

NUMERICS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")
FORMS = [i for i in instructions(family="mma") if i.executable and i.c.format == i.d.format]


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
