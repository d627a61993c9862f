"""The compiled scalar core against the slow oracle, for every model row and every class of input."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from nbtc.formats.table import FORMATS, Format
from nbtc.numerics import models
from nbtc.numerics.exact import Oracle
from nbtc.numerics.fused import chain
from nbtc.numerics.ieee import add16, f32_to_f16, fma64, fma64_software
from nbtc.testing.cases import UNITS

WORDS = {64: np.uint64, 32: np.uint32, 16: np.uint16, 8: np.uint8, 4: np.uint8, 6: np.uint8, 1: np.uint8}


def bits(rng: np.random.Generator, fmt: Format, n: int, kind: str) -> NDArray[np.uint64]:
    """Element bits: uniform patterns, exponents around one (near) or the smallest (tiny), or few values."""
    sign = rng.integers(0, 2, n, dtype=np.uint64) << np.uint64(fmt.bits - 1)
    x = rng.integers(0, 1 << min(fmt.bits, 63), n, dtype=np.uint64) | sign
    if fmt.kind != "float" or kind == "uniform":
        return x
    low = fmt.bits - 1 - fmt.exponent
    field = {"near": fmt.bias + rng.integers(-6, 4, n), "tiny": rng.integers(0, 4, n)}.get(kind)
    if field is None:  # zeros of both signs, ones, Inf and NaN, and cancelling pairs
        one = fmt.bias << low
        top = ((1 << fmt.exponent) - 1) << low
        more = [top, top | 1, top | 1 << (low - 1)] if kind == "special" else [one | 1]
        pool = np.array([0, 0, 0, one, one, one, 1 << low, 1, *more], np.uint64)
        return pool[rng.integers(0, len(pool), n)] | sign
    mask = np.uint64(((1 << fmt.exponent) - 1) << low)
    return (x & ~mask) | (np.maximum(field, 0).astype(np.uint64) << np.uint64(low))


def configurations() -> Iterator[tuple[str, str, str, str, str, int, str]]:
    """(architecture, unit, a, b, accumulator, step, option)"""
    narrow = {"fp8": [("e4m3", "e5m2"), ("e4m3", "e4m3")], "fp6": [("e2m3", "e3m2")], "fp4": [("e2m1", "e5m2")]}
    for (arch, unit, family), row in ((k, models._ROWS[k]) for k in sorted(models._ROWS) if k[1] in UNITS):
        pairs = narrow.get(family, [(family, family)])
        steps = {"tf32": [4, 8], "fp8": [16, 32], "fp6": [32], "fp4": [32]}.get(family, [8, 16])
        for a, b in pairs:
            for acc in ["f32", "f16"] if a in ("f16", "e4m3") else ["f32"]:
                for step in [4] if unit == "quad" else steps:
                    if step >= row.block or row.kind != models.Kind.FUSED:
                        yield arch, unit, a, b, acc, step, "rn"
    for rounding in models.ROUNDINGS:
        yield "sm_90", "mma", "f64", "f64", "f64", 4, rounding
    for a, b in [("s8", "u8"), ("u8", "s8"), ("s4", "u4"), ("u4", "u4")]:
        for saturate in ("wrap", "saturate"):
            yield "sm_90", "mma", a, b, "s32", 16, saturate
    for op in models.BIT_OPS:
        yield "sm_90", "mma", "b1", "b1", "s32", 128, op


@pytest.mark.parametrize("case", list(configurations()), ids=lambda c: "-".join(map(str, c)))
def test_chain_is_the_oracle(case: tuple[str, str, str, str, str, int, str]) -> None:
    arch, unit, a_name, b_name, acc_name, step, option = case
    a, b, acc = FORMATS[a_name], FORMATS[b_name], FORMATS[acc_name]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        row = models.model(arch, unit, a)
    named = {
        "saturate": option == "saturate",
        "rounding": option if option in models.ROUNDINGS else "rn",
        "op": option if option in models.BIT_OPS else "xor",
    }
    params = models.params(row, a, b, acc, step, **named)
    oracle = Oracle(row, a, b, acc, step, **named)
    rng = np.random.default_rng(zlib.crc32(repr(case).encode()))
    kinds = ("near", "uniform", "tiny", "special", "cancel") if a.kind == "float" else ("uniform",) * 3
    for n in range(60):
        kind, kind_c = kinds[n % len(kinds)], kinds[n // 5 % len(kinds)]
        k = (step, 2 * step, step + step // 2 + 1, 1, 0)[n % 7 % 5]
        x, y = (bits(rng, f, k, kind).astype(WORDS[f.bits]) for f in (a, b))
        c = int(bits(rng, acc, 1, kind_c)[0])
        got = int(chain(x, 0, 1, y, 0, 1, k, np.uint64(c), params))
        want = oracle.dot(x.tolist(), y.tolist(), c)
        assert got == want, f"k={k} {kind}/{kind_c}: {got:#x}, not {want:#x}; a={x.tolist()} b={y.tolist()} c={c:#x}"


def test_strides_and_starts() -> None:
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    params = models.params(models.model("sm_90", "mma", f16), f16, f16, f32, 16)
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(200).astype(np.float16).view(np.uint16) for _ in range(2))
    dense = chain(a[7:167:5].copy(), 0, 1, b[150::-4][:32].copy(), 0, 1, 32, np.uint64(0), params)
    assert dense == chain(a, 7, 5, b, 150, -4, 32, np.uint64(0), params)


def exact_fma64(a: int, b: int, c: int, mode: str) -> int:
    f64 = FORMATS["f64"]
    return Oracle(models.model("sm_90", "mma", f64), f64, f64, f64, 1, rounding=mode).dot([a], [b], c)


DOUBLES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.floats(allow_nan=False).map(lambda x: int(np.float64(x).view(np.uint64))),
    st.sampled_from([0, 1, 1 << 63, 0x7FF << 52, 0xFFF << 52, (0x7FF << 52) + 1, (1 << 52) - 1, (0x3FF << 52) + 1]),
)


@settings(max_examples=600, deadline=None)
@given(DOUBLES, DOUBLES, DOUBLES, st.sampled_from(list(models.ROUNDINGS)))
def test_fma64(a: int, b: int, c: int, mode: str) -> None:
    want = exact_fma64(a, b, c, mode)
    words = [np.uint64(x) for x in (a, b, c)]
    assert int(fma64(*words, models.ROUNDINGS[mode])) == want
    assert int(fma64_software(*words, models.ROUNDINGS[mode])) == want


@settings(max_examples=300, deadline=None)
@given(
    st.floats(1e-300, 1e300), st.floats(1e-150, 1e150), st.integers(-3, 3), st.integers(1, 108),
    st.sampled_from(list(models.ROUNDINGS)),
)  # fmt: skip
def test_fma64_near_cancellation(a: float, b: float, ulps: int, apart: int, mode: str) -> None:
    """c close to minus the product, or just below what rounding sees."""
    for c in (-a * b, np.ldexp(a * b, -apart)):
        x, y, z = (int(np.float64(v).view(np.uint64)) for v in (a, b, c))
        z = max(0, min(z + ulps, 2**64 - 1))
        want = exact_fma64(x, y, z, mode)
        assert int(fma64_software(np.uint64(x), np.uint64(y), np.uint64(z), models.ROUNDINGS[mode])) == want


@pytest.mark.parametrize("mode", list(models.ROUNDINGS))
def test_fma64_where_it_turns(mode: str) -> None:
    """Ties and their neighbours, carries into the next binade, cancellation to a few bits; large, small, subnormal."""
    ulp = 2.0**-52
    rests = [x * (1 + e) for x in (0.25, 0.5, 0.75, 1.0) for e in (-ulp / 2, 0.0, ulp)]  # what c lacks, in its ulps
    found = [(ulp, r, 1 + n * ulp) for r in rests for n in (0, 1, 2, 3, 2**52 - 2, 2**52 - 1)]
    rng = np.random.default_rng(3)
    for a, b, q in 1 + rng.random((40, 3)):
        found += [(a, b, -a * b), (a, b, -a * b * (1 + ulp)), (a, b, -a * b * 2.0 ** -int(100 * q - 99))]
    scales = [(0, 0), (0, 1022), (-40, -1022), (0, -1022), (-540, -530)]
    with np.errstate(all="ignore"):
        cases = [
            np.array([np.ldexp(f * a, p), np.ldexp(b, q), np.ldexp(g * c, p + q)]).view(np.uint64).tolist()
            for a, b, c in found for p, q in scales for f in (1, -1) for g in (1, -1)
        ]  # fmt: skip
    for a, b, c in cases:
        got = int(fma64_software(np.uint64(a), np.uint64(b), np.uint64(c), models.ROUNDINGS[mode]))
        want = exact_fma64(a, b, c, mode)
        assert got == want, f"{mode} {a:#x} * {b:#x} + {c:#x}: {got:#x}, not {want:#x}"


def test_half_rounding() -> None:
    """f32 to f16 and f16 + f16 against NumPy, which rounds both to nearest even."""
    rng = np.random.default_rng(2)
    x = rng.integers(0, 1 << 32, 4000, dtype=np.uint32)
    x = np.concatenate([x, (x & 0x007FE000) | (rng.integers(90, 150, 4000, dtype=np.uint32) << 23) | (x & 0x80001000)])
    with np.errstate(all="ignore"):
        want = x.view(np.float32).astype(np.float16).view(np.uint16)
        h, g = (rng.integers(0, 1 << 16, 4000, dtype=np.uint16) for _ in range(2))
        total = (h.view(np.float16) + g.view(np.float16)).view(np.uint16)
    for bits32, w in zip(x.tolist(), want.tolist(), strict=True):
        got = f32_to_f16(np.int64(bits32))
        assert got == w or (w & 0x7C00 == 0x7C00 and w & 0x3FF and got == 0x7FFF)
    for p, q, w in zip(h.tolist(), g.tolist(), total.tolist(), strict=True):
        got = add16(np.int64(p), np.int64(q))
        assert got == w or (w & 0x7C00 == 0x7C00 and w & 0x3FF and got == 0x7FFF)
