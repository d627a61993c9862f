"""mma.sync, mma.sp and m8n8k4 on register images against recordings; batches, errors, compiled callers."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from nbtc import ptx
from nbtc.errors import FormatError, MetadataError, OptionError, ParseError, ShapeError, UnsupportedInstructionError
from nbtc.formats.table import FORMATS
from nbtc.isa.parse import row
from nbtc.numerics import models
from nbtc.ops.mma import product as mma

GOLDEN = Path(__file__).parents[1] / "golden" / "registers.npz"
F16 = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
SPARSE = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
QUAD = "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f16"
Words = NDArray[np.uint32]


def spelled(op: str) -> str:
    """A rounding modifier after the types."""
    for r in ("rn", "rz", "rm", "rp"):
        if f".{r}.f64" in op:
            return op.replace(f".{r}.f64", ".f64", 1) + f".{r}"
    return op


@cache
def recordings() -> dict[str, list[tuple[str, dict[str, Any], dict[str, Words]]]]:
    """By kind: (name, form, operands) of the committed slice, or of everything where NBTC_GOLDEN names a directory."""
    found: dict[str, list[tuple[str, dict[str, Any], dict[str, Words]]]] = {"mma": [], "mma884": [], "mma.sp": []}
    for file, index in files():
        with np.load(file) as z:
            for run in sorted({key.rsplit("__", 1)[0] for key in z.files}):
                form = index.get(run.split("__")[0])
                if form is not None and form["kind"] in found:
                    found[form["kind"]].append(
                        (run, form, {x: z[f"{run}__{x}"] for x in "ABCDE" if f"{run}__{x}" in z})
                    )
    return found


def files() -> Iterator[tuple[Path, dict[str, dict[str, Any]]]]:
    if "NBTC_GOLDEN" in os.environ:
        folder = Path(os.environ["NBTC_GOLDEN"])
        index = json.loads((folder / "index.json").read_text())
        yield from ((folder / name, index) for name in sorted({f["file"] for f in index.values()}))
    else:
        with np.load(GOLDEN) as z:
            yield GOLDEN, json.loads(z["index"].tobytes())


def run(form: dict[str, Any], x: dict[str, Words], **more: Any) -> Words:
    if form["sparse"]:
        return ptx.mma_sp(form["op"], x["A"], x["B"], x["C"], x["E"], form["sel"], **more)
    return ptx.mma_sync(spelled(form["op"]), x["A"], x["B"], x["C"], **more)


@pytest.mark.parametrize(("kind", "forms"), [("mma", 98), ("mma884", 12), ("mma.sp", 152)])
def test_recordings(kind: str, forms: int) -> None:
    seen = set()
    for name, form, x in recordings()[kind]:
        got = run(form, x)
        assert got.dtype == np.uint32 and got.shape == x["D"].shape
        assert (got == x["D"]).all(), f"{name}: {np.argwhere(got != x['D'])[:3].tolist()}"
        seen.add(name.split("__")[0])
    assert len(seen) == forms


@pytest.mark.parametrize("mnemonic", [F16, QUAD, "mma.sync.aligned.m8n8k16.row.col.s32.s8.u8.s32"])
def test_batches_are_warp_by_warp(mnemonic: str) -> None:
    """Any leading axes, broadcast, strided or empty, on any number of threads."""
    rng = np.random.default_rng(3)
    r = row(mnemonic)
    a, b, c = (rng.integers(0, 1 << 32, (5, 3, 32, o.registers), dtype=np.uint32) for o in (r.a, r.b, r.c) if o)
    d = ptx.mma_sync(mnemonic, a, b, c)
    for i in np.ndindex(5, 3):
        assert (ptx.mma_sync(mnemonic, a[i], b[i], c[i]) == d[i]).all()
    assert (ptx.mma_sync(mnemonic, a, b, c, threads=3) == d).all()
    assert (ptx.mma_sync(mnemonic, a[::-2, ::2], b[::-2, ::2], c[::-2, ::2]) == d[::-2, ::2]).all()
    shared = ptx.mma_sync(mnemonic, a[2, 1], b[:, :1], c)
    assert (shared[4, 2] == ptx.mma_sync(mnemonic, a[2, 1], b[4, 0], c[4, 2])).all() and shared.shape == d.shape
    assert ptx.mma_sync(mnemonic, a[:0], b[:0], c[:0]).shape == (0, 3, *d.shape[2:])


def test_arguments_are_not_written() -> None:
    a = np.full((32, 4), 0x3C003C00, np.uint32)
    b, c = a[:, :2].copy(), np.zeros((32, 4), np.uint32)
    for x in (a, b, c):
        x.flags.writeable = False
    assert (ptx.mma_sync(F16, a, b, c).view(np.float32) == 16).all()


def zeros(mnemonic: str) -> list[Words]:
    r = row(mnemonic)
    return [np.zeros((32, o.registers), np.uint32) for o in (r.a, r.b, r.c) if o is not None]


ERRORS = [
    (ShapeError, lambda a, b, c: ptx.mma_sync(F16, a[:, :2], b, c)),
    (ShapeError, lambda a, b, c: ptx.mma_sync(F16, a[:31], b, c)),
    (ShapeError, lambda a, b, c: ptx.mma_sync(F16, np.stack([a] * 2), np.stack([b] * 3), c)),
    (FormatError, lambda a, b, c: ptx.mma_sync(F16, a.view(np.float32), b, c)),
    (FormatError, lambda a, b, c: ptx.mma_sync(F16, a, b, c.astype(np.int64))),
    (OptionError, lambda a, b, c: ptx.mma_sync(F16, a, b, c, threads=0)),
    (UnsupportedInstructionError, lambda a, b, c: ptx.mma_sync(F16, a, b, c, arch="sm_75")),
    (UnsupportedInstructionError, lambda a, b, c: ptx.mma_sync(SPARSE, a, b, c)),
    (ParseError, lambda a, b, c: ptx.mma_sync(F16.replace("f32.f16", "bf16.f16"), a, b, c)),
    (MetadataError, lambda a, b, c: ptx.mma_sp(SPARSE, b, b, c, np.zeros(32, np.uint32), selector=4)),
    (MetadataError, lambda a, b, c: ptx.mma_sp(SPARSE, b, b, c, np.zeros(32, np.uint32), strict=True)),
    (MetadataError, lambda a, b, c: mma.execute(row(SPARSE), b, b, c)),
    (MetadataError, lambda a, b, c: mma.execute(row(F16), a, b, c, meta=np.zeros(32, np.uint32))),
    (OptionError, lambda a, b, c: mma.execute(row(F16), a, b, c, selector=1)),
    (FormatError, lambda a, b, c: ptx.mma_sp(SPARSE, b, b, c, np.zeros(32, np.int64))),
    (ShapeError, lambda a, b, c: ptx.mma_sp(SPARSE, b, b, c, np.zeros(31, np.uint32))),
    (UnsupportedInstructionError, lambda a, b, c: ptx.wmma_mma(F16, a, b, c)),
    (UnsupportedInstructionError, lambda a, b, c: mma.execute(row("movmatrix.sync.aligned.m8n8.trans.b16"), a, b, c)),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors(n: int) -> None:
    kind, call = ERRORS[n]
    with pytest.raises(kind) as caught:
        call(*zeros(F16))
    assert isinstance(caught.value, ValueError | TypeError) and len(str(caught.value)) >= 40


def test_forms_without_recorded_arithmetic() -> None:
    name = "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.kind::f8f6f4.f32.e2m1.e2m1.f32"
    with pytest.raises(UnsupportedInstructionError, match="no recorded arithmetic"):
        ptx.mma_sp(name, *zeros(name), np.zeros(32, np.uint32), arch="sm_120")


def test_illegal_metadata_computes_unless_strict() -> None:
    """Nibble 0b0000 takes column 0 twice."""
    a, b = (np.full((32, 2), 0x3C003C00, np.uint32) for _ in range(2))
    c, e = np.zeros((32, 4), np.uint32), np.zeros(32, np.uint32)
    assert (ptx.mma_sp(SPARSE, a, b, c, e).view(np.float32) == 8).all()
    legal = np.full(32, 0x44444444, np.uint32)
    assert (ptx.mma_sp(SPARSE, a, b, c, legal, strict=True).view(np.float32) == 8).all()
    with pytest.raises(MetadataError):
        ptx.mma_sp(SPARSE.replace(".sp.", ".sp::ordered_metadata."), a, b, c, legal ^ np.uint32(5), strict=True)


def test_inside_compiled_code() -> None:
    """The vector path and its fall-back for Inf; the general path, and another architecture."""

    @njit
    def half(a, b, c):
        return ptx.mma_sync("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", a, b, c)

    @njit
    def bytes_(a, b, c):
        return ptx.mma_sync("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", a, b, c, arch="sm_80")

    rng = np.random.default_rng(4)
    a, b = (rng.standard_normal((32, 2 * n)).astype(np.float16).view(np.uint32) for n in (4, 2))
    c = rng.standard_normal((32, 4)).astype(np.float32).view(np.uint32)
    assert (half(a, b, c) == ptx.mma_sync(F16, a, b, c)).all()
    a[7, 1] = 0x7C00
    assert (half(a, b, c) == ptx.mma_sync(F16, a, b, c)).all()
    x, y, z = (rng.integers(0, 1 << 32, (32, n), dtype=np.uint32) for n in (1, 1, 2))
    assert (bytes_(x, y, z) == ptx.mma_sync("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32", x, y, z)).all()
    with pytest.raises(ValueError, match="registers"):
        half(b, b, c)
    with pytest.raises(Exception, match="contiguous uint32"):
        half(a.astype(np.int64), b, c)


def test_a_changed_numerics_row_counts_at_once() -> None:
    """What was prepared from the row before is not used again."""
    key = ("sm_80", "mma", "f16")
    before = models.model("sm_80", "mma", FORMATS["f16"])
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal((32, 2 * n)).astype(np.float16).view(np.uint32) for n in (4, 2))
    c = rng.standard_normal((32, 4)).astype(np.float32).view(np.uint32)
    old, other = (ptx.mma_sync(F16, a, b, c, arch=name) for name in ("sm_80", "sm_90"))
    assert (old != other).any()
    try:
        models.register(*key, models.model("sm_90", "mma", FORMATS["f16"]))
        assert (ptx.mma_sync(F16, a, b, c, arch="sm_80") == other).all()
    finally:
        models.register(*key, before)
    assert (ptx.mma_sync(F16, a, b, c, arch="sm_80") == old).all()


def test_plans_are_bounded() -> None:
    assert mma._prepared.cache_info().maxsize
