"""Kernels of CuTe DSL that the tests compile; its compiler wants to read their source in a file."""

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warp

COPY_BOX = (64, 8)  # elements of f16: rows of 128 bytes


@cute.kernel
def add_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * 128 + thread
    if i < cute.size(a):
        c[i] = a[i] + b[i]


@cute.jit
def add(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    add_kernel(a, b, c).launch(grid=[cute.ceil_div(cute.size(a), 128), 1, 1], block=[128, 1, 1])


@cute.jit
def add_twice(parts: tuple[cute.Tensor, cute.Tensor], c: cute.Tensor, times: cutlass.Int32):
    """Two launches, the second of which reads what the first wrote, as often as a number says."""
    for _ in range(times):
        add_kernel(parts[0], parts[1], c).launch(grid=[1, 1, 1], block=[128, 1, 1])
        add_kernel(c, parts[1], c).launch(grid=[1, 1, 1], block=[128, 1, 1], cooperative=True)


@cute.kernel
def scale_kernel(x: cute.Pointer):
    thread, _, _ = cute.arch.thread_idx()
    t = cute.make_tensor(x, cute.make_layout(32))
    t[thread] = t[thread] * 2


@cute.jit
def scale(x: cute.Pointer):
    scale_kernel(x).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.kernel
def copy_kernel(atom: cute.CopyAtom, tile: cute.Tensor, out: cute.Tensor, smem: cute.ComposedLayout):
    """One tile by TMA, and shared memory as it lies there."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    shared = cutlass.memory.SmemAllocator()
    barrier = shared.allocate_array(cutlass.Int64, 1)
    s = shared.allocate_tensor(out.element_type, smem.outer, byte_alignment=1024, swizzle=smem.inner)
    if thread == 0:
        cute.arch.mbarrier_init(barrier, 1)
        cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    source = cute.local_tile(tile, COPY_BOX, (0, block))
    to, fro = cpasync.tma_partition(
        atom, 0, cute.make_layout(1), cute.group_modes(s, 0, 2), cute.group_modes(source, 0, 2)
    )
    if thread == 0:
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, cute.size(smem) * out.element_type.width // 8)
    cute.arch.sync_warp()
    cute.copy(atom, fro, to, tma_bar_ptr=barrier)  # one thread, which the warp elects
    cute.arch.mbarrier_wait(barrier, 0)
    plain = cute.make_tensor(cute.recast_ptr(s.iterator, dtype=out.element_type), cute.make_layout(cute.size(smem)))
    for i in range(thread, cute.size(smem), 32):
        out[block * cute.size(smem) + i] = plain[i]


@cute.jit
def copy(x: cute.Tensor, out: cute.Tensor):
    outer = cute.make_ordered_layout(COPY_BOX, order=(0, 1))
    smem = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, outer)
    atom, tile = cpasync.make_tiled_tma_atom(cpasync.CopyBulkTensorTileG2SOp(), x, smem, COPY_BOX)
    copy_kernel(atom, tile, out, smem).launch(
        grid=[cute.ceil_div(x.shape[1], COPY_BOX[1]), 1, 1], block=[32, 1, 1], cluster=[1, 1, 1]
    )


@cute.kernel
def product_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, mma: cute.TiledMma):
    """C (M, N) = A (M, K) * B (N, K) by one warp, fragments straight from global memory."""
    thread, _, _ = cute.arch.thread_idx()
    mine = mma.get_slice(thread)
    ga, gb, gc = mine.partition_A(a), mine.partition_B(b), mine.partition_C(c)
    fa, fb = mma.make_fragment_A(ga), mma.make_fragment_B(gb)
    sums = mma.make_fragment_C(gc)
    sums.fill(0.0)
    cute.autovec_copy(ga, fa)
    cute.autovec_copy(gb, fb)
    for k in cutlass.range_constexpr(cute.size(fa, mode=[2])):
        cute.gemm(mma, sums, fa[None, None, k], fb[None, None, k], sums)
    cute.autovec_copy(sums, gc)


@cute.jit
def product(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor):
    mma = cute.make_tiled_mma(warp.MmaF16BF16Op(a.element_type, cutlass.Float32, (16, 8, 16)))
    product_kernel(a, b, c, mma).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.kernel
def race_kernel(x: cute.Tensor):
    """Two warps that write the same shared memory."""
    thread, _, _ = cute.arch.thread_idx()
    s = cutlass.memory.SmemAllocator().allocate_tensor(x.element_type, cute.make_layout(32))
    s[thread % 32] = x[thread]
    cute.arch.sync_threads()
    x[thread] = s[thread % 32]


@cute.jit
def race(x: cute.Tensor):
    race_kernel(x).launch(grid=[1, 1, 1], block=[64, 1, 1])
