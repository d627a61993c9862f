"""A matrix product through shared-memory images, moving descriptors and accumulators that stay in registers."""

import numpy as np
import pytest

import nbtc
from nbtc.compiler.jit import jit
from nbtc.formats.table import FORMATS
from nbtc.numerics import models
from nbtc.numerics.fused import chain
from nbtc.wgmma import Descriptor, Sequence, tile_to_smem

TILE_K = 64  # a 128-byte row of f16: four instructions, each 32 bytes further


@jit(cached=False)
def in_order(a, b, c, m, n, k, params):
    for i in range(m):
        for j in range(n):
            c[i * n + j] = np.uint32(chain(a, i * k, 1, b, j * k, 1, k, np.uint64(c[i * n + j]), params))


def places(n):
    thread, i = np.arange(128)[:, None], np.arange(n // 2)
    return 16 * (thread // 32) + thread % 32 // 4 + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (thread % 4) + i % 2


@pytest.mark.parametrize("fmt, major", [("f16", "k"), ("bf16", "k"), ("f16", "mn")])
def test_tiled_product(fmt, major):
    """Two warpgroups of 64 rows, N = 40, K = 192 in three stages, checked for hazards."""
    rng = np.random.default_rng(9)
    m, n, k, dtype = 128, 40, 192, FORMATS[fmt].dtype
    a, b = (rng.standard_normal((rows, k)).astype(dtype) for rows in (m, n))
    c = rng.standard_normal((m, n)).astype(np.float32)
    row, col = places(n)
    groups = c.reshape(2, 64, n)
    name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.{fmt}.{fmt}"
    trans = int(major == "mn")
    with Sequence(np.zeros((2, 32768), np.uint8)) as s:
        d = s.registers(np.ascontiguousarray(groups[:, row, col]).view(np.uint32), "d")
        for k0 in range(0, k, TILE_K):
            stage = slice(k0, k0 + TILE_K)
            a_tile, da = tile_to_smem(a.reshape(2, 64, k)[..., stage], fmt, major, "128B")
            b_tile, db = tile_to_smem(b[:, stage], fmt, major, "128B")
            s.store(0, a_tile)
            s.store(16384, b_tile)
            s.fence_proxy_async()
            s.fence()
            for step in range(4):
                a_move, b_move = (2 * x.stride * step if trans else 32 * step for x in (da, db))
                at = Descriptor(a_move, da.leading, da.stride, swizzle="128B")
                bt = Descriptor(16384 + b_move, db.leading, db.stride, swizzle="128B")
                s.wgmma(name, d, at, bt, trans_a=trans, trans_b=trans)
            s.commit_group()
            s.wait_group(0)
        got = np.empty((2, 64, n), np.uint32)
        got[:, row, col] = d[...]
    row_format, acc = FORMATS[fmt], FORMATS["f32"]
    params = models.params(models.model("sm_90", "wgmma", row_format), row_format, row_format, acc, 16)
    want = c.view(np.uint32).reshape(-1).copy()
    words = [x.view(np.uint16).reshape(-1) for x in (a, b)]
    in_order(*words, want, m, n, k, params)
    np.testing.assert_array_equal(got.reshape(m, n), want.reshape(m, n))
    library = nbtc.matmul(a, b.T, c, instruction="wgmma", arch="sm_90")
    np.testing.assert_array_equal(got.reshape(m, n), library.view(np.uint32))
