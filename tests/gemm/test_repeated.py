"""Products that are asked for again: their one native call gives what the first, planned product gave."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

import nbtc
from nbtc.compiler.jit import control_word
from nbtc.errors import FormatError, NbtcError, OptionError, ShapeError
from nbtc.gemm import repeated
from nbtc.gemm.planning import SMALL

SHAPES = (64, 64, 64), (33, 70, 49), (1, 65, 130), (130, 1, 70), (64, 128, 16)
KINDS: dict[str, tuple[Any, dict[str, Any]]] = {
    "f16": (np.float16, {}),
    "f16, sm_80": (np.float16, {"arch": "sm_80"}),
    "bf16": (ml_dtypes.bfloat16, {}),
    "tf32": (np.float32, {}),
    "e4m3": (ml_dtypes.float8_e4m3fn, {}),
    "e5m2, mma": (ml_dtypes.float8_e5m2, {"instruction": "mma"}),
    "f64": (np.float64, {}),
    "s8": (np.int8, {}),
    "u8": (np.uint8, {}),
    "named by formats": (np.float32, {"a_format": nbtc.tf32, "b_format": nbtc.tf32}),
    "f16 sums": (np.float16, {"acc": "f16"}),
}


MOST = repeated.MOST


@pytest.fixture(autouse=True)
def none_known(planned: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Products are remembered, and forgotten after each test."""
    monkeypatch.setattr(repeated, "MOST", MOST)
    yield
    repeated.cache_clear()


def operands(rng: np.random.Generator, shape: tuple[int, int, int], dtype: Any) -> list[NDArray[Any]]:
    m, n, k = shape
    if np.dtype(dtype).kind in "iu":
        info = np.iinfo(dtype)
        return [rng.integers(info.min, info.max, s, endpoint=True).astype(dtype) for s in ((m, k), (k, n))]
    return [rng.standard_normal(s).astype(dtype) for s in ((m, k), (k, n))]


def calls() -> int:
    return sum(type(x) is repeated.Call for x in repeated._CALLS.values())


def bits(x: NDArray[Any]) -> bytes:
    return x.tobytes()


def planned_product(a: NDArray[Any], b: NDArray[Any], **options: Any) -> NDArray[Any]:
    """A product that is no repeated one."""
    kept = dict(repeated._CALLS)
    repeated.cache_clear()
    d = nbtc.matmul(a, b, **options)
    repeated.cache_clear()
    repeated._CALLS.update(kept)
    return d


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_bits_are_those_of_the_planned_product(kind: str, shape: tuple[int, int, int]) -> None:
    dtype, options = KINDS[kind]
    rng = np.random.default_rng(5)
    for turn in range(5):
        a, b = operands(rng, shape, dtype)
        assert bits(nbtc.matmul(a, b, **options)) == bits(planned_product(a, b, **options)), turn
    padded = kind == "f64" and shape[2] % 16
    assert calls() == (0 if padded or options.get("acc") or np.prod(shape) <= SMALL else 1)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e4m3", "f64", "s8"])
def test_operands_in_other_orders_have_calls_of_their_own(kind: str) -> None:
    dtype, options = KINDS[kind]
    a, b = operands(np.random.default_rng(6), (64, 64, 64), dtype)
    layouts = (a, b), (a, np.asfortranarray(b)), (np.asfortranarray(a), b), (a[::-1], b[:, ::-1])
    for _ in range(4):
        for x, y in layouts:
            assert bits(nbtc.matmul(x, y, **options)) == bits(planned_product(x, y, **options))
    assert calls() == len(layouts)


@pytest.mark.parametrize("kind", ["f16", "bf16", "tf32", "e5m2, mma", "f64"])
def test_infinities_and_nans_are_left_to_the_planned_product(kind: str) -> None:
    dtype, options = KINDS[kind]
    rng = np.random.default_rng(7)
    for turn in range(8):
        a, b = operands(rng, (64, 80, 64), dtype)
        if turn % 2:
            a[turn, 3], b[4, turn] = np.inf, np.nan
            b[7, 9], a[20, 7] = -np.inf, 0
        assert bits(nbtc.matmul(a, b, **options)) == bits(planned_product(a, b, **options)), turn
    assert calls() == 1


@pytest.mark.parametrize("kind", ["bf16", "tf32"])
def test_exponents_beyond_those_of_the_call(kind: str) -> None:
    """It covers some binades more than the operands had that it was made of; others widen it, or end it."""
    dtype, options = KINDS[kind]
    rng = np.random.default_rng(8)
    scales = 1, 1, 1, 2.0**-9, 1, 1, 2.0**-9, 2.0**12, 1, 1, 2.0**100, 1, 2.0**-126, 2.0**-100, 1, 1
    for turn, scale in enumerate(scales):
        a, b = (x.astype(np.float32) for x in operands(rng, (64, 80, 64), np.float32))
        a, b = (a * np.float32(scale)).astype(dtype), b.astype(dtype)
        a[0, :8], b[:8, 0] = 0, -0.0
        assert bits(nbtc.matmul(a, b, **options)) == bits(planned_product(a, b, **options)), turn
    zero = np.zeros_like(a)
    assert bits(nbtc.matmul(zero, b, **options)) == bits(planned_product(zero, b, **options))


def test_sums_that_leave_32_bits_and_subnormals() -> None:
    rng = np.random.default_rng(9)
    for turn in range(6):
        a, b = operands(rng, (64, 64, 64), np.float16)
        if turn > 2:
            a, b = (np.full_like(x, np.float16(65504) if turn % 2 else np.float16(6e-8)) for x in (a, b))
        assert bits(nbtc.matmul(a, b)) == bits(planned_product(a, b)), turn


def test_results_are_arrays_of_their_own() -> None:
    a, b = operands(np.random.default_rng(10), (64, 64, 64), np.float16)
    results = [nbtc.matmul(a, b) for _ in range(5)]
    first = bits(results[0])
    results[-1][...] = 7
    assert all(bits(x) == first for x in results[:-1])
    assert len({x.ctypes.data for x in results}) == len(results)
    assert all(x.flags.writeable and x.flags.c_contiguous and x.dtype == np.float32 for x in results)


def test_read_only_operands() -> None:
    a, b = operands(np.random.default_rng(11), (64, 64, 64), np.float16)
    a.flags.writeable = b.flags.writeable = False
    results = {bits(nbtc.matmul(a, b)) for _ in range(4)}
    assert len(results) == 1 and calls() == 1


@pytest.mark.skipif(platform.machine() != "x86_64", reason="MXCSR is x86's")
@pytest.mark.parametrize("kind", ["f16", "tf32", "f64", "s8"])
def test_the_floating_point_mode_of_the_caller(kind: str) -> None:
    """Rounding up, with subnormals as zeros: the call runs in the default mode, and the caller gets its own back."""
    dtype, options = KINDS[kind]
    a, b = operands(np.random.default_rng(18), (64, 64, 64), dtype)
    if np.dtype(dtype).kind == "f":
        a, b = a * dtype(2.0**-12), b * dtype(2.0**-8)
    want = bits(planned_product(a, b, **options))
    for _ in range(3):
        nbtc.matmul(a, b, **options)
    assert calls() == 1
    before = control_word(0xDFC0)
    try:
        found, after = bits(nbtc.matmul(a, b, **options)), control_word(0xDFC0)
    finally:
        control_word(before)
    assert found == want and after & 0xFFC0 == 0xDFC0


def test_threads_at_once() -> None:
    a, b = operands(np.random.default_rng(12), (64, 96, 64), np.float16)
    want = bits(planned_product(a, b))
    with ThreadPoolExecutor(8) as pool:
        assert {bits(x) for x in pool.map(lambda _: nbtc.matmul(a, b), range(200))} == {want}


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"threads": True}, OptionError),
        ({"threads": 0}, OptionError),
        ({"threads": 1.0}, OptionError),
        ({"k_split": 16.0}, OptionError),
        ({"progress": 0}, OptionError),
        ({"acc": "f8"}, FormatError),
        ({"arch": "sm_89x"}, NbtcError),
        ({"c": np.zeros((3, 3), np.float32)}, ShapeError),
        ({"out": np.zeros((3, 3), np.float32)}, ShapeError),
        ({"saturate": True}, OptionError),
    ],
    ids=str,
)
def test_wrong_options_are_refused_after_a_call_as_before(options: dict[str, Any], error: type[Exception]) -> None:
    a, b = operands(np.random.default_rng(13), (64, 64, 64), np.float16)
    with pytest.raises(error) as before:
        nbtc.matmul(a, b, **options)
    for _ in range(4):
        nbtc.matmul(a, b, threads=1)
        nbtc.matmul(a, b)
    with pytest.raises(error) as after:
        nbtc.matmul(a, b, **options)
    assert str(after.value) == str(before.value)


def test_other_options_are_other_products() -> None:
    a, b = operands(np.random.default_rng(14), (64, 64, 64), np.float16)
    forms: tuple[dict[str, Any], ...] = (
        {}, {"arch": "sm_80"}, {"arch": "sm_70"}, {"acc": "f16"}, {"k_split": 16}, {"order": "split2x32"},
        {"c": np.ones((64, 64), np.float32)},
    )  # fmt: skip
    want = [bits(planned_product(a, b, **x)) for x in forms]
    for _ in range(4):
        assert [bits(nbtc.matmul(a, b, **x)) for x in forms] == want
    x, y = operands(np.random.default_rng(15), (64, 64, 64), np.int8)
    for _ in range(4):
        nbtc.matmul(x, y)
        assert bits(nbtc.matmul(x.view(np.uint8), y)) == bits(planned_product(x.view(np.uint8), y))


@pytest.mark.parametrize("kind", KINDS)
def test_a_few_thousand_multiply_adds_wait_for_their_call(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "PATIENCE", 3)
    dtype, options = KINDS[kind]
    rng = np.random.default_rng(17)
    for shape in ((16, 16, 16), (1, 1, 16), (3, 5, 32)):
        for turn in range(7):
            a, b = operands(rng, shape, dtype)
            if turn == 6 and np.dtype(dtype).kind not in "iu":
                a[0, 0] = np.nan
            assert bits(nbtc.matmul(a, b, **options)) == bits(planned_product(a, b, **options)), (shape, turn)
    assert calls() == (0 if options.get("acc") else 3)


def test_how_large_products_have_calls() -> None:
    """256^3 of bytes; packed operands of as many floats take more memory than calls may keep."""
    rng = np.random.default_rng(19)
    for n, (dtype, most) in enumerate(((np.int8, 1), (np.uint8, 2), (np.float16, 2))):
        for _ in range(4):
            a, b = operands(rng, (256, 256, 256), dtype)
            assert bits(nbtc.matmul(a, b, threads=1)) == bits(planned_product(a, b, threads=1)), n
        assert calls() == most, n


def test_few_calls_are_kept() -> None:
    rng = np.random.default_rng(16)
    for n in range(33, 33 + repeated.SIGNATURES + 8):
        a, b = operands(rng, (32, n, 32), np.float16)
        for _ in range(3):
            nbtc.matmul(a, b)
    assert calls() == len(repeated._CALLS) == repeated.SIGNATURES
