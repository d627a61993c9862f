"""fp8 products of `mma.sync` whose C has registers of D, as an H200 executes them (golden/overlaps.npz).

Where fp8 products are f16 ones, instructions of their own add C, one for each register, and ptxas makes no copy of C
before them (CUDA 13.0): what D replaces is not what C had.
"""

from pathlib import Path

import numpy as np
import pytest

import nbtc
from nbtc.testing import assert_bits_equal

GOLDEN = Path(__file__).parents[2] / "golden" / "overlaps.npz"
LANES, REGISTERS = 32, 14
ORDERED = 0x44444444  # metadata: the first two of each four
CASES = {  # registers of D, A, B and C
    "one": ("mma.sync.aligned.m16n8k16.row.col.f32.e4m3.e4m3.f32", (0, 1, 2, 3), (4, 5), (6,), (7, 0, 8, 9)),
    "chain": ("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32", (0, 1, 2, 3), (4, 5, 6, 7), (8, 9), (3, 0, 1, 2)),
    "twice": ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32", (0, 1, 2, 3), (0, 1, 2, 3), (1, 9), (8, 0, 0, 2)),
    "halves": ("mma.sync.aligned.m16n8k32.row.col.f16.e4m3.e5m2.f16", (0, 1), (4, 5, 6, 7), (8, 9), (1, 0)),
    "factors": ("mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16", (0, 1), (0, 1), (1,), (2, 0)),
    "sparse": (
        "mma.sp.sync.aligned.m16n8k64.row.col.f32.e4m3.e4m3.f32",
        (0, 1, 2, 3), (4, 5, 6, 7), (8, 9, 10, 11), (12, 0, 1, 2),
    ),
    "later": ("mma.sync.aligned.m16n8k16.row.col.f16.e4m3.e4m3.f16", (0, 1), (4, 5), (6,), (1, 2)),
}  # fmt: skip


def text(case):
    """A kernel of a warp: loads registers, multiplies, stores D."""
    mnemonic, *operands = CASES[case]
    lists = ["{" + ", ".join(f"%r{n}" for n in numbers) + "}" for numbers in operands]
    sparse = ", %meta, 0x0" if "mma.sp" in mnemonic else ""
    lines = [
        ".version 8.7", ".target sm_90", ".address_size 64", ".visible .entry k(.param .u64 X, .param .u64 Y)", "{",
        f".reg .b32 %r<{REGISTERS}>, %t, %meta;", ".reg .b64 %x, %y;", "mov.u32 %t, %tid.x;",
        "ld.param.u64 %x, [X];", "ld.param.u64 %y, [Y];", f"mov.b32 %meta, {ORDERED};",
        "mad.wide.u32 %x, %t, 4, %x;", "mad.wide.u32 %y, %t, 4, %y;",
        *(f"ld.global.b32 %r{n}, [%x+{4 * LANES * n}];" for n in range(REGISTERS)),
        f"{mnemonic} {', '.join(lists)}{sparse};",
        *(f"st.global.b32 [%y+{4 * LANES * n}], %r{n};" for n in operands[0]), "ret;", "}",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def registers():
    """Words of all registers, [register][lane], without Inf and NaN in any format."""
    numbers = np.arange(1, REGISTERS * LANES + 1, dtype=np.uint64)
    words = (numbers * np.uint64(0x9E3779B1) >> np.uint64(3)).astype(np.uint32) & np.uint32(0xB7B7B7B7)
    return words.reshape(REGISTERS, LANES)


@pytest.mark.parametrize("case", CASES)
def test_as_recorded(case):
    with np.load(GOLDEN) as file:
        recorded = file[case]
    found = np.zeros_like(recorded)
    nbtc.load(text(case))["k"][1, LANES](registers(), found)
    assert_bits_equal(found, recorded)


@pytest.mark.parametrize("case", CASES)
def test_which_products_differ_from_those_of_a_copy(case):
    """All but one case: C in registers of its own would give other bits."""
    mnemonic, d, *read = CASES[case]
    a, b, c = (np.ascontiguousarray(registers()[list(numbers)].T) for numbers in read)
    meta = np.full(LANES, ORDERED, np.uint32) if "mma.sp" in mnemonic else None
    copied = nbtc.instruction(mnemonic)(a, b, c, meta).T
    with np.load(GOLDEN) as file:
        assert (file[case] == copied).all() == (case == "later")
    assert len(d) == len(copied)
