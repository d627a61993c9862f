"""wgmma against recordings, its rules, its batches, and the four worked examples."""

import numpy as np
import pytest

from nbtc.errors import (
    BoundsError,
    DescriptorError,
    FormatError,
    MetadataError,
    OptionError,
    ParseError,
    ShapeError,
    UnsupportedInstructionError,
)
from nbtc.ptx import wgmma
from nbtc.wgmma import Descriptor, tile_to_smem

F16 = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
SPARSE = "wgmma.mma_async.sp.sync.aligned.m64n8k32.f32.f16.f16"
S8 = "wgmma.mma_async.sync.aligned.m64n8k32.s32.s8.s8"


def options(key, entry, arrays):
    found = {"scale_a": entry["sa"], "scale_b": entry["sb"], "trans_a": entry["ta"], "trans_b": entry["tb"]}
    if key.endswith("scd0"):
        found["scale_d"] = 0
    if entry["sparse"]:
        found |= {"meta": arrays["E"], "selector": entry["sel"]}
    return found


def test_recordings(product_groups):
    outputs = 0
    for key, entry, x in product_groups:
        a = x["A"] if entry["areg"] else x["desc"][:, 0]
        d = wgmma(entry["op"], x["C"], a, x["desc"][:, 1], x["S"], **options(key, entry, x))
        np.testing.assert_array_equal(d, x["D"], key)
        outputs += d.size
    assert outputs > 200_000


def lanes(tile):
    """A 64 x N matrix of 32-bit accumulators as registers, by the formula of the PTX ISA."""
    thread, i = np.arange(128)[:, None], np.arange(tile.shape[1] // 2)
    row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i >> 1 & 1)
    return np.ascontiguousarray(tile[row, 8 * (i >> 2) + 2 * (thread & 3) + (i & 1)]).view(np.uint32)


def matrices():
    k = np.arange(16)
    return (np.arange(64)[:, None] + k).astype(np.float16), (np.arange(32)[:, None] - 2 * k).astype(np.float16)


@pytest.mark.parametrize(
    "a_mode, b_mode",
    [
        (("k", "none"), ("k", "none")),
        (("mn", "64B"), ("mn", "none")),
        (("mn", "128B"), ("k", "32B")),
        (None, ("mn", "64B")),
    ],
)
def test_worked_examples(a_mode, b_mode):
    """m64n32k16: both plain K-major; A M-major 64B, B N-major; A M-major 128B, B K-major 32B; A in registers."""
    a, b = matrices()
    want = lanes(a.astype(np.float32) @ b.astype(np.float32).T)
    smem = np.zeros(8192, np.uint8)
    data, db = tile_to_smem(b, "f16", *b_mode)
    smem[4096 : 4096 + data.size] = data
    if a_mode is None:
        thread, i = np.arange(128)[:, None], np.arange(8)
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (i >> 1 & 1)
        da = np.ascontiguousarray(a[row, 2 * (thread & 3) + (i & 1) + 8 * (i >> 2)]).view(np.uint32)
    else:
        data, da = tile_to_smem(a, "f16", *a_mode)
        smem[: data.size] = data
    trans = {"trans_a": int(a_mode is not None and a_mode[0] == "mn"), "trans_b": int(b_mode[0] == "mn")}
    name = "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16"
    db = Descriptor(4096, db.leading, db.stride, swizzle=db.swizzle)
    got = wgmma(name, np.zeros((128, 16), np.uint32), da, db, smem, **trans)
    np.testing.assert_array_equal(got, want)


@pytest.fixture
def call():
    """A small legal call, to be changed."""
    rng = np.random.default_rng(5)
    a, da = tile_to_smem(rng.standard_normal((64, 16)).astype(np.float16), "f16")
    b, db = tile_to_smem(rng.standard_normal((8, 16)).astype(np.float16), "f16")
    d = rng.standard_normal((128, 4)).astype(np.float32).view(np.uint32)
    db = Descriptor(a.size, db.leading, db.stride)
    return {"mnemonic": F16, "d": d, "a": da, "b_desc": db, "smem": np.concatenate([a, b])}


def test_batches_broadcast(call):
    one = wgmma(**call)
    three = wgmma(**{**call, "d": np.stack([call["d"]] * 3)})
    assert three.shape == (3, 128, 4) and (three == one).all()
    memories = np.stack([call["smem"]] * 2)[:, None]
    grid = wgmma(**{**call, "smem": memories, "d": np.stack([call["d"]] * 3), "a": np.uint64(call["a"].encode())})
    assert grid.shape == (2, 3, 128, 4) and (grid == one).all()
    words = np.array([[call["b_desc"].encode()]] * 5, np.uint64)
    assert (wgmma(**{**call, "b_desc": words}) == one).all()
    none = wgmma(**{**call, "d": np.zeros((0, 128, 4), np.uint32)})
    assert none.shape == (0, 128, 4)


def test_batches_differ_where_their_operands_do(call):
    """Each warpgroup of a threaded batch gets its own image, descriptors and accumulators."""
    rng = np.random.default_rng(6)
    memories = np.stack([call["smem"], rng.permutation(call["smem"])] * 20) & np.uint8(0xBF)  # no Inf, no NaN
    d = rng.standard_normal((40, 128, 4)).astype(np.float32).view(np.uint32)
    kept = rng.integers(0, 2, 40)
    together = wgmma(**{**call, "smem": memories, "d": d, "scale_d": kept}, threads=3)
    for g in range(40):
        single = wgmma(**{**call, "smem": memories[g], "d": d[g], "scale_d": int(kept[g])})
        np.testing.assert_array_equal(together[g], single)
    assert len(np.unique(together[:, 0, 0])) > 20


def test_lists_of_descriptors(call):
    """Descriptors and plain words side by side, of which one lies above 2**63."""
    one = wgmma(**call)
    words = [call["b_desc"], call["b_desc"].encode()]
    assert (wgmma(**{**call, "b_desc": words}) == one).all()
    high = Descriptor(0, 16, 512, swizzle="64B").encode()
    memory = np.zeros(8192, np.uint8)
    memory[: call["smem"].size] = call["smem"]
    both = wgmma(**{**call, "smem": memory, "b_desc": [high, call["b_desc"].encode()]})
    assert high >= 1 << 63 and both.shape == (2, 128, 4) and (both[1] == one).all()


def test_nothing_given_is_changed(call):
    before = {k: np.array(v) for k, v in call.items() if isinstance(v, np.ndarray)}
    wgmma(**call)
    for name, value in before.items():
        np.testing.assert_array_equal(call[name], value)


def test_scales(call):
    zero = np.zeros((128, 4), np.uint32)
    plus = wgmma(**{**call, "d": zero}).view(np.float32)
    for options in ({"scale_a": -1}, {"scale_b": -1}):
        np.testing.assert_array_equal(wgmma(**{**call, "d": zero, **options}).view(np.float32), -plus)
    np.testing.assert_array_equal(wgmma(**{**call, "d": zero, "scale_a": -1, "scale_b": -1}).view(np.float32), plus)
    garbage = np.full((128, 4), 0x7FC00000, np.uint32)
    np.testing.assert_array_equal(wgmma(**{**call, "d": garbage, "scale_d": False}).view(np.float32), plus)


def test_special_values_stay_in_their_rows_and_columns(call):
    a = np.ones((64, 16), np.float16)
    a[3, 2], a[5, 0] = np.nan, np.inf
    data, _ = tile_to_smem(a, "f16")
    smem = call["smem"].copy()
    smem[: data.size] = data
    b, _ = tile_to_smem(np.ones((8, 16), np.float16), "f16")
    smem[data.size :] = b
    d = np.zeros((128, 4), np.uint32)
    d[127, 3] = 0x7F800000
    got = wgmma(**{**call, "smem": smem, "d": d})
    want = np.full((64, 8), 16, np.float32)
    want[5] = np.inf
    expect = lanes(want)
    expect[12:16, :2] = 0x7FFFFFFF
    expect[127, 3] = 0x7F800000
    np.testing.assert_array_equal(got, expect)


def sparse(call, **more):
    return {**call, "mnemonic": SPARSE, "meta": np.full(128, 0x44444444, np.uint32), **more}


@pytest.mark.parametrize(
    "error, change",
    [
        (ParseError, {"mnemonic": F16.replace("n8k", "n12k")}),
        (ParseError, {"mnemonic": F16.replace("n8k", "n264k")}),
        (ParseError, {"mnemonic": S8.replace("n8k", "n40k")}),
        (ParseError, {"mnemonic": F16.replace("f16.f16", "f16.bf16")}),
        (ParseError, {"mnemonic": F16.replace("k16", "k8")}),
        (UnsupportedInstructionError, {"mnemonic": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}),
        (UnsupportedInstructionError, {"arch": "sm_100"}),
        (UnsupportedInstructionError, {"arch": "sm_80"}),
        (OptionError, {"scale_a": 2}),
        (OptionError, {"scale_b": 0}),
        (OptionError, {"scale_d": 2}),
        (OptionError, {"trans_a": 2}),
        (OptionError, {"threads": 0}),
        (OptionError, {"mnemonic": S8, "scale_a": -1}),
        (OptionError, {"mnemonic": S8, "trans_b": 1}),
        (OptionError, {"mnemonic": F16.replace("k16.f32.f16.f16", "k8.f32.tf32.tf32"), "trans_a": 1}),
        (OptionError, {"a": np.zeros((128, 4), np.uint32), "trans_a": 1}),
        (MetadataError, {"meta": np.zeros(128, np.uint32)}),
        (MetadataError, {"selector": 1}),
        (MetadataError, sparse({}, meta=None)),
        (MetadataError, sparse({}, selector=2)),
        (FormatError, sparse({}, meta=np.zeros(128, np.int64))),
        (FormatError, {"d": Descriptor(0, 128, 128)}),
        (ShapeError, sparse({}, meta=np.zeros(32, np.uint32))),
        (DescriptorError, {"a": 1 << 15}),
        (DescriptorError, {"b_desc": -1}),
        (DescriptorError, {"a": 0.5}),
        (DescriptorError, {"a": [0.5, 1]}),
        (BoundsError, {"a": Descriptor(0, 1024, 256)}),
        (BoundsError, {"smem": np.zeros(100, np.uint8)}),
        (FormatError, {"smem": np.zeros(4096, np.int8)}),
        (FormatError, {"d": np.zeros((128, 4), np.float32)}),
        (ShapeError, {"d": np.zeros((128, 8), np.uint32)}),
        (ShapeError, {"a": np.zeros((128, 2), np.uint32)}),
        (ShapeError, {"d": np.zeros((3, 128, 4), np.uint32), "smem": np.zeros((2, 4096), np.uint8)}),
    ],
)
def test_errors(call, error, change):
    with pytest.raises(error) as found:
        wgmma(**{**call, **change})
    assert len(str(found.value)) >= 40


def test_sparse_b_in_two_swizzle_rows():
    """64 bytes of K with the 32-byte swizzle, each half of K a tile of its own LBO bytes further on."""
    rng = np.random.default_rng(1)
    b, rows = rng.standard_normal((8, 32)).astype(np.float16), np.zeros((128, 4), np.uint32)
    a = rng.integers(0, 1 << 32, (128, 4), np.uint64).astype(np.uint32) & np.uint32(0xBFFFBFFF)
    call = {"mnemonic": SPARSE, "d": rows, "a": a, "meta": np.full(128, 0x4E4E4E4E, np.uint32)}
    whole, d = tile_to_smem(b, "f16", swizzle="64B")
    halves = [tile_to_smem(np.ascontiguousarray(x), "f16", swizzle="32B")[0] for x in (b[:, :16], b[:, 16:])]
    apart = np.concatenate([halves[0], np.zeros(768, np.uint8), halves[1]])
    found = wgmma(**call, b_desc=Descriptor(0, 1024, 256, swizzle="32B"), smem=apart)
    np.testing.assert_array_equal(found, wgmma(**call, b_desc=d, smem=whole))


def test_the_sign_of_b_is_that_of_what_metadata_selected():
    """Of sparse tf32, where metadata can join halves of two elements: negating B is negating A, as an H200 showed."""
    form, rng = "wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32", np.random.default_rng(0)
    normal = rng.standard_normal((8 + 64, 16)).astype(np.float32)
    (a, da), (b, db) = tile_to_smem(normal[8:, :8], "tf32"), tile_to_smem(normal[:8], "tf32")
    smem, meta = np.concatenate([a, b]), rng.integers(0, 2**32, (128,), np.uint32)
    d = np.zeros((128, 4), np.uint32)
    operands = (form, d, da.encode(), db.encode() + (a.size >> 4), smem)
    minus_a, minus_b = (wgmma(*operands, meta=meta, **{name: -1}) for name in ("scale_a", "scale_b"))
    np.testing.assert_array_equal(minus_a, minus_b)
    np.testing.assert_array_equal(wgmma(*operands, meta=meta, scale_a=-1, scale_b=-1), wgmma(*operands, meta=meta))
    assert (minus_a != wgmma(*operands, meta=meta)).any()
