"""The vector kernels of whole warpgroups against the scalar chain and the general path that they fall back to."""

import numpy as np
import pytest

from nbtc.compiler.cpu.lowering import host
from nbtc.compiler.jit import jit
from nbtc.compiler.pools import output_pool
from nbtc.formats.table import FORMATS
from nbtc.isa.archs import arch
from nbtc.isa.parse import row as parse
from nbtc.numerics.fused import chain
from nbtc.ops.wgmma import general as warpgroup
from nbtc.ops.wgmma import known, product
from nbtc.ops.wgmma.tile import PAST_CACHES
from nbtc.wgmma import Descriptor, tile_to_smem

FLOATS = {
    "f32.f16.f16": 16, "f16.f16.f16": 16, "f32.bf16.bf16": 16, "f32.tf32.tf32": 8, "f32.e4m3.e5m2": 32,
    "f16.e5m2.e4m3": 32,
}  # fmt: skip
WORDS = {
    "s32.s8.s8": 32, "s32.s8.u8.satfinite": 32, "s32.u8.s8": 32, "s32.u8.u8.satfinite": 32, "s32.b1.b1.and.popc": 256,
}  # fmt: skip
ALL = {**FLOATS, **WORDS}


def name(types, n):
    return f"wgmma.mma_async.sync.aligned.m64n{n}k{ALL[types]}.{types}"


def formats(types):
    return [FORMATS[x] for x in types.split(".")[:3]]


def elements(rng, fmt, count, least, most):
    """Random elements as bits, one a word or byte; exponent fields of floats from least to most."""
    x = rng.integers(0, 1 << fmt.bits, count, dtype=np.uint64)
    if fmt.kind == "float":
        shift = fmt.bits - 1 - fmt.exponent
        field = rng.integers(least, most + 1, count).astype(np.uint64)
        x = x & np.uint64(~(((1 << fmt.exponent) - 1) << shift) & 0xFFFFFFFF) | field << np.uint64(shift)
        x[rng.random(count) < 0.1] &= np.uint64(1 << (fmt.bits - 1))  # zeros of both signs
    return x.astype(f"u{max(8, fmt.bits) // 8}")


def narrow(fmt):
    """Fields that the vector kernel takes: every finite f16 or fp8 one, 30 binades of the others."""
    if fmt.exponent <= 5:
        return 0, (1 << fmt.exponent) - 2
    return fmt.bias - 20, fmt.bias + 9


def ordinary(fmt):
    """Fields of numbers near one."""
    return (fmt.bias - 6, fmt.bias + 1) if fmt.kind == "float" else (0, 0)


def registers(rng, types, n, groups, fields=(100, 150)):
    """Accumulators: f32 with exponent fields in a range, finite f16, or any integers."""
    kind = types.split(".")[0]
    x = rng.integers(0, 1 << 32, (groups, 128, n // 4 if kind == "f16" else n // 2), dtype=np.uint64)
    if kind == "f32":
        x = x & np.uint64(0x807FFFFF) | rng.integers(*fields, x.shape).astype(np.uint64) << np.uint64(23)
    return (x & np.uint64(0xBFFFBFFF) if kind == "f16" else x).astype(np.uint32)


def case(types, n, seed, fields=narrow, groups=2):
    """Operands in shared memory with random descriptors, A from registers for odd seeds."""
    rng = np.random.default_rng(seed)
    _, a, b = formats(types)
    images = [elements(rng, f, groups * 12288 * 8 // max(8, f.bits), *fields(f)).view(np.uint8) for f in (a, b)]
    smem = np.concatenate([x.reshape(groups, -1) for x in images], 1)
    step = lambda: 16 * int(rng.integers(1, 16))  # noqa: E731
    descriptors = [Descriptor(at, step(), step(), swizzle=str(rng.choice(["none", "64B"]))) for at in (0, 12288)]
    if seed % 2:
        descriptors[0] = images[0].view(np.uint32)[: groups * 512].reshape(groups, 128, 4).copy()
    options = {}
    if a.kind == "float":
        options = {"scale_a": int(rng.choice([1, -1])), "scale_b": int(rng.choice([1, -1]))}
    if a.bits == 16:
        options |= {"trans_a": int(rng.integers(2)) if seed % 2 == 0 else 0, "trans_b": int(rng.integers(2))}
    return (parse(name(types, n)), registers(rng, types, n, groups), *descriptors, smem), options


def general(monkeypatch, positional, options):
    """The result of the general path, which is no product that is known, and which none becomes."""
    known.cache_clear()
    with monkeypatch.context() as m:
        m.setattr(product, "_kernel", lambda form, task: None)
        result = product.execute(*positional, **options)
    known.cache_clear()
    return result


@pytest.mark.parametrize("n", [8, 24, 64, 256])
@pytest.mark.parametrize("types", ALL)
def test_both_paths_agree(monkeypatch, types, n):
    for seed in range(4):
        positional, options = case(types, n, seed)
        want = general(monkeypatch, positional, options)
        np.testing.assert_array_equal(product.execute(*positional, **options), want)


@pytest.mark.parametrize("types", ["f32.f16.f16", "f16.f16.f16", "s32.s8.s8"])
def test_large_results_are_those_of_their_parts(types):
    """They are written past the caches, small ones are not."""
    (row, d, *descriptors, smem), options = case(types, 256, 2, groups=40)
    whole = product.execute(row, d, *descriptors, smem, **options)
    assert d[:2].size <= PAST_CACHES < whole.size
    for g in range(0, 40, 2):
        part = product.execute(row, d[g : g + 2], *descriptors, smem[g : g + 2], **options)
        np.testing.assert_array_equal(whole[g : g + 2], part)


@pytest.mark.parametrize("types", ALL)
def test_ordinary_operands_need_no_other_path(monkeypatch, types):
    def fail(*args):
        raise AssertionError("the general path was taken")

    positional, options = case(types, 40 if types in FLOATS else 48, 2, ordinary)
    if host() is None:
        pytest.skip("no vector code for this processor")
    monkeypatch.setattr(warpgroup, "run", fail)
    assert product.execute(*positional, **options).any()


@pytest.mark.parametrize("fields", [(0, 1), (1, 60), (50, 90), (150, 190), (180, 254), (0, 255)])
@pytest.mark.parametrize("types", [t for t in FLOATS if t.startswith("f32")])
def test_accumulators_of_every_magnitude(monkeypatch, types, fields):
    positional, options = case(types, 32, 3)
    d = registers(np.random.default_rng(8), types, 32, 2, fields)
    positional = (positional[0], d, *positional[2:])
    np.testing.assert_array_equal(product.execute(*positional, **options), general(monkeypatch, positional, options))


@pytest.mark.parametrize("types", FLOATS)
def test_operands_out_of_range(monkeypatch, types):
    """Inf and NaN, exponents from end to end, subnormals alone, and significands that sum beyond 32 bits."""
    ends = [lambda f: (0, (1 << f.exponent) - 1), lambda f: (0, (1 << f.exponent) - 2), lambda f: (0, 0)]
    for fields in ends:
        positional, options = case(types, 16, 4, fields)
        np.testing.assert_array_equal(
            product.execute(*positional, **options), general(monkeypatch, positional, options)
        )
    positional, options = case(types, 16, 4, lambda f: (f.bias, f.bias))
    heavy = positional[-1] | np.uint8(0x7F if formats(types)[1].bits == 16 else 0)
    heavy[:, 1::2] = positional[-1][:, 1::2] & np.uint8(0x7F) | np.uint8(3 if types.endswith("f16") else 0)
    positional = (*positional[:-1], heavy)
    np.testing.assert_array_equal(product.execute(*positional, **options), general(monkeypatch, positional, options))


def test_only_what_is_out_of_range_is_done_again(monkeypatch):
    """One warpgroup of many holds a NaN: the others keep the results of the vector kernel."""
    positional, options = case("f32.f16.f16", 16, 2, groups=6)
    plain = product.execute(*positional, **options)
    positional[-1][4, :] = 0x7F
    seen = []
    whole = warpgroup.run
    monkeypatch.setattr(warpgroup, "run", lambda groups, *rest: (seen.extend(groups), whole(groups, *rest)))
    marked = product.execute(*positional, **options, threads=1)
    assert 4 in seen and (len(seen) == 1 or host() is None)
    np.testing.assert_array_equal(np.delete(marked, 4, 0), np.delete(plain, 4, 0))
    np.testing.assert_array_equal(marked, general(monkeypatch, positional, options))


@jit(cached=False)
def in_order(a, b, c, m, n, k, params):
    for i in range(m):
        for j in range(n):
            c[i * n + j] = np.uint32(chain(a, i * k, 1, b, j * k, 1, k, np.uint64(c[i * n + j]), params))


@pytest.mark.parametrize("types", FLOATS)
def test_tiles_against_the_chain(types):
    """A matrix through tile_to_smem and a register image, against the scalar chain on its elements."""
    rng = np.random.default_rng(12)
    out, fa, fb = formats(types)
    k, n = FLOATS[types], 72
    bits = [elements(rng, f, count * k, *narrow(f)).reshape(count, k) for f, count in ((fa, 64), (fb, n))]
    (a, da), (b, db) = (tile_to_smem(x.view(f.dtype), f.name) for x, f in zip(bits, (fa, fb), strict=True))
    tile = elements(rng, out, 64 * n, *((100, 150) if out.bits == 32 else (0, 30))).astype(np.uint32).reshape(64, n)
    thread, i = np.arange(128)[:, None], np.arange(n // 2)
    places = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (thread % 4) + i % 2
    image = lambda t: np.ascontiguousarray(t[places].astype(f"u{out.bits // 8}")).view(np.uint32)  # noqa: E731
    row = parse(name(types, n))
    got = product.execute(row, image(tile), da, Descriptor(a.size, db.leading, db.stride), np.concatenate([a, b]))
    want = tile.reshape(-1).copy()
    words = [x.astype(np.uint32).reshape(-1) for x in bits]
    in_order(*words, want, 64, n, k, product._params(row, arch("sm_90a"), 0))
    np.testing.assert_array_equal(got, image(want.reshape(64, n)))


def test_results_keep_their_memory_while_a_view_lives():
    first = output_pool.empty((1 << 18, 3), np.uint32)
    assert first.flags.writeable and first.ctypes.data % 64 == 0
    address, view = first.ctypes.data, first[5:, 1]
    view[:] = 7
    del first
    other = output_pool.empty((1 << 18, 3), np.uint32)
    other[:] = 9
    assert other.ctypes.data != address and (view == 7).all()
    del view
    assert output_pool.empty((1 << 18, 3), np.uint32).ctypes.data == address
