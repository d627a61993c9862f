"""Products of a warpgroup: one 64x32x16 tile in four layouts of shared memory."""

from __future__ import annotations

import numpy as np

import nbtc
from nbtc import ptx, wgmma

FORM = "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16"
THREADS = 128  # a warpgroup is four warps
A_BYTES, B_BYTES = 64 * 16 * 2, 32 * 16 * 2
REGISTERS = 16  # of D a thread: 64x32 floats over 128 threads


@nbtc.device
def copy_bytes(tile, source):
    """The whole block copies an image of a tile into shared memory, and lets wgmma see it.

    wgmma reads shared memory by another way than the threads' stores (the asynchronous proxy), hence the fence.
    """
    for n in range(nbtc.thread_idx.x, source.size, THREADS):
        tile[n] = source[n]
    wgmma.fence_proxy_async()
    nbtc.syncthreads()


@nbtc.device
def store(d, out):
    """Thread T holds rows 16 * (T // 32) + T % 32 // 4 and that plus 8, and two of every eight columns."""
    thread = nbtc.thread_idx.x
    for n in range(REGISTERS):
        row = 16 * (thread // 32) + thread % 32 // 4 + 8 * (n // 2 % 2)
        out[row, 8 * (n // 4) + 2 * (thread % 4) + n % 2] = np.uint32(d[n]).view(np.float32)


@nbtc.kernel
def both_k_major(a, b, out):
    """A and B K-major (as a row-major A and a column-major B lie), no swizzle: cores of 8x16 bytes, M or N first."""
    ta, tb = nbtc.shared(A_BYTES, np.uint8, align=1024), nbtc.shared(B_BYTES, np.uint8, align=1024)
    copy_bytes(ta, a)
    copy_bytes(tb, b)
    wgmma.fence()
    d = ptx.wgmma(FORM, None, wgmma.Descriptor(ta, 1024, 128), wgmma.Descriptor(tb, 512, 128))
    wgmma.commit_group()
    wgmma.wait_group(0)
    store(d, out)


@nbtc.kernel
def both_transposed(a, b, out):
    """A M-major with the 64-byte swizzle, B N-major without: the instruction turns both."""
    ta, tb = nbtc.shared(A_BYTES, np.uint8, align=1024), nbtc.shared(B_BYTES, np.uint8, align=1024)
    copy_bytes(ta, a)
    copy_bytes(tb, b)
    wgmma.fence()
    da, db = wgmma.Descriptor(ta, 512, 1024, swizzle="64B"), wgmma.Descriptor(tb, 512, 128)
    d = ptx.wgmma(FORM, None, da, db, trans_a=1, trans_b=1)
    wgmma.commit_group()
    wgmma.wait_group(0)
    store(d, out)


@nbtc.kernel
def mixed(a, b, out):
    """A M-major with the 128-byte swizzle, B K-major with the 32-byte swizzle."""
    ta, tb = nbtc.shared(A_BYTES, np.uint8, align=1024), nbtc.shared(B_BYTES, np.uint8, align=1024)
    copy_bytes(ta, a)
    copy_bytes(tb, b)
    wgmma.fence()
    da, db = wgmma.Descriptor(ta, 16, 1024, swizzle="128B"), wgmma.Descriptor(tb, 16, 256, swizzle="32B")
    d = ptx.wgmma(FORM, None, da, db, trans_a=1)
    wgmma.commit_group()
    wgmma.wait_group(0)
    store(d, out)


@nbtc.kernel
def a_in_registers(a, b, out):
    """A in four registers a thread, a (128, 4) words; B N-major with the 64-byte swizzle."""
    tb = nbtc.shared(B_BYTES, np.uint8, align=1024)
    copy_bytes(tb, b)
    wgmma.fence()
    held = a[nbtc.thread_idx.x]
    registers = held[0], held[1], held[2], held[3]
    d = ptx.wgmma(FORM, None, registers, wgmma.Descriptor(tb, 16, 512, swizzle="64B"), trans_b=1)
    wgmma.commit_group()
    wgmma.wait_group(0)
    store(d, out)


# kernel, then major order and swizzle of A and of B
LAYOUTS = (
    (both_k_major, ("k", "none"), ("k", "none")),
    (both_transposed, ("mn", "64B"), ("mn", "none")),
    (mixed, ("mn", "128B"), ("k", "32B")),
    (a_in_registers, None, ("mn", "64B")),
)


def products(a, b):
    """a @ b for a (64, 16) and b (16, 32), half, in each of the four layouts.

    >>> rng = np.random.default_rng(0)
    >>> a, b = rng.standard_normal((64, 16)).astype(np.float16), rng.standard_normal((16, 32)).astype(np.float16)
    >>> want = nbtc.matmul(a, b)
    >>> [bool((d == want).all()) for d in products(a, b)]
    [True, True, True, True]
    """
    found = []
    for kernel, how_a, how_b in LAYOUTS:
        left = nbtc.instruction(FORM).pack_a(a) if how_a is None else wgmma.tile_to_smem(a, "f16", *how_a)[0]
        right, _ = wgmma.tile_to_smem(np.ascontiguousarray(b.T), "f16", *how_b)
        d = np.zeros((64, 32), np.float32)
        kernel[1, THREADS](left, right, d)
        found.append(d)
    return found
