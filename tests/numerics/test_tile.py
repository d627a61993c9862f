"""Vector tiles against the scalar dot product, on operands made to be hard."""

import zlib

import numpy as np
import pytest

from nbtc.formats.table import FORMATS
from nbtc.kernels.rows.rows import Decoded, Picks, Sizes, decode, fused_tile, mark_specials, panels, redo_tile
from nbtc.kernels.words.int_dot import bit_tile, integer_tile
from nbtc.numerics import models
from nbtc.testing.cases import chains

M, N = 24, 64


def by_chains(a, b, c, pick, pick_step, params):
    """One chain an output: element t of row i of A meets row pick[i * pick_step + t] of B."""
    a, b, c = (x.reshape(rows, -1) for x, rows in ((a, M), (b, b.size // N), (c, M)))
    k = a.shape[1]
    rows = [b[pick[i * pick_step :][:k]] for i in range(M)]
    lines = [chains(a[i : i + 1], rows[i], c[i : i + 1], params) for i in range(M)]
    return np.concatenate(lines).reshape(-1)


def bits(rng, fmt, shape, exponents):
    """Random signs and significands, exponent fields from a range (cut to the format's), some zeros."""
    f = FORMATS[fmt]
    low = 32 - 1 - f.exponent - f.mantissa if fmt == "tf32" else 0
    field = np.clip(rng.integers(*exponents, shape) + f.bias, 0, (1 << f.exponent) - 1)
    word = rng.integers(0, 2, shape) << (f.exponent + f.mantissa) | field << f.mantissa
    word |= rng.integers(0, 1 << f.mantissa, shape)
    word[rng.random(shape) < 0.05] = 0
    return (word << low | rng.integers(0, 1 << low, shape)).astype(np.uint32).reshape(-1)


# exponents of a and b, and of c: ordinary, far apart, near the bottom, near the top, everything
CLASSES = {
    "near": ((-3, 3), (-3, 6)),
    "wide": ((-14, 14), (-30, 30)),
    "bottom": ((-80, -50), (-151, -120)),
    "small": ((-20, -5), (-20, -10)),
    "top": ((8, 70), (10, 128)),
    "all": ((-130, 129), (-130, 129)),
}
FORMS = [
    ("f16", "f16", "f32", "sm_90", 16), ("f16", "f16", "f16", "sm_90", 16), ("bf16", "bf16", "f32", "sm_90", 16),
    ("tf32", "tf32", "f32", "sm_90", 8), ("e4m3", "e5m2", "f32", "sm_90", 32), ("e5m2", "e5m2", "f16", "sm_90", 32),
    ("f16", "f16", "f32", "sm_80", 16), ("f16", "f16", "f16", "sm_70", 16), ("tf32", "tf32", "f32", "sm_80", 8),
]  # fmt: skip


@pytest.mark.parametrize("a_name, b_name, acc, arch, step", FORMS)
def test_fused_tile_is_the_chain(a_name, b_name, acc, arch, step):
    a_fmt, b_fmt, c_fmt = FORMATS[a_name], FORMATS[b_name], FORMATS[acc]
    params = models.params(models.model(arch, "wgmma", a_fmt), a_fmt, b_fmt, c_fmt, step)
    store, k = panels(a_fmt, b_fmt), 2 * step
    rng = np.random.default_rng(zlib.crc32(f"{a_name}{b_name}{acc}{arch}".encode()))
    redone = 0
    for ab, cc in CLASSES.values():
        for repeat in range(2):
            a, b, c = bits(rng, a_name, (M, k), ab), bits(rng, b_name, (k, N), ab), bits(rng, acc, (M, N), cc)
            pick = np.arange(k) if repeat == 0 else rng.integers(0, k, M * k)
            pick_step = k * repeat
            av, ae = np.empty(M * k, store.value), np.empty(M * k, store.exponent)
            bv, be = np.empty(k * N, store.value), np.empty(k * N, store.exponent)
            rows, columns = np.zeros(M, np.uint8), np.zeros(N, np.uint8)
            if decode(a, a_fmt.code, store.zero, av, ae):
                mark_specials(a, a_fmt.code, M, k, True, rows)
            if decode(b, b_fmt.code, store.zero, bv, be):
                mark_specials(b, b_fmt.code, k, N, False, columns)
            got, redo = c.copy(), np.empty(M * N, np.uint8)
            sizes, picks = Sizes(M, N, k), Picks(pick, pick_step)
            if fused_tile(Decoded(av, ae, bv, be, rows, columns), got, redo, sizes, picks, params):
                redone += np.count_nonzero(redo)
                redo_tile(a, b, c, got, redo, N, sizes, picks, params)
            np.testing.assert_array_equal(got, by_chains(a, b, c, pick, pick_step, params))
    assert 0 < redone < M * N * len(CLASSES) * 2  # both ways were taken


def test_the_ends_of_int32_are_redone():
    """Sixteen products of the largest significands and c: the sum leaves int32."""
    f16, f32 = FORMATS["f16"], FORMATS["f32"]
    params = models.params(models.model("sm_90", "wgmma", f16), f16, f16, f32, 16)
    store = panels(f16, f16)
    a, b = np.full(M * 16, 0x3FFF, np.uint32), np.full(16 * N, 0x3FFF, np.uint32)
    c = np.full(M * N, np.float32(1.9999999).view(np.uint32), np.uint32)
    av, ae = np.empty(M * 16, store.value), np.empty(M * 16, store.exponent)
    bv, be = np.empty(16 * N, store.value), np.empty(16 * N, store.exponent)
    decode(a, f16.code, store.zero, av, ae), decode(b, f16.code, store.zero, bv, be)
    pick, redo, got = np.arange(16), np.empty(M * N, np.uint8), c.copy()
    none = np.zeros(N, np.uint8)
    decoded = Decoded(av, ae, bv, be, none[:M], none)
    assert fused_tile(decoded, got, redo, Sizes(M, N, 16), Picks(pick, 0), params) and redo.all()


@pytest.mark.parametrize("a_name, b_name, saturate", [("s8", "s8", False), ("s8", "u8", True), ("u8", "s8", False)])
def test_integer_tile_is_the_chain(a_name, b_name, saturate):
    rng = np.random.default_rng(3)
    a_fmt, b_fmt, s32 = FORMATS[a_name], FORMATS[b_name], FORMATS["s32"]
    params = models.params(models.model("sm_90", "wgmma", a_fmt), a_fmt, b_fmt, s32, 32, saturate=saturate)
    a, b = (rng.integers(0, 256, size).astype(np.uint32) for size in (M * 32, 64 * N))
    c = rng.choice(np.array([0, 0x7FFFFFFF, 0x80000000, 12345], np.uint32), M * N)
    pick = rng.integers(0, 64, M * 32)
    got = c.copy()
    integer_tile(a, b, got, Sizes(M, N, 32), Picks(pick, 32), params)
    want = by_chains(a.astype(np.uint8), b.astype(np.uint8), c, pick, 32, params)
    np.testing.assert_array_equal(got, want)
    assert (got != c).any()


@pytest.mark.parametrize("op", ["and", "xor"])
def test_bit_tile_counts(op):
    rng = np.random.default_rng(4)
    b1, s32 = FORMATS["b1"], FORMATS["s32"]
    params = models.params(models.model("sm_90", "wgmma", b1), b1, b1, s32, 256, op=op)
    a, b = (rng.integers(0, 1 << 32, size, dtype=np.uint32) for size in (M * 8, 8 * N))
    c = rng.integers(0, 1 << 32, M * N, dtype=np.uint32)
    got = c.copy()
    bit_tile(a, b, got, Sizes(M, N, 8), params)
    x, y = a.reshape(M, 8, 1), b.reshape(1, 8, N)
    both = x & y if op == "and" else x ^ y
    counts = np.unpackbits(both.view(np.uint8).reshape(M, 8, N, 4), axis=-1).sum((1, 3), dtype=np.uint32)
    np.testing.assert_array_equal(got, c + counts.reshape(-1))
