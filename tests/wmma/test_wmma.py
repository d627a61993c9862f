"""nbtc.wmma against recordings of CUDA C++ kernels, the recorded fragment maps, and the rules it enforces."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nbtc
from nbtc import ptx
from nbtc import wmma as w
from nbtc.errors import (
    AlignmentError,
    BoundsError,
    FormatError,
    NbtcError,
    OptionError,
    RangeError,
    ShapeError,
    UnsupportedInstructionError,
)  # fmt: skip
from nbtc.formats.table import FORMATS
from nbtc.numerics.exact import Oracle
from nbtc.numerics.models import model

COMMITTED = Path(__file__).parents[1] / "golden"
LAYOUT = {"row": w.row_major, "col": w.col_major}
MEMORY = {"row": w.mem_row_major, "col": w.mem_col_major}


def recordings() -> Iterator[tuple[str, dict[str, Any], list[NDArray[np.uint8]]]]:
    """(run, form, memory images A, B, C, D)."""
    full = Path(os.environ["NBTC_GOLDEN"]) if "NBTC_GOLDEN" in os.environ else None
    with np.load(full / "wmma.npz" if full else COMMITTED / "tiles.npz") as z:
        index = json.loads((full / "index.json").read_bytes() if full else z["index"].tobytes())
        for run in sorted({key.rsplit("__", 1)[0] for key in z.files if "__" in key}):
            yield run, index[run.split("__")[0]], [z[f"{run}__{x}"] for x in "ABCD"]


def typed(raw: NDArray[np.uint8], name: str) -> NDArray[Any]:
    fmt = FORMATS[name]
    return np.ascontiguousarray(raw).view(np.uint32 if fmt.packed else fmt.dtype)


def product(form: dict[str, Any], a: NDArray[Any], b: NDArray[Any], c: NDArray[Any], arch: str = "sm_90") -> Any:
    """D's fragment by the C++ functions."""
    m, n, k = form["m"], form["n"], form["k"]
    lead = a.shape[:-1]
    fa = w.fragment(w.matrix_a, m, n, k, form["at"], LAYOUT[form["al"]], batch=lead)
    fb = w.fragment(w.matrix_b, m, n, k, form["at"], LAYOUT[form["bl"]], batch=lead)
    fc, fd = (w.fragment(w.accumulator, m, n, k, form[x], batch=lead) for x in ("ct", "dt"))
    w.load_matrix_sync(fa, typed(a, form["at"]), k if form["al"] == "row" else m)
    w.load_matrix_sync(fb, typed(b, form["at"]), n if form["bl"] == "row" else k)
    w.load_matrix_sync(fc, typed(c, form["ct"]), n, w.mem_row_major)
    if form["at"] == "b1":
        w.bmma_sync(fd, fa, fb, fc, w.bmmaBitOpAND if form["bop"] == "and" else w.bmmaBitOpXOR, arch=arch)
    else:
        w.mma_sync(fd, fa, fb, fc, form["sat"], arch=arch)
    return fd


def test_recordings() -> None:
    seen = set()
    for run, form, (a, b, c, want) in recordings():
        m, n = form["m"], form["n"]
        fd = product(form, a, b, c)
        for order in ("row", "col"):
            out = np.zeros((len(a), m * n), FORMATS[form["dt"]].dtype)
            w.store_matrix_sync(out, fd, n if order == "row" else m, MEMORY[order])
            got = out if order == "row" else out.reshape(-1, n, m).transpose(0, 2, 1).reshape(out.shape)
            assert (np.ascontiguousarray(got).view(np.uint8) == want).all(), f"{run} {order}"
        seen.add(run.split("__")[0])
    assert len(seen) == 76


def mnemonics(f: dict[str, Any]) -> tuple[list[str], str, str]:
    shape, a = f"m{f['m']}n{f['n']}k{f['k']}", f["at"]
    lay, sat = f"{f['al']}.{f['bl']}", ".satfinite" if f["sat"] else ""
    types = f"{f['dt']}.{f['ct']}" if a == "f16" else f"{f['dt']}.{a}.{a}.{f['ct']}{sat}"
    op = f".{f['bop']}.popc" if a == "b1" else ""
    loads = [
        f"wmma.load.{x}.sync.aligned.{y}.{shape}.{t}"
        for x, y, t in (("a", f["al"], a), ("b", f["bl"], a), ("c", "row", f["ct"]))
    ]
    return loads, f"wmma.mma{op}.sync.aligned.{lay}.{shape}.{types}", f"wmma.store.d.sync.aligned.row.{shape}.{f['dt']}"


def test_ptx_functions_agree() -> None:
    for run, form, (a, b, c, want) in recordings():
        loads, mma, store = mnemonics(form)
        regs = [ptx.wmma_load(op, mem) for op, mem in zip(loads, (a, b, c), strict=True)]
        out = np.zeros((len(a), 96 + want.shape[1]), np.uint8)
        ptx.wmma_store(store, out, ptx.wmma_mma(mma, *regs), 96)
        assert (out[:, 96:] == want).all() and not out[:, :96].any(), run


def test_maps() -> None:
    """Which element each slot holds: load matrices of row and column bits, read x."""
    with np.load(COMMITTED / "wmma_maps.npz") as z:
        names = sorted({key.rsplit("__", 1)[0] for key in z.files})
        for name in names:
            _, use, shape, *types, order = name.split("_")
            m, n, k = (int(v) for v in shape.split("x"))
            rows, cols = {"a": (m, k), "b": (k, n), "c": (m, n)}[use]
            fmt = FORMATS[types[-1]]
            kind = {"a": w.matrix_a, "b": w.matrix_b, "c": w.accumulator}[use]
            frag = w.fragment(kind, m, n, k, fmt, None if use == "c" else LAYOUT[order])
            for axis, size in ((0, rows), (1, cols)):
                index = np.indices((rows, cols))[axis]
                got = np.zeros((32, frag.num_elements), np.int64)
                for bit in range((size - 1).bit_length()):
                    values = index >> bit & 1 if order == "row" else (index >> bit & 1).T
                    mem = nbtc.pack(values.ravel(), fmt) if fmt.packed else values.ravel().astype(fmt.dtype)
                    w.load_matrix_sync(
                        frag, mem, cols if order == "row" else rows, MEMORY[order] if use == "c" else None
                    )
                    x = np.ascontiguousarray(frag.x.T)
                    x = nbtc.unpack(x.view(np.uint32), fmt) if fmt.packed else x
                    got |= x.astype(np.int64) << bit
                assert (got == z[f"{name}__{('row', 'col')[axis]}"]).all(), name
            assert [frag.num_elements, frag.num_storage_elements] == z[f"{name}__info"][:2].tolist()
    assert len(names) == 102


def test_duplicates_of_f16_fragments() -> None:
    frag = w.fragment(w.matrix_a, 32, 8, 16, nbtc.f16, w.row_major)
    assert frag.num_elements == 16
    narrow = w.fragment(w.matrix_b, 32, 8, 16, nbtc.f16, w.col_major)
    w.load_matrix_sync(narrow, np.arange(128, dtype=np.float16), 16)
    assert all((narrow.x[i] == narrow.x[i & 3]).all() for i in range(16))


def test_element_wise_code() -> None:
    c = w.fragment(w.accumulator, 16, 16, 16, nbtc.f32, batch=(2,))
    w.fill_fragment(c, np.arange(2)[:, None])
    for t in range(c.num_elements):
        c.x[t] *= 3
    c.x += 1
    assert c.x.shape == (8, 2, 32) and (c.x[:, 0] == 1).all() and (c.x[:, 1] == 4).all()
    s = w.fragment(w.matrix_a, 8, 8, 32, w.experimental.precision.s4, w.row_major)
    w.fill_fragment(s, -3)
    assert (s.x.view(np.uint32) == 0xDDDDDDDD).all() and s.x.dtype == np.int32
    assert w.element_type(s) is nbtc.s4 and w.storage_element_type(s) == np.int32


def test_aliases_and_shared_operands() -> None:
    """d may be c; a fragment of one warp serves all."""
    a = w.fragment(w.matrix_a, 16, 16, 16, nbtc.f16, w.row_major)
    b = w.fragment(w.matrix_b, 16, 16, 16, nbtc.f16, w.col_major, batch=3)
    c = w.fragment(w.accumulator, 16, 16, 16, nbtc.f32, batch=3)
    w.fill_fragment(a, 1)
    w.fill_fragment(b, np.arange(3)[:, None])
    w.mma_sync(c, a, b, c)
    w.mma_sync(c, a, b, c)
    assert (c.x == 32 * np.arange(3, dtype=np.float32)[None, :, None]).all()


def test_float_saturation_is_the_guides() -> None:
    a = w.fragment(w.matrix_a, 16, 16, 16, nbtc.f16, w.row_major)
    b = w.fragment(w.matrix_b, 16, 16, 16, nbtc.f16, w.col_major)
    w.fill_fragment(a, 60000)
    w.fill_fragment(b, 60000)
    for acc, largest in ((nbtc.f16, 65504), (nbtc.f32, np.finfo(np.float32).max)):
        c = w.fragment(w.accumulator, 16, 16, 16, acc)
        w.fill_fragment(c, -np.inf)
        w.mma_sync(c, a, b, c, satf=True)
        assert (c.x == -largest).all()
        w.fill_fragment(c, np.nan)
        w.mma_sync(c, a, b, c, satf=True)
        assert not c.x.view(np.uint16 if acc is nbtc.f16 else np.uint32).any()


@pytest.mark.parametrize("arch", ["sm_70", "sm_75", "sm_80"])
def test_older_architectures(arch: str) -> None:
    """Same fragments, other arithmetic: blocks of 4 or 8 products."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((1, 256)).astype(np.float16) for _ in range(2))
    c = rng.standard_normal((1, 256)).astype(np.float32)
    form = {"m": 16, "n": 16, "k": 16, "at": "f16", "ct": "f32", "dt": "f32", "al": "row", "bl": "col", "sat": False}
    out = np.zeros((1, 256), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        w.store_matrix_sync(out, product(form, a, b, c, arch), 16, w.mem_row_major)
        oracle = Oracle(model(arch, "wmma", nbtc.f16), nbtc.f16, nbtc.f16, nbtc.f32, 16)
    words = a.view(np.uint16).reshape(16, 16), b.view(np.uint16).reshape(16, 16).T, c.view(np.uint32).reshape(16, 16)
    assert (out.view(np.uint32).reshape(16, 16) == oracle.matrix(*words)).all()


def frag(use: str = "a", T: object = "f16", shape: tuple[int, int, int] = (16, 16, 16), **more: Any) -> w.fragment:
    if use == "c":
        return w.fragment(w.accumulator, *shape, T, **more)
    return w.fragment(w.matrix_a if use == "a" else w.matrix_b, *shape, T, w.row_major, **more)


H, S = np.zeros(4096, np.float16), np.zeros(4096, np.float32)
LOAD, STORE = "wmma.load.a.sync.aligned.row.m16n16k16.f16", "wmma.store.d.sync.aligned.row.m16n16k16.f16"
TWO = np.ones((2, 32, 4), np.uint32)
BF16 = {"a": "bf16", "b": "bf16", "c": "f32"}
ERRORS: list[tuple[type[NbtcError], Callable[[], Any]]] = [
    (OptionError, lambda: w.fragment(w.matrix_a, 16, 16, 16, nbtc.f16)),
    (OptionError, lambda: w.fragment(w.accumulator, 16, 16, 16, nbtc.f32, w.row_major)),
    (OptionError, lambda: frag(shape=(16, 16, 8))),
    (OptionError, lambda: frag("c", nbtc.bf16)),
    (FormatError, lambda: frag("a", "f128")),
    (RangeError, lambda: w.load_matrix_sync(frag(), H, 8)),
    (AlignmentError, lambda: w.load_matrix_sync(frag(), H, 20)),
    (AlignmentError, lambda: w.load_matrix_sync(frag(), H, 16, offset=8)),
    (BoundsError, lambda: w.load_matrix_sync(frag(), H, 16, offset=4096 - 128)),
    (BoundsError, lambda: w.load_matrix_sync(frag(), H, 16, offset=-16)),
    (FormatError, lambda: w.load_matrix_sync(frag(), S, 16)),
    (FormatError, lambda: w.load_matrix_sync(frag(), H, 16.0)),  # type: ignore[arg-type]
    (ShapeError, lambda: w.load_matrix_sync(frag(batch=(2,)), np.zeros((3, 256), np.float16), 16)),
    (OptionError, lambda: w.load_matrix_sync(frag(), H, 16, w.mem_row_major)),
    (OptionError, lambda: w.load_matrix_sync(frag("c", "f32"), S, 16)),
    (OptionError, lambda: w.store_matrix_sync(H, frag(), 16, w.mem_row_major)),
    (FormatError, lambda: w.store_matrix_sync(H, frag("c", "f32"), 16, w.mem_row_major)),
    (ShapeError, lambda: w.store_matrix_sync(np.zeros(512, np.float32)[::2], frag("c", "f32"), 16, w.mem_row_major)),
    (FormatError, lambda: w.store_matrix_sync([0.0] * 256, frag("c", "f32"), 16, w.mem_row_major)),  # type: ignore[arg-type]
    (FormatError, lambda: w.mma_sync(frag("c", "f32"), frag("a", "s8"), frag("b", "u8"), frag("c", "s32"))),
    (FormatError, lambda: w.mma_sync(frag("c", "f32"), frag(), frag("b", "f16", (32, 8, 16)), frag("c", "f32"))),
    (OptionError, lambda: w.mma_sync(frag("c", "f32"), frag("b"), frag("a"), frag("c", "f32"))),
    (ShapeError, lambda: w.mma_sync(frag("c", "f32"), frag(batch=2), frag("b"), frag("c", "f32"))),
    (UnsupportedInstructionError, lambda: w.mma_sync(*(frag(x, BF16[x]) for x in "cabc"), arch="sm_75")),
    (FormatError, lambda: w.bmma_sync(*(frag(x, "s8" if x != "c" else "s32") for x in "cabc"))),
    (OptionError, lambda: w.bmma_sync(frag("c"), frag(), frag("b"), frag("c"), op=1)),  # type: ignore[arg-type]
    (RangeError, lambda: w.fill_fragment(frag("a", "u8"), -1)),
    (FormatError, lambda: w.fill_fragment(frag("a", "s8"), 0.5)),
    (AlignmentError, lambda: ptx.wmma_load(LOAD, H.view(np.uint8), 16)),
    (RangeError, lambda: ptx.wmma_load(LOAD, H.view(np.uint8), 0, 8)),
    (FormatError, lambda: ptx.wmma_load(LOAD, H)),
    (ShapeError, lambda: ptx.wmma_store(STORE, H.view(np.uint8), TWO)),
    (UnsupportedInstructionError, lambda: ptx.wmma_load(STORE, H.view(np.uint8))),
]  # fmt: skip


@pytest.mark.parametrize("n", range(len(ERRORS)))
def test_errors_touch_nothing(n: int) -> None:
    kind, call = ERRORS[n]
    with pytest.raises(kind) as caught:
        call()
    assert len(str(caught.value)) >= 40 and not H.any() and not S.any()


def test_narrow_tiles_need_less_alignment() -> None:
    """The rule is min(16 bytes, the tile's line): 8 bytes for a column of 8 signed bytes."""
    a = w.fragment(w.matrix_a, 8, 32, 16, nbtc.s8, w.col_major)
    w.load_matrix_sync(a, np.arange(128, dtype=np.int8), 8)
    assert a.x[:, 0].tolist() == [0, 8, 16, 24]
    with pytest.raises(AlignmentError):
        w.load_matrix_sync(a, np.zeros(512, np.int8), 12)


def test_tf32_rounding() -> None:
    x = np.array([1.0 + 2.0**-11, -1.0 - 2.0**-11, np.inf, 3.4028235e38], np.float32)
    assert w.float_to_tf32(x).tolist() == [1 + 2.0**-10, -1 - 2.0**-10, np.inf, np.inf]
