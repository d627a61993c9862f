"""Single instructions on register images, one warp and many."""

from functools import partial

import numpy as np

import nbtc
from nbtc.report import alternate

MMA = {
    "f16": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    "tf32": "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32",
    "e4m3": "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
    "s8": "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32",
    "f64": "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64",
}


class MmaSync:
    params = (list(MMA), [1, 10_000])
    param_names = ("format", "warps")

    def setup(self, name, warps):
        self.i = nbtc.instruction(MMA[name])
        rng = np.random.default_rng(0)
        # small exponents in every format: no Inf, no NaN
        self.images = [
            rng.integers(0, 2**32, (warps, 32, x.registers), np.uint32) & np.uint32(0x3B3B3B3B)
            for x in (self.i.a, self.i.b, self.i.c)
        ]
        self.i(*self.images, threads=1)

    def track_seconds_a_warp(self, name, warps):
        call = partial(self.i, *self.images, threads=1)
        return alternate(5, call, inner=max(1, 500 // warps))[0] / warps

    def time_call(self, name, warps):
        self.i(*self.images, threads=1)

    track_seconds_a_warp.unit = "seconds"


class OneWarp:
    """One warp's images, as a loop of Python calls passes them."""

    params = list(MMA)
    param_names = ("format",)

    def setup(self, name):
        self.i = nbtc.instruction(MMA[name])
        self.images = [np.zeros((32, x.registers), np.uint32) for x in (self.i.a, self.i.b, self.i.c)]
        self.i(*self.images)

    def time_call(self, name):
        self.i(*self.images)


class Wgmma:
    params = [64, 256]
    param_names = ("n",)
    groups = 100

    def setup(self, n):
        rng = np.random.default_rng(0)
        a, b = (rng.standard_normal((rows, 16)).astype(np.float16) for rows in (64, n))
        (image_a, self.da), (image_b, db) = (nbtc.wgmma.tile_to_smem(x, "f16", "k", "none") for x in (a, b))
        self.db = nbtc.wgmma.Descriptor(image_a.size, db.leading, db.stride)
        image = np.concatenate([image_a, image_b])
        self.smem = np.tile(image, (self.groups, 1))
        self.d = np.zeros((self.groups, 128, n // 2), np.uint32)
        self.name = f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.f16.f16"
        self.run()

    def run(self):
        nbtc.ptx.wgmma(self.name, self.d, self.da.encode(), self.db.encode(), self.smem, threads=1)

    def track_seconds_a_warpgroup(self, n):
        return alternate(5, self.run)[0] / self.groups

    track_seconds_a_warpgroup.unit = "seconds"

    def time_one_warpgroup(self, n):
        nbtc.ptx.wgmma(self.name, self.d[0], self.da.encode(), self.db.encode(), self.smem[0], threads=1)


def _matmul(dtype, size):
    x = np.ones((size, size), dtype)
    return partial(nbtc.matmul, x, x, threads=1)


def _warp(name, *more):
    return partial(getattr(nbtc.warp, name), 0xFFFFFFFF, np.arange(32, dtype=np.uint32), *more)


class SmallCalls:
    """What a call costs beyond its arithmetic, which is next to nothing here."""

    calls = {
        "matmul f16 64": partial(_matmul, np.float16, 64),
        "matmul s8 128": partial(_matmul, np.int8, 128),
        "shfl_xor_sync": partial(_warp, "shfl_xor_sync", 1),
        "reduce_add_sync": partial(_warp, "reduce_add_sync"),
        "convert 32 to e4m3": lambda: partial(nbtc.convert, np.ones(32, np.float32), "e4m3"),
        "viaddmax_s32": lambda: partial(nbtc.dpx.viaddmax_s32, *(np.arange(32, dtype=np.int32),) * 3),
    }
    params = list(calls)
    param_names = ("call",)

    def setup(self, name):
        self.call = self.calls[name]()
        self.call()

    def time_call(self, name):
        self.call()
