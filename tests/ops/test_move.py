"""ldmatrix, stmatrix and movmatrix: recordings, the rules spelled out lane by lane, and errors that touch nothing."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nbtc.errors import AlignmentError, BoundsError, FormatError, NbtcError, OptionError, ShapeError
from nbtc.ptx import ldmatrix, movmatrix, stmatrix

COMMITTED = Path(__file__).parents[1] / "golden" / "moves.npz"
GOLDEN = Path(os.environ["NBTC_GOLDEN"]) / "ldmatrix.npz" if "NBTC_GOLDEN" in os.environ else COMMITTED


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("num", [1, 2, 4])
def test_recordings(num: int, trans: bool) -> None:
    form = f"x{num}{'_trans' if trans else ''}"
    with np.load(GOLDEN) as z:
        smem, addr, want = (z[f"ldm_{form}__{x}"] for x in ("smem", "addr", "out"))
        assert (ldmatrix(smem, addr, num, trans) == want).all()
        assert (ldmatrix(smem[0], addr[0].astype(np.int64), num=num, trans=trans) == want[0]).all()
        smem, addr, regs, want = (z[f"stm_{form}__{x}"] for x in ("smem", "addr", "regs", "out"))
        stmatrix(smem, addr, regs, num, trans)
        assert (smem == want).all()


def test_movmatrix() -> None:
    with np.load(GOLDEN) as z:
        assert (movmatrix(z["movmatrix__in"]) == z["movmatrix__out"]).all()


def memory(seed: int = 1, size: int = 1024) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size, dtype=np.uint8), 16 * rng.permutation(size // 16)[:32]


def test_byte_matrices() -> None:
    """m16n16 b8: lane (g, t) gets bytes g and g + 8 of the rows 4t .. 4t + 3."""
    smem, addr = memory()
    got = ldmatrix(smem, addr, 2, True, "m16n16", "b8").view(np.uint8).reshape(32, 2, 2, 4)
    for lane in range(32):
        g, t = divmod(lane, 4)
        for j in range(2):
            for high in range(2):
                for k in range(4):
                    assert got[lane, j, high, k] == smem[addr[16 * j + 4 * t + k] + g + 8 * high]


@pytest.mark.parametrize(("type", "bits"), [("b8x16.b4x16_p64", 4), ("b8x16.b6x16_p32", 6)])
@pytest.mark.parametrize("shape", ["m8n16", "m16n16"])
def test_packed_rows(shape: str, type: str, bits: int) -> None:
    """16 elements of 4 or 6 bits at the start of each row, low ones first, become bytes."""
    smem, addr = memory(2)
    wide = shape == "m16n16"
    got = ldmatrix(smem, addr, 2, wide, shape, type).view(np.uint8).reshape(32, -1)
    rows = [int.from_bytes(smem[a : a + 16].tobytes(), "little") for a in addr]
    for lane in range(32):
        g, t = divmod(lane, 4)
        for slot in range(got.shape[1]):
            j, i = divmod(slot, 8 if wide else 4)
            row, col = (16 * j + 4 * t + i % 4, g + 8 * (i // 4)) if wide else (8 * j + g, 4 * t + i)
            assert got[lane, slot] == rows[row] >> (bits * col) & ((1 << bits) - 1)


def test_byte_store() -> None:
    """m16n8 b8: byte k of lane (g, t) is element (g + 8 * (k >> 1), 2t + (k & 1)), stored transposed."""
    smem, addr = memory(3)
    regs = np.random.default_rng(4).integers(0, 1 << 32, (32, 4), dtype=np.uint32)
    want = smem.copy()
    for lane in range(32):
        g, t = divmod(lane, 4)
        for j in range(4):
            for k in range(4):
                want[addr[8 * j + 2 * t + (k & 1)] + g + 8 * (k >> 1)] = regs[lane, j] >> (8 * k) & 255
    stmatrix(smem, addr, regs, 4, True, "m16n8", "b8")
    assert (smem == want).all()


def test_unused_addresses_are_ignored() -> None:
    smem, addr = memory(5)
    want = ldmatrix(smem, addr)
    addr[8:] = -3
    assert (ldmatrix(smem, addr) == want).all()


def test_batches() -> None:
    smem = np.random.default_rng(6).integers(0, 256, (4, 512), dtype=np.uint8)
    addr = 16 * np.arange(32)
    got = ldmatrix(smem, addr, 4)
    assert all((got[i] == ldmatrix(smem[i], addr, 4)).all() for i in range(4))
    back = np.zeros((512, 4), np.uint8).T  # strided memory is written in place, too
    stmatrix(back, addr, got, 4)
    assert (back == smem).all()


SMEM, ADDR, REGS = np.zeros(512, np.uint8), 16 * np.arange(32), np.ones((32, 1), np.uint32)
ERRORS: list[tuple[type[NbtcError], Callable[[], Any]]] = [
    (AlignmentError, lambda: ldmatrix(SMEM, ADDR + 8)),
    (BoundsError, lambda: ldmatrix(SMEM, ADDR + 512)),
    (BoundsError, lambda: ldmatrix(SMEM, ADDR - 16)),
    (FormatError, lambda: ldmatrix(SMEM.view(np.uint32), ADDR)),
    (FormatError, lambda: ldmatrix(SMEM, ADDR.astype(np.float64))),
    (ShapeError, lambda: ldmatrix(SMEM, ADDR[:8])),
    (ShapeError, lambda: ldmatrix(np.zeros((2, 512), np.uint8), np.zeros((3, 32), np.int64))),
    (OptionError, lambda: ldmatrix(SMEM, ADDR, 3)),
    (OptionError, lambda: ldmatrix(SMEM, ADDR, 1, False, "m16n16", "b8")),
    (OptionError, lambda: ldmatrix(SMEM, ADDR, threads=-1)),
    (AlignmentError, lambda: stmatrix(SMEM, ADDR + 1, REGS)),
    (BoundsError, lambda: stmatrix(SMEM, ADDR + 496, REGS)),
    (ShapeError, lambda: stmatrix(SMEM, ADDR, REGS, 2)),
    (ShapeError, lambda: stmatrix(SMEM, ADDR, np.ones((2, 32, 1), np.uint32))),
    (FormatError, lambda: stmatrix(SMEM, ADDR, REGS.astype(np.int32))),
    (FormatError, lambda: stmatrix(SMEM.tolist(), ADDR, REGS)),
    (OptionError, lambda: stmatrix(SMEM, ADDR, REGS, 1, False, "m16n8", "b8")),
    (FormatError, lambda: movmatrix(np.zeros(32, np.int64))),
    (ShapeError, lambda: movmatrix(np.zeros((32, 1), np.uint32))),
]


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors_touch_nothing(n: int) -> None:
    kind, call = ERRORS[n]
    with pytest.raises(kind) as caught:
        call()
    assert len(str(caught.value)) >= 40 and not SMEM.any()
