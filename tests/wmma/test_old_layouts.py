"""Fragments of sm_70 to sm_75: images in one architecture's layout never meet another's products unnoticed."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import nbtc
from nbtc import ptx
from nbtc.errors import LayoutError, UnsupportedInstructionError
from nbtc.formats.table import FORMATS
from nbtc.numerics.exact import Oracle
from nbtc.numerics.models import model

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
FORMS = list(product(("row", "col"), ("row", "col"), ("f16", "f32"), ("f16", "f32")))
MMA = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
LOADS = [
    "wmma.load.a.sync.aligned.row.m16n16k16.f16",
    "wmma.load.b.sync.aligned.col.m16n16k16.f16",
    "wmma.load.c.sync.aligned.row.m16n16k16.f32",
]
STORE = "wmma.store.d.sync.aligned.row.m16n16k16.f32"


def small(rng: np.random.Generator, name: str) -> NDArray[Any]:
    """Numbers whose products and sums are exact in every format here."""
    return rng.integers(-3, 4, (2, 16, 16)).astype(FORMATS[name].dtype)


def memory(x: NDArray[Any], order: str = "row") -> NDArray[np.uint8]:
    lines = x if order == "row" else x.swapaxes(-1, -2)
    return np.ascontiguousarray(lines).reshape(*x.shape[:-2], -1).view(np.uint8)


@pytest.mark.parametrize("arch", ["sm_70", "sm_72"])
def test_load_product_store(arch: str) -> None:
    """All 16 forms of m16n16k16, the whole way through memory."""
    rng = np.random.default_rng(70)
    for la, lb, dt, ct in FORMS:
        a, b, c = small(rng, "f16"), small(rng, "f16"), small(rng, ct)
        head = "sync.aligned"
        ra = ptx.wmma_load(f"wmma.load.a.{head}.{la}.m16n16k16.f16", memory(a, la), arch=arch)
        rb = ptx.wmma_load(f"wmma.load.b.{head}.{lb}.m16n16k16.f16", memory(b, lb), arch=arch)
        rc = ptx.wmma_load(f"wmma.load.c.{head}.row.m16n16k16.{ct}", memory(c), arch=arch)
        d = ptx.wmma_mma(f"wmma.mma.{head}.{la}.{lb}.m16n16k16.{dt}.{ct}", ra, rb, rc, arch=arch)
        for order in ("row", "col"):
            out = np.zeros((2, 256), FORMATS[dt].dtype)
            store = f"wmma.store.d.{head}.{order}.m16n16k16.{dt}"
            ptx.wmma_store(store, out.view(np.uint8), d, arch=arch)
            want = a.astype(np.float64) @ b.astype(np.float64) + c
            got = out.reshape(2, 16, 16) if order == "row" else out.reshape(2, 16, 16).swapaxes(1, 2)
            assert (got == want).all(), (la, lb, dt, ct, order)
        i = nbtc.instruction(f"wmma.mma.{head}.{la}.{lb}.m16n16k16.{dt}.{ct}")
        packed = i(i.pack_a(a, arch), i.pack_b(b, arch), i.pack_c(c, arch), arch=arch)
        assert (np.asarray(packed) == d).all() and (i.unpack_d(packed) == want).all()


def test_bits_are_those_of_the_oracle() -> None:
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal((16, 16)).astype(np.float16) for _ in range(2))
    c = rng.standard_normal((16, 16)).astype(np.float32)
    memories = memory(a), memory(b, "col"), memory(c)
    images = [ptx.wmma_load(n, mem, arch="sm_70") for n, mem in zip(LOADS, memories, strict=True)]
    out = np.zeros((16, 16), np.float32)
    ptx.wmma_store(STORE, out.reshape(-1).view(np.uint8), ptx.wmma_mma(MMA, *images, arch="sm_70"), arch="sm_70")
    oracle = Oracle(model("sm_70", "wmma", nbtc.f16), nbtc.f16, nbtc.f16, nbtc.f32, 16)
    words = a.view(np.uint16), b.view(np.uint16), c.view(np.uint32)
    assert (out.view(np.uint32) == oracle.matrix(*words)).all()


def images(arch: str) -> list[Any]:
    mem = np.zeros(1024, np.uint8)
    return [ptx.wmma_load(n, mem[:512] if n.endswith("f16") else mem, arch=arch) for n in LOADS]


def mixed(position: int, own: str, other: str) -> list[Any]:
    found = images(own)
    found[position] = images(other)[position]
    return found


WAYS: list[Callable[[NDArray[np.uint32]], Any]] = [
    lambda x: x,
    lambda x: x.copy(),
    lambda x: np.stack([x, x]),
    lambda x: np.concatenate([x[None], x[None]])[0],
    lambda x: np.broadcast_to(x, (3, *x.shape)),
    lambda x: np.asarray(x),
    lambda x: x.view(np.float16).view(np.uint32),
    lambda x: x ^ np.uint32(1),
    lambda x: pickle.loads(pickle.dumps(x)),
]


@pytest.mark.parametrize("position", range(3))
@pytest.mark.parametrize(("own", "other"), [("sm_70", "sm_90"), ("sm_90", "sm_70"), ("sm_75", "sm_72")])
def test_a_foreign_image_raises(position: int, own: str, other: str) -> None:
    for way in WAYS:
        found = mixed(position, own, other)
        found[position] = way(found[position])
        with pytest.raises(LayoutError, match=f"{'abc'[position]} was laid out for {other}"):
            ptx.wmma_mma(MMA, *found, arch=own)
        with pytest.raises(LayoutError):
            nbtc.instruction(MMA)(*found, arch=own)


def test_store_and_unpack_check_too() -> None:
    d, out = ptx.wmma_mma(MMA, *images("sm_70"), arch="sm_70"), np.zeros(1024, np.uint8)
    with pytest.raises(LayoutError, match="sm_90"):
        ptx.wmma_store(STORE, out, d)
    i = nbtc.instruction(MMA)
    with pytest.raises(LayoutError, match="sm_80"):
        i.unpack_d(d, arch="sm_80")
    assert i.unpack_d(d).shape == i.unpack_d(d, arch="sm_72").shape == (16, 16)


def test_alike_layouts_mix_and_plain_words_are_taken() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert ptx.wmma_mma(MMA, *images("sm_80"), arch="sm_90").shape == (32, 8)
        assert ptx.wmma_mma(MMA, *images("sm_70"), arch="sm_72").shape == (32, 8)
        assert ptx.wmma_mma(MMA, *(np.array(x) for x in images("sm_90")), arch="sm_70").shape == (32, 8)
    i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert type(i.pack_a(np.zeros((16, 16), np.float16), "sm_80")) is np.ndarray


def test_turing_has_its_own_8x32_accumulator() -> None:
    c = np.arange(256, dtype=np.int32)
    load = "wmma.load.c.sync.aligned.row.m8n32k16.s32"
    old, new = (ptx.wmma_load(load, c.view(np.uint8), arch=a) for a in ("sm_75", "sm_80"))
    assert (np.asarray(old) != np.asarray(new)).any()
    out, store = np.zeros(1024, np.uint8), "wmma.store.d.sync.aligned.row.m8n32k16.s32"
    ptx.wmma_store(store, out, old, arch="sm_75")
    assert (out.view(np.int32) == c).all()
    with pytest.raises(LayoutError):
        ptx.wmma_store(store, out, old, arch="sm_80")


def test_unknown_layouts_and_forms_raise() -> None:
    mem = np.zeros(1024, np.uint8)
    with pytest.raises(UnsupportedInstructionError, match="not known"):
        ptx.wmma_load("wmma.load.a.sync.aligned.row.m32n8k16.f16", mem, arch="sm_70")
    with pytest.raises(UnsupportedInstructionError, match="sm_75 has no"):
        ptx.wmma_load("wmma.load.a.sync.aligned.row.m16n16k16.bf16", mem, arch="sm_75")
