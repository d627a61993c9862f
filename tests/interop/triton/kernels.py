"""Kernels in Triton that the tests run: those of its tutorials' kinds, small."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)


@triton.jit
def softmax(out, x, stride, rows, columns, BLOCK: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0)):
        c = tl.arange(0, BLOCK)
        v = tl.load(x + row * stride + c, mask=c < columns, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(out + row * stride + c, e / tl.sum(e, axis=0), mask=c < columns)


@triton.jit
def matmul(a, b, c, M, N, K, sam, sak, sbk, sbn, scm, scn,
           BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr, ACC: tl.constexpr):  # fmt: skip
    pid = tl.program_id(0)
    width = GROUP * tl.cdiv(N, BN)
    first = pid // width * GROUP
    size = min(tl.cdiv(M, BM) - first, GROUP)
    m = (first + pid % width % size) * BM + tl.arange(0, BM)
    n = pid % width // size * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    ap = a + m[:, None] % M * sam + k[None, :] * sak
    bp = b + k[:, None] * sbk + n[None, :] % N * sbn
    acc = tl.zeros((BM, BN), dtype=ACC)
    for start in range(0, K, BK):
        x = tl.load(ap, mask=k[None, :] < K - start, other=0.0)
        y = tl.load(bp, mask=k[:, None] < K - start, other=0.0)
        acc = tl.dot(x, y, acc, out_dtype=ACC)
        ap += BK * sak
        bp += BK * sbk
    tl.store(c + m[:, None] * scm + n[None, :] * scn, acc, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def matmul_of_descriptors(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc)


@triton.jit
def matmul_device_descriptors(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    matmul_of_descriptors(da, db, dc, K, BM, BN, BK)


@triton.jit
def matmul_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):
    across = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * across, PROGRAMS, flatten=True):
        m, n = tile // across * BM, tile % across * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            acc = tl.dot(a.load([m, k * BK]), b.load([k * BK, n]), acc)
        c.store([m, n], acc)


@triton.jit
def grouped_matmul(addresses_a, addresses_b, addresses_c, sizes, groups, PROGRAMS: tl.constexpr,
                   BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):  # fmt: skip
    tile, end = tl.program_id(0), 0
    for g in range(groups):
        M, N, K = tl.load(sizes + 3 * g), tl.load(sizes + 3 * g + 1), tl.load(sizes + 3 * g + 2)
        across = tl.cdiv(N, BN)
        tiles = tl.cdiv(M, BM) * across
        while tile >= end and tile < end + tiles:
            a = tl.load(addresses_a + g).to(tl.pointer_type(tl.float16))
            b = tl.load(addresses_b + g).to(tl.pointer_type(tl.float16))
            c = tl.load(addresses_c + g).to(tl.pointer_type(tl.float32))
            m = (tile - end) // across * BM + tl.arange(0, BM)
            n = (tile - end) % across * BN + tl.arange(0, BN)
            acc = tl.zeros((BM, BN), dtype=tl.float32)
            for start in range(0, K, BK):
                k = start + tl.arange(0, BK)
                x = tl.load(a + m[:, None] * K + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
                y = tl.load(b + k[:, None] * N + n[None, :], mask=(k[:, None] < K) & (n[None, :] < N), other=0.0)
                acc = tl.dot(x, y, acc)
            tl.store(c + m[:, None] * N + n[None, :], acc, mask=(m[:, None] < M) & (n[None, :] < N))
            tile += PROGRAMS
        end += tiles


@triton.jit
def layer_norm(x, y, w, b, mean, rstd, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    v = tl.load(x + row * stride + c, mask=c < N, other=0.0).to(tl.float32)
    mu = tl.sum(v, axis=0) / N
    d = tl.where(c < N, v - mu, 0.0)
    r = 1 / tl.sqrt(tl.sum(d * d, axis=0) / N + eps)
    tl.store(mean + row, mu)
    tl.store(rstd + row, r)
    scaled = d * r * tl.load(w + c, mask=c < N) + tl.load(b + c, mask=c < N)
    tl.store(y + row * stride + c, scaled, mask=c < N)


@triton.jit
def layer_norm_backward(dx, dy, dw, db, x, w, mean, rstd, lock, stride, N, GROUPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    mask = c < N
    v = tl.load(x + row * stride + c, mask=mask, other=0.0)
    g = tl.load(dy + row * stride + c, mask=mask, other=0.0)
    r = tl.load(rstd + row)
    hat = tl.where(mask, (v - tl.load(mean + row)) * r, 0.0)
    wg = tl.where(mask, tl.load(w + c, mask=mask) * g, 0.0)
    c1, c2 = tl.sum(hat * wg, axis=0) / N, tl.sum(wg, axis=0) / N
    tl.store(dx + row * stride + c, (wg - (hat * c1 + c2)) * r, mask=mask)
    group = row % GROUPS
    while tl.atomic_cas(lock + group, 0, 1) == 1:
        pass
    part = group * N + c
    tl.store(dw + part, tl.load(dw + part, mask=mask) + g * hat, mask=mask)
    tl.store(db + part, tl.load(db + part, mask=mask) + g, mask=mask)
    tl.debug_barrier()
    tl.atomic_xchg(lock + group, 0)


@triton.jit
def flash_attention(q, k, v, out, scale, N, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, CAUSAL: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, D)
    base = tl.program_id(1) * N * D
    mine = tl.load(q + base + rows[:, None] * D + d[None, :], mask=rows[:, None] < N, other=0.0)
    most = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, D), tl.float32)
    end = min(N, (tl.program_id(0) + 1) * BM) if CAUSAL else N
    for start in range(0, end, BN):
        c = start + tl.arange(0, BN)
        keys = tl.load(k + base + c[None, :] * D + d[:, None], mask=c[None, :] < N, other=0.0)
        seen = c[None, :] < N
        if CAUSAL:
            seen = seen & (c[None, :] <= rows[:, None])
        s = tl.where(seen, tl.dot(mine, keys) * (scale * 1.4426950408889634), -float("inf"))
        higher = tl.maximum(most, tl.max(s, 1))
        p = tl.math.exp2(s - higher[:, None])
        shrink = tl.math.exp2(most - higher)
        total = total * shrink + tl.sum(p, 1)
        values = tl.load(v + base + c[:, None] * D + d[None, :], mask=c[:, None] < N, other=0.0)
        acc = tl.dot(p.to(tl.float16), values, acc * shrink[:, None])
        most = higher
    tl.store(out + base + rows[:, None] * D + d[None, :], acc / total[:, None], mask=rows[:, None] < N)


@triton.jit
def dropout(x, out, n, p, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    kept = tl.rand(seed, i) > p
    tl.store(out + i, tl.where(kept, tl.load(x + i, mask=i < n) / (1 - p), 0.0), mask=i < n)


@triton.jit
def histogram(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out + tl.load(x + i, mask=i < n, other=0), 1, mask=i < n)


@triton.jit
def atomics(x, sums, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i, mask=i < n, other=0)
    tl.atomic_max(sums, tl.max(v, axis=0))
    tl.atomic_min(sums + 1, tl.min(v, axis=0))
    tl.atomic_xor(sums + 2, tl.xor_sum(v, axis=0))
    tl.atomic_or(sums + 3, tl.reduce_or(v, axis=0))


@triton.jit
def scan(x, sums, reverse, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + i)
    tl.store(sums + i, tl.cumsum(v, axis=0))
    tl.store(reverse + i, tl.cumsum(v, axis=0, reverse=True))


@triton.jit
def _largest(a, b):
    return tl.maximum(a, b)


@triton.jit
def running_maximum(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.associative_scan(tl.load(x + i), 0, _largest))


@triton.jit
def sort(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.sort(tl.load(x + i)))


@triton.jit
def scaled(x, out, n, factor, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, factor * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def add_in_place(x, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def add_in_blocks_of_32(x, n, BLOCK: tl.constexpr):
    tl.static_assert(BLOCK == 32)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def tuples(pair, rest, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    z, factor = rest
    tl.store(out + i, (tl.load(pair.x + i) - tl.load(pair.y + i)) * factor + tl.load(z + i))


@triton.jit
def corner(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i[:, None] * BLOCK + i[None, :], x.load([BLOCK // 2, BLOCK // 2]))


@triton.jit
def shifted_copy(x, n, B: tl.constexpr):
    """x[n:n + B] = x[:B] + 1"""
    i = tl.arange(0, B)
    tl.store(x + i + n, tl.load(x + i) + 1)


@triton.jit
def reversed_in_place(x, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(x + N - 1 - i, tl.load(x + i))


@triton.jit
def marked(table, x, N: tl.constexpr):
    """Zeros, and one of them overwritten with no barrier in between."""
    i = tl.arange(0, N)
    tl.store(x + i, 0.0)
    tl.store(x + tl.load(table + 1), 1.0)
