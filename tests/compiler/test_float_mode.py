"""The caller's floating-point mode changes no bit, and comes back unchanged: every family, by every call."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import ml_dtypes
import numba
import numpy as np
import pytest
from llvmlite import ir

import nbtc
from nbtc.accuracy import accuracy
from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.cpu.float_mode import DEFAULT, KEEP, enter, leave
from nbtc.compiler.jit import control_word, in_default_float_mode
from nbtc.errors import CompilerError
from nbtc.wgmma import tile_to_smem
from tests.processes import forked, output

# Control words: MXCSR with all exceptions masked, FPCR.
MODES = {
    "x86_64": {
        "FTZ": 0x9F80, "DAZ": 0x1FC0, "FTZ and DAZ": 0x9FC0, "down": 0x3F80, "up": 0x5F80, "toward zero": 0x7F80,
    },
    "aarch64": {"FZ": 1 << 24, "up": 1 << 22, "down": 2 << 22, "toward zero": 3 << 22},
}  # fmt: skip
MODES["AMD64"], MODES["arm64"] = MODES["x86_64"], MODES["aarch64"]
CHOICES = MODES.get(platform.machine(), {})
STICKY = 0x3F  # exceptions that have been met: not part of the mode

pytestmark = pytest.mark.skipif(not CHOICES, reason="nbtc sets no floating-point mode on this processor")


@contextmanager
def mode(word: int) -> Iterator[None]:
    before = control_word(KEEP)
    control_word(word)
    try:
        yield
        assert control_word(KEEP) & ~STICKY == word, "the caller's mode is not what it was"
    finally:
        control_word(before)


def spread(rng: np.random.Generator, shape: tuple[int, ...], low: int, high: int) -> np.ndarray:
    """Normal numbers over many binades: sums that round, subnormals among operands and results."""
    return rng.standard_normal(shape) * 2.0 ** rng.integers(low, high, shape)


@cache
def operands() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    a, b = spread(rng, (70, 64), -16, 2), spread(rng, (64, 40), -16, 2)
    made: dict[str, Any] = {name: (a.astype(name), b.astype(name)) for name in ("float16", "float64")}
    made |= {
        n: (a.astype(getattr(ml_dtypes, n)), b.astype(getattr(ml_dtypes, n))) for n in ("bfloat16", "float8_e4m3fn")
    }
    made["float32"] = spread(rng, (70, 64), -70, -60).astype("f4"), spread(rng, (64, 40), -70, -60).astype("f4")
    made["tiny float64"] = a * 2.0**-530, b * 2.0**-530
    made["c"] = spread(rng, (70, 40), -140, -1).astype("f4")
    made["words"] = rng.integers(0, 1 << 32, (40, 32, 8), dtype=np.uint32)
    made["floats"] = np.ascontiguousarray(spread(rng, (40, 32, 16), -14, 1).astype("f2").view(np.uint32))
    return made


MMA = "mma.sync.aligned."
FORMS = {  # form, registers of A, B and C, what they hold
    "f16": (MMA + "m16n8k16.row.col.f32.f16.f16.f32", 4, 2, 4),
    "f16 to f16": (MMA + "m16n8k16.row.col.f16.f16.f16.f16", 4, 2, 2),
    "bf16": (MMA + "m16n8k16.row.col.f32.bf16.bf16.f32", 4, 2, 4),
    "fp8": (MMA + "m16n8k32.row.col.f32.e4m3.e4m3.f32", 4, 2, 4),
    "f64": (MMA + "m8n8k4.row.col.f64.f64.f64.f64", 2, 2, 4),
    "wmma": ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", 8, 8, 8),
}


def products(threads: int) -> Iterator[tuple[str, Any]]:
    x, options = operands(), {"threads": threads}
    c = x["c"]
    for name in ("float16", "bfloat16", "float32", "float8_e4m3fn", "float64", "tiny float64"):
        yield f"matmul {name}", nbtc.matmul(*x[name], **options)
    half = x["float16"]
    yield "matmul f16 to f16", nbtc.matmul(*half, acc="f16", **options)
    yield "matmul chain", nbtc.matmul(half[0][:3], half[1][:, :3], **options)
    yield "matmul fp8 of f16", nbtc.matmul(*x["float8_e4m3fn"], instruction="mma", **options)
    batch = np.stack([half[0], half[0][::-1]]), np.stack([half[1], half[1][:, ::-1]])
    yield "matmul batch to f16", nbtc.matmul(*batch, acc="f16", **options)
    yield "k_split", nbtc.matmul(*half, c, k_split=16, **options)
    yield "gemm", nbtc.gemm(0.3, *half, 0.7, c, **options)
    yield "gemm f16", nbtc.gemm(0.3, *half, 0.7, (c * 2**10).astype(np.float16), **options)


def instructions(threads: int) -> Iterator[tuple[str, Any]]:
    x, options = operands(), {"threads": threads}
    words, floats = x["words"], x["floats"]
    for name, (form, ra, rb, rc) in FORMS.items():
        call = nbtc.ptx.wmma_mma if name == "wmma" else nbtc.ptx.mma_sync
        for kind, image in (("bits", words), ("numbers", floats)):
            yield f"{name} {kind}", call(form, image[..., :ra], image[..., -rb:], image[..., :rc], **options)
    meta, sparse = np.full((40, 32), 0x44444444, np.uint32), "mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col."
    yield "mma.sp", nbtc.ptx.mma_sp(sparse + "f32.f16.f16.f32", *(floats[..., :4],) * 3, meta, **options)
    a, da = tile_to_smem(operands()["float16"][0][:64, :16], "f16")
    b, db = tile_to_smem(np.ascontiguousarray(operands()["float16"][1][:16, :8].T), "f16")
    d = np.concatenate([floats, floats, floats, floats], 1)[..., :4]
    form = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
    yield "wgmma", nbtc.ptx.wgmma(form, d, da, db.encode() + (a.size >> 4), np.concatenate([a, b]), **options)


@numba.njit
def compiled(a, b, c):
    return nbtc.ptx.mma_sync(FORM, a, b, c)


FORM = FORMS["f16"][0]


def others() -> Iterator[tuple[str, Any]]:
    x = operands()
    yield "convert", nbtc.convert(x["c"], "f16")
    yield "convert fp8", nbtc.convert(x["float16"][0], "e5m2")
    fill = nbtc.wmma.fragment(nbtc.wmma.accumulator, 16, 16, 16, nbtc.f16)
    nbtc.wmma.fill_fragment(fill, 0.1 * 2.0**-13)
    yield "fill", fill.x
    words = x["floats"]
    images = [np.ascontiguousarray(words[0][:, :n]) for n in (4, 2, 4)]
    yield "njit", compiled(*images)
    report = accuracy(nbtc.matmul(*x["float16"]), *x["float16"])
    yield "accuracy", np.array([report.different, report.max_ulp])


def everything(threads: int) -> dict[str, bytes]:
    found = [*products(threads), *instructions(threads), *(others() if threads == 1 else ())]
    return {name: np.ascontiguousarray(value).tobytes() for name, value in found}


@cache
def expected(threads: int) -> dict[str, bytes]:
    """Results in the default mode, which other tests compare with the oracle."""
    return everything(threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CHOICES)
def test_no_bit_depends_on_the_mode(name: str, threads: int) -> None:
    want = expected(threads)
    with mode(CHOICES[name]):
        found = everything(threads)
    assert not [key for key in want if found[key] != want[key]]


@pytest.mark.parametrize("name", CHOICES)
def test_a_thread_has_its_own_mode(name: str) -> None:
    """The pool's threads are the main thread's children; here the caller is another thread, in another mode."""
    want, found = nbtc.matmul(*operands()["float64"], threads=2), []

    def work() -> None:
        with mode(CHOICES[name]):
            found.append(nbtc.matmul(*operands()["float64"], threads=2))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(60)
    assert found[0].tobytes() == want.tobytes() and control_word(KEEP) & ~STICKY != CHOICES[name]


def test_threads_born_in_a_mode_do_not_keep_it() -> None:
    code = f"""
import numpy as np, nbtc
from nbtc.compiler.jit import control_word
a = np.random.default_rng(0).standard_normal((256, 256))
control_word({CHOICES["up"]})
nbtc.matmul(a, a, threads=2)
control_word({DEFAULT})
raise SystemExit(nbtc.matmul(a, a, threads=2).tobytes() != nbtc.matmul(a, a, threads=1).tobytes())
"""
    assert output(forked(code)) == ""


def test_the_mode_comes_back_when_something_raises() -> None:
    @in_default_float_mode
    def fails() -> None:
        assert control_word(KEEP) & ~STICKY != CHOICES["up"]
        raise KeyError

    with mode(CHOICES["up"]):
        with pytest.raises(KeyError):
            fails()
        with pytest.raises(nbtc.errors.ShapeError):
            nbtc.matmul(*operands()["float16"][::-1])
        with pytest.raises(ValueError, match="registers"):
            compiled(*[np.zeros((32, 4), np.uint32)] * 3)
        with pytest.raises(ZeroDivisionError):
            nbtc.matmul(*operands()["float64"], progress=lambda done, total: 1 // 0)


def test_code_for_no_known_processor_is_refused() -> None:
    """Without the check the mode would stay what it is, and sums would round as somebody left it."""
    module = ir.Module("bare")
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "f")
    v = VectorBuilder(None, ir.IRBuilder(f.append_basic_block("entry")))
    with pytest.raises(CompilerError, match="names no processor"):
        enter(v)
    module.triple = "x86_64-unknown-linux-gnu"
    leave(v, enter(v))
    assert str(module).count('call void @"llvm.x86.sse.ldmxcsr"') == 2
