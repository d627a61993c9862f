"""Any shape, stride, batch and packing, and any engine or number of threads: the same bits."""

from __future__ import annotations

import dataclasses
import zlib
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nbtc
from nbtc.formats.arrays import from_bits, to_bits
from nbtc.formats.table import FORMATS
from nbtc.gemm import gemm, run
from nbtc.gemm.engines import words_engine
from nbtc.gemm.engines.engines import ENGINES, engines_for
from nbtc.gemm.planning import ProductOptions, prepare
from nbtc.testing import assert_bits_equal
from nbtc.testing.strategies import operands, strategies

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.UnvalidatedModelWarning")
# a, b, accumulator, options: one of each arithmetic
KINDS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "f16": ("f16", "f16", "f32", {}),
    "f16-sm_80": ("f16", "f16", "f32", {"arch": "sm_80"}),
    "f16-sm_70": ("f16", "f16", "f32", {"arch": "sm_70"}),
    "f16-half": ("f16", "f16", "f16", {}),
    "f16-half-sm_80": ("f16", "f16", "f16", {"arch": "sm_80"}),
    "bf16": ("bf16", "bf16", "f32", {}),
    "tf32": ("tf32", "tf32", "f32", {}),
    "tf32-sm_80": ("tf32", "tf32", "f32", {"arch": "sm_80"}),
    "e4m3": ("e4m3", "e4m3", "f32", {}),
    "e5m2-e4m3": ("e5m2", "e4m3", "f32", {}),
    "e5m2-half": ("e5m2", "e5m2", "f16", {}),
    "e4m3-sm_89": ("e4m3", "e4m3", "f32", {"arch": "sm_89"}),
    "e4m3-mma": ("e4m3", "e4m3", "f32", {"instruction": "mma"}),
    "e5m2-half-mma": ("e5m2", "e5m2", "f16", {"instruction": "mma"}),
    "e4m3-sm_120": ("e4m3", "e4m3", "f32", {"arch": "sm_120"}),
    "f64": ("f64", "f64", "f64", {}),
    "s8": ("s8", "s8", "s32", {}),
    "u8-s8": ("u8", "s8", "s32", {"instruction": "mma"}),
    "s8-saturate": ("s8", "u8", "s32", {"instruction": "mma", "saturate": True}),
    "s4-u4": ("s4", "u4", "s32", {}),
    "s4-saturate": ("s4", "s4", "s32", {"saturate": True}),
    "b1": ("b1", "b1", "s32", {}),
    "b1-and": ("b1", "b1", "s32", {"op": "and"}),
}
PLAIN = ("f16", "f16-half", "bf16", "e4m3", "e4m3-mma", "f64", "s8", "s4-u4", "b1")
Arrays = tuple[np.ndarray, np.ndarray, np.ndarray]


def problem(kind: str, shape: tuple[int, int, int], strategy: str | None = None) -> tuple[Arrays, dict[str, Any]]:
    """A, B and C of one strategy (default: the first of the format), and matmul's options."""
    a, b, acc, options = KINDS[kind]
    formats = [FORMATS[f] for f in (a, b, acc)]
    strategy = strategy or strategies(formats[0])[0]
    rng = np.random.default_rng(zlib.crc32(f"{kind} {shape} {strategy}".encode()))
    bits = operands(rng, strategy, shape, *formats)
    x, y, c = (from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, formats, strict=True))
    return (x, y, c), options | {"acc": acc}


def forced(engine: str, a: Any, b: Any, c: Any, threads: int = 2, **options: Any) -> np.ndarray:
    """The product by an engine of our choice."""
    p = prepare(a, b, c, ProductOptions(threads=threads, **options))
    p.plan = dataclasses.replace(p.plan, engine=engine)
    return run._execute(p, None, False)


def engines(a: Any, b: Any, c: Any, options: dict[str, Any]) -> tuple[str, ...]:
    """Engines that can compute this product, whatever its size, the slow one last."""
    return tuple(
        engine.name for engine in engines_for(prepare(a, b, c, ProductOptions(**options)).plan.params, ENGINES)
    )


def same(got: np.ndarray, want: np.ndarray, what: str) -> None:
    """Equal bits, shape and dtype."""
    assert_bits_equal(got, want, None, what)


@pytest.mark.parametrize("kind", KINDS)
def test_engines_agree(kind: str) -> None:
    """Every engine, on every strategy, with edges in all directions and a zero or absent c."""
    for strategy in strategies(FORMATS[KINDS[kind][0]]):
        for shape in ((5, 70, 33), (67, 66, 97), (66, 3, 200)):
            (a, b, c), options = problem(kind, shape, strategy)
            for start in (c, None):
                names = engines(a, b, start, options)
                want = forced(names[-1], a, b, start, **options)
                for name in names[:-1]:
                    same(forced(name, a, b, start, **options), want, f"{kind} {strategy} {shape} {name} c={start is c}")


@pytest.mark.parametrize("kind", PLAIN)
def test_inf_and_nan_in_single_elements(kind: str) -> None:
    """One special element of A, B or C reaches exactly its row, column or output; threads 1 and 3 agree."""
    (a, b, c), options = problem(kind, (70, 130, 80))
    formats = [FORMATS[f] for f in KINDS[kind][:3]]
    operands_ = [to_bits(v).copy() for v in (a, b, c)]
    places = [(3, 7), (50, 100), (20, 20)]
    for side in range(3):
        fmt = formats[side]
        if fmt.kind == "float":
            field = ((1 << fmt.exponent) - 1) << (fmt.bits - 1 - fmt.exponent)
            code = field | (
                (1 << fmt.mantissa) - 1 if not fmt.infinite else (side == 1) << (fmt.bits - 2 - fmt.exponent)
            )
        else:
            code = {1: 1, 4: 8, 8: 128, 32: 1 << 31}[fmt.bits]
        operands_[side][places[side]] = code
    a, b, c = (from_bits(v, f) for v, f in zip(operands_, formats, strict=True))
    want = forced("chain", a, b, c, **options)
    for threads in (1, 3):
        same(nbtc.matmul(a, b, c, threads=threads, **options), want, f"{kind} {threads} threads")


@pytest.mark.parametrize("kind", ["f64", "s8", "u8-s8", "s4-u4", "b1"])
def test_one_call_and_blocks_agree(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small product of words is one compiled call; packed and multiplied block by block it has the same bits."""
    (a, b, c), options = problem(kind, (97, 70, 264))
    once = [nbtc.matmul(a, b, start, threads=1, **options) for start in (None, c)]
    monkeypatch.setattr(words_engine, "WHOLE", 0)
    monkeypatch.setattr(words_engine.WordsProduct, "_whole", None)  # is not called
    for got, start in zip(once, (None, c), strict=True):
        same(nbtc.matmul(a, b, start, threads=1, **options), got, f"{kind} c={start is c}")


@pytest.mark.parametrize("kind", ["f64", "s8", "s4-u4", "b1"])
@pytest.mark.parametrize("shape", [(13, 70, 40), (100, 65, 2100)])
def test_memory_that_held_something_else(
    kind: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Products of words write their result into memory as it comes."""
    (a, b, _), options = problem(kind, shape)
    want = nbtc.matmul(a, b, np.zeros((shape[0], shape[1]), FORMATS[options["acc"]].dtype), **options)
    monkeypatch.setattr(run, "np", SimpleNamespace(**vars(np) | {"empty": lambda n, t: np.full(n, 0x7FF5A5A5, t)}))
    p = prepare(a, b, None, ProductOptions(threads=2, **options))
    p.plan = dataclasses.replace(p.plan, engine="words")
    same(run._execute(p, None, False), want, f"{kind} {shape}")


@pytest.mark.parametrize("kind", ["f16", "bf16", "e4m3", "s8", "f64", "b1"])
@pytest.mark.parametrize("shape", [(65, 1030, 520), (3, 65, 2056), (129, 33, 1030)])
def test_block_boundaries(kind: str, shape: tuple[int, int, int]) -> None:
    """A little more than the blocks of the fast kernels; checked on whole rows and columns at the seams."""
    (a, b, c), options = problem(kind, shape)
    m, n, _ = shape
    rows, columns = (
        [i for i in (0, 63, 64, m - 1) if i < m],
        [j for j in (0, 31, 32, 63, 64, 1023, 1024, n - 1) if j < n],
    )
    full = {t: nbtc.matmul(a, b, c, threads=t, **options) for t in (1, 2)}
    same(full[1], full[2], f"{kind} {shape} threads")
    same(full[1][rows], forced("chain", a[rows], b, c[rows], **options), f"{kind} {shape} rows")
    part = forced("chain", a, b[:, columns], np.ascontiguousarray(c[:, columns]), **options)
    same(np.ascontiguousarray(full[1][:, columns]), part, f"{kind} {shape} columns")


@pytest.mark.parametrize(
    "kind", ["f16", "f16-sm_80", "f16-half", "bf16", "tf32", "e5m2-e4m3", "e4m3-mma", "e4m3-sm_120"]
)
def test_largest_sums(kind: str) -> None:
    """All-ones significands of one sign: sums of a block near 2**31 units, and accumulators of every size."""
    a_name, b_name, acc, _ = KINDS[kind]
    fa, fb, fc = FORMATS[a_name], FORMATS[b_name], FORMATS[acc]
    drop = 13 if a_name == "tf32" else 0

    def full(fmt: Any, exponent: int, size: tuple[int, int]) -> np.ndarray:
        low = (1 << fmt.mantissa) - 1 - (not fmt.infinite)
        bits = (((exponent + fmt.bias) << fmt.mantissa) | low) << drop
        return from_bits(np.full(size, bits, fmt.bits_dtype), fmt)

    (_, _, c), options = problem(kind, (65, 70, 64), "wide")
    c[0], c[1], c[2], c[3] = np.inf, np.nan, 0.0, -0.0
    c[4:8] = np.array([1e-30, -1e-38, 1e30, -3e38] if acc == "f32" else [6e-8, -6e-8, 65504, -65504], fc.dtype)[:, None]
    with np.errstate(over="ignore"):
        for exponent in (0, min(fa.bias, fb.bias, 7), -min(fa.bias - 1, 7)):
            a, b = full(fa, exponent, (65, 64)), full(fb, exponent, (64, 70))
            for x in (a, -a):
                want = forced("chain", x, b, c, **options)
                for name in engines(x, b, c, options)[:-1]:
                    same(forced(name, x, b, c, **options), want, f"{kind} 2**{exponent} {name}")


@pytest.mark.parametrize("kind", KINDS)
def test_every_small_shape(kind: str) -> None:
    """M, N, K from nothing to a little: shapes are right, sums over nothing are c bit for bit."""
    for m, n, k in np.ndindex(3, 3, 3):
        (a, b, c), options = problem(kind, (m, n, k))
        d = nbtc.matmul(a, b, c, **options)
        assert d.shape == (m, n) and d.dtype == c.dtype
        if k == 0:
            same(d, c, f"{kind} {(m, n, k)}")
            assert not to_bits(nbtc.matmul(a, b, **options)).any()
    for shape in ((1, 130, 40), (130, 1, 40), (1, 1, 700)):
        (a, b, c), options = problem(kind, shape)
        same(nbtc.matmul(a, b, c, **options), forced("chain", a, b, c, **options), f"{kind} {shape}")


def test_no_depth_copies_c() -> None:
    """K = 0: NaN payloads, signalling ones, and -0 of every accumulator survive, in a new array, split or not."""
    for kind, patterns in (
        ("f16", [0x80000000, 0x7FA00001, 0xFFC12345, 1]),
        ("f16-half", [0x8000, 0x7D01, 0xFE55, 1]),
        ("f64", [1 << 63, 0x7FF4000000000001, 0xFFF8000000001234, 1]),
        ("s8", [1 << 31, 5, 6, 7]),
    ):
        (a, b, c), options = problem(kind, (70, 66, 0))
        c = from_bits(np.resize(np.array(patterns, to_bits(c).dtype), (70, 66)), FORMATS[KINDS[kind][2]])
        out = np.ones_like(c)
        for more in ({}, {"k_split": 3}, {"out": out}):
            d = nbtc.matmul(a, b, c, **options, **more)
            same(d, c, f"{kind} {list(more)}")
            assert not np.shares_memory(d, c)
        x = np.zeros((2, 0, 66), c.dtype)
        assert nbtc.matmul(np.zeros((2, 0, 8), a.dtype), np.zeros((8, 66), a.dtype), x, **options).shape == x.shape


@pytest.mark.parametrize("kind", ["f16", "e4m3-mma", "s8", "f64", "b1", "s4-u4", "tf32"])
def test_batches_broadcast(kind: str) -> None:
    """Batch axes of a, b and c follow NumPy; each item is the product of its matrices; empty batches are fine."""
    (a, b, c), options = problem(kind, (7 * 3, 40, 72))
    a3, c3 = a.reshape(3, 7, 72), c.reshape(3, 7, 40)
    b4 = np.stack([b, b[::-1]])[:, None]
    d = nbtc.matmul(a3, b4, c3, **options)
    assert d.shape == (2, 3, 7, 40)
    for i, j in np.ndindex(2, 3):
        same(d[i, j], nbtc.matmul(a3[j], b4[i, 0], c3[j], **options), f"{kind} {(i, j)}")
    more = nbtc.matmul(a3[:1], b, c3, **options)  # only c has the batch
    for j in range(3):
        same(more[j], nbtc.matmul(a3[0], b, c3[j], **options), f"{kind} c {j}")
    big, two = np.concatenate([a] * 4), np.concatenate([c] * 4)  # beyond the small-product engine
    items = nbtc.matmul(np.stack([big, big[::-1]]), b, np.stack([two, two]), **options)
    same(items[1], nbtc.matmul(big[::-1], b, two, **options), f"{kind} large batch")
    assert nbtc.matmul(a3[:0], b, **options).shape == (0, 7, 40)


def views(x: np.ndarray) -> dict[str, np.ndarray]:
    """The same matrix in other layouts."""
    wide = np.zeros((2 * x.shape[0], 3 * x.shape[1]), x.dtype)
    wide[::2, ::3] = x
    readonly = x.copy()
    readonly.flags.writeable = False
    found = {
        "strided": wide[::2, ::3],
        "backward": np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1],
        "Fortran": np.asfortranarray(x),
        "transposed": np.ascontiguousarray(x.T).T,
        "read-only": readonly,
    }
    if x.dtype.kind in "f" or x.dtype == np.int32:
        found["swapped bytes"] = x.astype(x.dtype.newbyteorder())
    return found


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("shape", [(9, 11, 40), (66, 70, 72)])
def test_layouts(kind: str, shape: tuple[int, int, int]) -> None:
    """Strides, order, byte order and permissions of the operands change nothing, and operands stay as they are."""
    (a, b, c), options = problem(kind, shape)
    want = nbtc.matmul(a, b, c, **options)
    left, right, third = views(a), views(b), views(c)
    names = sorted(left)
    for i, name in enumerate(names):
        other, last = names[(i + 1) % len(names)], sorted(third)[i % len(third)]
        same(nbtc.matmul(left[name], right[other], third[last], **options), want, f"{kind} {name} x {other} + {last}")
    row, column = np.broadcast_to(a[:1], a.shape), np.broadcast_to(b[:, :1], b.shape)
    repeated = nbtc.matmul(row, column, np.broadcast_to(c[:1, :1], c.shape), **options)
    one = nbtc.matmul(a[:1], b[:, :1], c[:1, :1], **options)
    same(repeated, np.ascontiguousarray(np.broadcast_to(one, c.shape)), f"{kind} zero strides")


@pytest.mark.parametrize("kind", ["f16-half", "tf32", "f64"])
@pytest.mark.parametrize("size", [20, 72])
def test_out_may_overlap_the_operands(kind: str, size: int) -> None:
    """out = c, a shifted view of c, a or b: the result is that of distinct arrays, and out is returned."""
    (a, b, c), options = problem(kind, (size, size, size))
    want = nbtc.matmul(a, b, c, **options)
    for which in range(3):
        copies = [a.copy(), b.copy(), c.copy()]
        d = nbtc.matmul(*copies, out=copies[which], **options)
        assert d is copies[which]
        same(d, want, f"{kind} out is operand {which}")
    memory = np.zeros((size + 1, size), c.dtype)
    memory[:size] = c
    same(nbtc.matmul(a, b, memory[:size], out=memory[1:], **options), want, f"{kind} shifted")
    target = np.zeros((2 * size, size), c.dtype)[::-2].T.view()
    same(np.ascontiguousarray(nbtc.matmul(a, b, c, out=target, **options)), want, f"{kind} strided out")


@pytest.mark.parametrize("fmt", ["s4", "u4", "b1"])
@pytest.mark.parametrize("k", [5, 8, 31, 64, 200, 264])
def test_packed_words(fmt: str, k: int) -> None:
    """Words along K, on either side or both, any layout, split or not, are the elements they hold."""
    rng = np.random.default_rng(k)
    f, m, n = FORMATS[fmt], 40, 65
    a, b = (
        rng.integers(f.low, f.high + 1, (m, k)).astype(f.dtype),
        rng.integers(f.low, f.high + 1, (k, n)).astype(f.dtype),
    )
    c = rng.integers(-(2**31), 2**31, (m, n)).astype(np.int32)
    aw, bw = nbtc.pack(a, f), nbtc.pack(b, f, axis=-2)
    bf, formats = np.asfortranarray(bw), {"a_format": fmt, "b_format": f}
    for more in ({}, {"k_split": 24}, {"op": "and"} if fmt == "b1" else {"saturate": True}):
        want = nbtc.matmul(a, b, c, **more)
        same(want, forced("chain", a, b, c, **more), f"{fmt} {k} {more}")
        same(nbtc.matmul(aw, b, c, a_format=fmt, **more), want, f"{fmt} {k} packed a {more}")
        same(nbtc.matmul(a, bf, c, b_format=fmt, **more), want, f"{fmt} {k} packed b {more}")
        padded = want  # words hold zeros beyond K, which add nothing
        same(nbtc.matmul(aw, bf, c, **formats, **more), padded, f"{fmt} {k} both packed {more}")
    batch = nbtc.matmul(np.stack([aw, aw[::-1]]), bw, c, **formats)
    same(batch[1], nbtc.matmul(aw[::-1], bw, c, **formats), f"{fmt} {k} batch")


@pytest.mark.parametrize("kind", PLAIN)
@pytest.mark.parametrize("shape", [(6, 7, 100), (65, 66, 300)])
def test_k_split_is_manual_splits(kind: str, shape: tuple[int, int, int]) -> None:
    """Parts from zero, added in ascending order; c last.  A chunk beyond K is one chain from zero, plus c."""
    (a, b, c), options = problem(kind, shape)
    k = shape[2]
    for chunk in (1, 7, 64, k, k + 9):
        if chunk == 1 and shape[0] > 6:
            continue
        parts = [nbtc.matmul(a[:, s : s + chunk], b[s : s + chunk], **options) for s in range(0, k, chunk)]
        total = parts[0]
        with np.errstate(all="ignore"):
            for part in [*parts[1:], c]:
                total = total + part
        d = nbtc.matmul(a, b, c, k_split=chunk, **options)
        same(np.where(np.isnan(d), 0, d), np.where(np.isnan(total), 0, total), f"{kind} {shape} {chunk}")
        assert (np.isnan(d) == np.isnan(total)).all()


@pytest.mark.parametrize("kind", ["f16", "f16-half", "e4m3", "f64", "s8", "b1"])
def test_gemm_rounds_each_operation(kind: str) -> None:
    """alpha * acc, beta * c and the sum, each in C's type; float16 C: in float32, one rounding."""
    (a, b, c), options = problem(kind, (33, 34, 96))
    product = nbtc.matmul(a, b, **options)
    scales = ((2, -3), (2**31 - 1, 7), (0, 1)) if product.dtype == np.int32 else ((0.3, -1.7), (1e-3, 3.0), (0.0, 1.0))
    with np.errstate(all="ignore"):
        for alpha, beta in scales:
            x, y = product.dtype.type(alpha), product.dtype.type(beta)
            if product.dtype == np.float16:
                f = np.float32
                want = (f(x) * product.astype(f) + f(y) * c.astype(f)).astype(np.float16)
            else:
                want = x * product + y * c
            d = gemm(alpha, a, b, beta, c, **options)
            same(np.where(np.isnan(d), 0, d), np.where(np.isnan(want), 0, want), f"{kind} {alpha} {beta}")
            kept = c.copy()
            assert gemm(alpha, a, b, beta, kept, out=kept, **options) is kept
            same(kept, d, f"{kind} in place")
        if KINDS[kind][2] == "f32":
            half = c.astype(np.float16)
            d = gemm(0.3, a, b, 1.5, half, **options)
            f = np.float32
            scaled = f(np.float16(0.3)) * product + f(1.5) * half.astype(f)
            same(d, scaled.astype(np.float16), f"{kind} float16 C")
    same(gemm(1, a, b, 0, None, **options), product + product.dtype.type(0), f"{kind} no C")


def test_an_f16_c_widens() -> None:
    """c float16 with a float32 accumulator is its value in float32, subnormals and infinities too."""
    (a, b, _), options = problem("f16", (40, 66, 48))
    bits = np.arange(40 * 66, dtype=np.uint16).reshape(40, 66) * np.uint16(23)
    c = np.where(np.isnan(bits.view(np.float16)), np.float16(-0.0), bits.view(np.float16))
    same(nbtc.matmul(a, b, c, **options), nbtc.matmul(a, b, c.astype(np.float32), **options), "widened")


def test_low_bits_of_tf32_are_ignored() -> None:
    """float32 multiplicands are read as the hardware reads tf32; a NaN only in the low bits is an infinity."""
    (a, b, c), options = problem("tf32", (66, 65, 40), "wide")
    x, y = to_bits(a) | np.uint32(0x1FFF), to_bits(b) | np.uint32(0x0ABC)
    cut = [(v & np.uint32(0xFFFFE000)).view(np.float32) for v in (x, y)]
    same(nbtc.matmul(x.view(np.float32), y.view(np.float32), c, **options), nbtc.matmul(*cut, c, **options), "low bits")
    x[3, 3] = 0x7F800001
    y[:] = np.float32(2).view(np.uint32)
    row = nbtc.matmul(x.view(np.float32), y.view(np.float32), np.zeros_like(c), **options)[3]
    assert np.isposinf(row).all()


def test_int4_codes_may_carry_high_bits() -> None:
    """One element a byte: only its low nibble is the number."""
    rng = np.random.default_rng(4)
    bits = [rng.integers(0, 256, s, dtype=np.uint8) for s in ((66, 40), (40, 70))]
    dirty = [v.view(ml_dtypes.int4) for v in bits]
    clean = [(v & np.uint8(15)).view(ml_dtypes.int4) for v in bits]
    same(nbtc.matmul(*dirty), nbtc.matmul(*clean), "nibbles")
