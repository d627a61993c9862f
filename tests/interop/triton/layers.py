"""Kernels in Triton of the kinds that collections for language models hold, small."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(x, y, weight, N, eps, BLOCK: tl.constexpr):
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    v = tl.load(x + row * N + i, mask=i < N, other=0.0).to(tl.float32)
    scale = 1 / tl.sqrt(tl.sum(v * v, 0) / N + eps)
    tl.store(y + row * N + i, (v * scale * tl.load(weight + i, mask=i < N)).to(y.dtype.element_ty), mask=i < N)


@triton.jit
def cross_entropy(logits, labels, loss, gradient, V, ignore, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    logits += row * V
    gradient += row * V
    label = tl.load(labels + row)
    if label == ignore:
        for start in range(0, V, BLOCK):
            i = start + tl.arange(0, BLOCK)
            tl.store(gradient + i, 0.0, mask=i < V)
        return
    most, total = float("-inf"), 0.0
    for start in range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        v = tl.load(logits + i, mask=i < V, other=float("-inf"))
        new = tl.maximum(most, tl.max(v))
        total = total * tl.exp(most - new) + tl.sum(tl.exp(v - new))
        most = new
    log_sum = most + tl.log(total)
    for start in range(0, V, BLOCK):
        i = start + tl.arange(0, BLOCK)
        p = tl.exp(tl.load(logits + i, mask=i < V, other=float("-inf")) - log_sum)
        tl.store(gradient + i, tl.where(i == label, p - 1, p), mask=i < V)
    tl.store(loss + row, log_sum - tl.load(logits + label))


@triton.jit
def rotary(q, cos, sin, HEADS, D: tl.constexpr, BLOCK: tl.constexpr):
    t, h, d = tl.program_id(0), tl.arange(0, BLOCK)[:, None], tl.arange(0, D // 2)
    c, s = tl.load(cos + t * (D // 2) + d)[None, :], tl.load(sin + t * (D // 2) + d)[None, :]
    first = q + t * HEADS * D + h * D + d[None, :]
    a = tl.load(first, mask=h < HEADS, other=0).to(tl.float32)
    b = tl.load(first + D // 2, mask=h < HEADS, other=0).to(tl.float32)
    tl.store(first, (a * c - b * s).to(tl.float16), mask=h < HEADS)
    tl.store(first + D // 2, (b * c + a * s).to(tl.float16), mask=h < HEADS)


@triton.jit
def int4_matmul(a, packed, scales, zeros, c, M, N, K,
                BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):  # fmt: skip
    m, n, k = tl.program_id(0) * BM + tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + start + k[None, :], mask=m[:, None] < M, other=0.0)
        w = tl.load(packed + ((start + k) // 8)[:, None] * N + n[None, :])
        group = ((start + k) // GROUP)[:, None] * N + n[None, :]
        w = ((w >> ((k % 8) * 4)[:, None]) & 15) - tl.load(zeros + group)
        acc = tl.dot(x, w.to(tl.float16) * tl.load(scales + group), acc)
    tl.store(c + m[:, None] * N + n[None, :], acc, mask=m[:, None] < M)


@triton.jit
def scaled_product(a, sa, b, sb, c, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, k, block = tl.arange(0, M)[:, None], tl.arange(0, N), tl.arange(0, K), tl.arange(0, K // 32)[None, :]
    x, y = tl.load(a + m * K + k[None, :]), tl.load(b + k[:, None] * N + n[None, :])
    u, v = tl.load(sa + m * (K // 32) + block), tl.load(sb + n[:, None] * (K // 32) + block)
    tl.store(c + m * N + n[None, :], tl.dot_scaled(x, u, "e4m3", y, v, "e4m3"))


@triton.jit
def extremes(x, values, places, least, top, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n = tl.arange(0, M), tl.arange(0, N)
    v = tl.load(x + m[:, None] * N + n[None, :])
    most, where = tl.max(v, 1, return_indices=True)
    tl.store(values + m, most)
    tl.store(places + m, where)
    tl.store(least + n, tl.argmin(v, 0))
    tl.store(top + m[:, None] * K + tl.arange(0, K)[None, :], tl.topk(v, K))


@triton.jit
def _chained(g, x, h, y):
    return h * g, h * x + y


@triton.jit
def recurrence(gates, x, out, T: tl.constexpr, D: tl.constexpr):
    i = tl.arange(0, T)[:, None] * D + tl.arange(0, D)[None, :]
    _, h = tl.associative_scan((tl.load(gates + i), tl.load(x + i)), 0, _chained)
    tl.store(out + i, h)


@triton.jit
def stream_k(a, b, c, locks, N, K, steps, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    share = tl.cdiv(steps, tl.num_programs(0))
    start = tl.program_id(0) * share
    end, of_tile = tl.minimum(start + share, steps), tl.cdiv(K, BK)
    m, n, k = tl.arange(0, BM), tl.arange(0, BN), tl.arange(0, BK)
    while start < end:
        tile, first = start // of_tile, start % of_tile
        stop = tl.minimum(start + of_tile - first, end)
        acc = tl.zeros((BM, BN), tl.float32)
        for step in range(first, first + stop - start):
            x = tl.load(a + (tile * BM + m)[:, None] * K + step * BK + k[None, :])
            acc = tl.dot(x, tl.load(b + (step * BK + k)[:, None] * N + n[None, :]), acc)
        out = c + (tile * BM + m)[:, None] * N + n[None, :]
        if stop % of_tile == 0:
            if first != 0:
                while tl.atomic_cas(locks + tile, 1, 1) != 1:
                    pass
                acc += tl.load(out, cache_modifier=".cg")
            tl.store(out, acc)
        else:
            tl.store(out, acc)
            tl.debug_barrier()
            tl.atomic_xchg(locks + tile, 1)
        start = stop


@triton.jit
def paged_attention(q, keys, values, tables, lengths, out, scale, H, BLOCKS, D: tl.constexpr, SIZE: tl.constexpr):
    sequence, head, d, t = tl.program_id(0), tl.program_id(1), tl.arange(0, D), tl.arange(0, SIZE)
    one = tl.load(q + (sequence * H + head) * D + d).to(tl.float32) * scale
    length, most, total = tl.load(lengths + sequence), -float("inf"), 0.0
    acc = tl.zeros((D,), tl.float32)
    for block in range(tl.cdiv(length, SIZE)):
        page = tl.load(tables + sequence * BLOCKS + block).to(tl.int64)
        i, inside = ((page * SIZE + t) * H + head)[:, None] * D + d[None, :], block * SIZE + t < length
        k = tl.load(keys + i, mask=inside[:, None], other=0.0).to(tl.float32)
        v = tl.load(values + i, mask=inside[:, None], other=0.0).to(tl.float32)
        s = tl.where(inside, tl.sum(k * one[None, :], 1), -float("inf"))
        new = tl.maximum(most, tl.max(s, 0))
        w, kept = tl.exp(s - new), tl.exp(most - new)
        acc, total, most = acc * kept + tl.sum(w[:, None] * v, 0), total * kept + tl.sum(w, 0), new
    tl.store(out + (sequence * H + head) * D + d, acc / total)
