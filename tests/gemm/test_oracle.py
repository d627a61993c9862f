"""nbtc.matmul against the exact oracle: every case and family, several strategies each, 200,000 dot products."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

import numpy as np
import pytest

import nbtc
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS
from nbtc.numerics.exact_float import add
from nbtc.testing import assert_bits_equal
from nbtc.testing.cases import LARGEST, Case, cases, large_engines
from nbtc.testing.strategies import operands, strategies

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
ARCHS = ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100", "sm_120")


@pytest.fixture(autouse=True)
def _no_product_is_small() -> Iterator[None]:
    """The engines for large products compute these small ones too; by chain they would not be tested at all."""
    with large_engines():
        yield


def compare(case: Case, strategy: str, shape: tuple[int, int], **how: object) -> int:
    """One product against the oracle; returns how many dot products."""
    rng = np.random.default_rng(zlib.crc32(f"matmul {case} {strategy}".encode()))
    bits = case.operands(rng, strategy, *shape)
    d, want = case.matmul(*bits, **how), case.oracle().matrix(*bits)
    fmt = case.acc if case.acc != "s32" else None
    assert_bits_equal(d, want, fmt, f"{case} {strategy} {shape} K={bits[0].shape[1]} {case.instruction()}")
    return want.size


@pytest.mark.long
@pytest.mark.parametrize("kind", sorted({c.a for c in cases()}))
def test_matmul(kind: str) -> None:
    """Three strategies a case."""
    count = 0
    for case in (c for c in cases() if c.a == kind and c.instruction() is not None):
        names = strategies(case.formats[0])
        turn = zlib.crc32(str(case).encode())
        for name in {names[(turn + 4 * j) % len(names)] for j in range(3)}:
            count += compare(case, name, (29, 27))
    assert count >= 4 * 29 * 27


def test_families() -> None:
    """wmma and wgmma of sm_90 where the cases above have no row of their own."""
    for unit, largest in LARGEST.items():
        for name, step in largest.items():
            acc = {"f64": "f64"}.get(name, "f32" if FORMATS[name].kind == "float" else "s32")
            case = Case("sm_90", unit, name, name, acc, step)
            for strategy in strategies(FORMATS[name])[:4]:
                compare(case, strategy, (19, 33))


@pytest.mark.parametrize("chunk", [1, 24, 64])
@pytest.mark.parametrize(
    ("kind", "acc"), [("f16", "f32"), ("f16", "f16"), ("bf16", "f32"), ("f64", "f64"), ("s8", "s32")]
)
def test_k_split_adds_parts_in_order(kind: str, acc: str, chunk: int) -> None:
    """Each part is a chain from zero; parts, then c, are added to nearest even."""
    case = Case("sm_90", "mma", kind, kind, acc, {"s8": 32}.get(kind, 16))
    fmt = FORMATS[acc]
    for strategy in strategies(case.formats[0])[:3]:
        rng = np.random.default_rng(zlib.crc32(f"split {case} {strategy}".encode()))
        bits = [
            x.astype(f.bits_dtype)
            for x, f in zip(operands(rng, strategy, (5, 6, 100), *case.formats), case.formats, strict=True)
        ]
        a, b, c = (from_bits(x, f) for x, f in zip(bits, case.formats, strict=True))
        oracle, zero = case.oracle(), np.zeros((5, 6), fmt.bits_dtype)
        parts = [oracle.matrix(bits[0][:, s : s + chunk], bits[1][s : s + chunk], zero) for s in range(0, 100, chunk)]
        total = parts[0].tolist()
        for part in [*parts[1:], bits[2]]:
            total = [
                [_add(x, y, acc) for x, y in zip(p, q, strict=True)] for p, q in zip(total, part.tolist(), strict=True)
            ]
        d = nbtc.matmul(a, b, c, acc=acc, instruction="mma", k_split=chunk)
        assert_bits_equal(
            to_bits(d), np.array(total, fmt.bits_dtype), acc if acc != "s32" else None, f"{case} {strategy}"
        )


def _add(x: int, y: int, acc: str) -> int:
    return (x + y) & 0xFFFFFFFF if acc == "s32" else add(x, y, FORMATS[acc])


@pytest.mark.parametrize(
    ("arch", "kind", "step"), [("sm_90", "f16", 16), ("sm_90", "bf16", 16), ("sm_120", "e4m3", 32)]
)
@pytest.mark.parametrize("sign", [0, 1])
@pytest.mark.parametrize("less", [0, 1, 2])
def test_sums_at_the_edge_of_32_bits(arch: str, kind: str, step: int, sign: int, less: int) -> None:
    """All products of the largest significands and one sign: partial sums leave 32 bits, or just do not."""
    case = Case(arch, "mma", kind, kind, "f32", step)
    fmt = case.formats[0]
    one = fmt.bias << fmt.mantissa
    largest = (one | ((1 << fmt.mantissa) - 1)) - less
    a, b = np.full((40, 72), largest | sign << (fmt.bits - 1)), np.full((72, 68), largest)
    a[5, 3], b[7, 9] = one, one
    bits = [x.astype(fmt.bits_dtype) for x in (a, b)]
    c = np.zeros((40, 68), np.uint32)
    d = nbtc.matmul(*(from_bits(x, fmt) for x in bits), arch=arch, instruction="mma")
    rows, columns = np.array([0, 5, 39]), np.array([0, 9, 67])
    want = case.oracle().matrix(bits[0][rows], bits[1][:, columns], c[np.ix_(rows, columns)])
    assert_bits_equal(to_bits(d)[np.ix_(rows, columns)], want, "f32", f"{case} {sign} {less}")
