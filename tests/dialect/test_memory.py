"""Shared, local and constant arrays, atomics, output."""

import numpy as np
import pytest

import nbtc
from nbtc.errors import KernelError, OptionError

TABLE = np.arange(10, dtype=np.float32) * 1.5
THREADS = 128


@nbtc.kernel
def block_sums(x, sums, least):
    s = nbtc.shared(THREADS, np.float32, align=128)
    t = nbtc.thread_idx.x
    s[t] = x[nbtc.grid(1)] + TABLE[t % 10]
    nbtc.syncthreads()
    half = THREADS // 2
    while half > 0:
        if t < half:
            s[t] += s[t + half]
        nbtc.syncthreads()
        half >>= 1
    if t == 0:
        nbtc.atomic_add(sums, (0, nbtc.block_idx.x % 2), s[0])
        nbtc.atomic_min(least, 0, s[0])


def test_a_tree_of_sums_in_shared_memory():
    x = np.arange(512, dtype=np.float32)
    sums, least = np.zeros((1, 2), np.float32), np.full(1, np.inf, np.float32)
    block_sums[4, THREADS](x, sums, least)
    blocks = (x + np.tile(TABLE[np.arange(THREADS) % 10], 4)).reshape(4, THREADS).sum(1)
    assert sums.tolist() == [[blocks[0] + blocks[2], blocks[1] + blocks[3]]] and least[0] == blocks.min()


@nbtc.kernel
def dynamic(out):
    s = nbtc.shared(None, nbtc.f32)
    raw = nbtc.shared(None, np.uint8)
    mine = nbtc.local((2, 3), np.int32)
    t = nbtc.thread_idx.x
    for i in range(2):
        for j in range(3):
            mine[i, j] = i * t + j
    s[t] = t
    nbtc.syncthreads()
    out[t] = s[s.size - 1 - t] + mine[t % 2, t % 3] + raw.size


def test_dynamic_shared_and_local_memory():
    out = np.zeros(64)
    dynamic[1, 64, 0, 256](out)
    t = np.arange(64)
    assert (out == 63 - t + t % 2 * t + t % 3 + 256).all()
    with pytest.raises(OptionError, match="dynamic shared memory"):
        dynamic[1, 64, 0, 1 << 20](out)


@nbtc.kernel
def counting(a, b):
    t = nbtc.thread_idx.x
    b[0, t] = nbtc.atomic_add(a, 0, t + 1)
    b[1, t] = nbtc.atomic_sub(a, 1, t + 1)
    b[2, t] = nbtc.atomic_min(a, 2, 31 - t)
    b[3, t] = nbtc.atomic_max(a, 3, t)
    b[4, t] = nbtc.atomic_exch(a, 4, t)
    b[5, t] = nbtc.atomic_cas(a, 5, 0, t + 1)


@pytest.mark.parametrize("dtype", [np.int16, np.uint32, np.float16, np.float64], ids=lambda d: d.__name__)
def test_atomics_of_every_type(dtype):
    a, b = np.array([3, 1000, 100, 5, 7, 0], dtype), np.zeros((6, 32), dtype)
    counting[1, 32](a, b)
    total = 32 * 33 // 2
    assert a[:4].tolist() == [3 + total, 1000 - total, 0, 31]
    b = b.astype(np.float64)
    order = np.argsort(b[0])  # in which threads came
    assert (np.diff(b[0][order]) == order[:-1] + 1).all() and b[0].min() == 3
    order = np.argsort(-b[1])
    assert (np.diff(b[1][order]) == -(order[:-1] + 1)).all() and b[1].max() == 1000
    assert b[2].max() == 100 and b[3].min() == 5
    assert sorted([*b[4], a[4]]) == [*range(8), 7, *range(8, 32)]  # each got what another had put there, or the 7
    first = np.flatnonzero(b[5] == 0)
    assert len(first) == 1 and a[5] == first[0] + 1 and (np.delete(b[5], first) == a[5]).all()


@nbtc.kernel
def bits(a):
    s = nbtc.shared(5, np.uint64)
    t = nbtc.thread_idx.x
    if t < 5:
        s[t] = a[t]
    nbtc.syncthreads()
    nbtc.atomic_and(s, 0, ~(1 << t))
    nbtc.atomic_or(s, 1, 1 << (2 * t))
    nbtc.atomic_xor(s, 2, 1 << (t % 3))
    nbtc.atomic_inc(s, 3, 9)
    nbtc.atomic_dec(s, 4, 9)
    nbtc.syncthreads()
    if t < 5:
        a[t] = s[t]


def test_atomics_of_bits_in_shared_memory():
    a = np.array([(1 << 40) - 1, 0, 0, 0, 3], np.uint64)
    bits[1, 32](a)
    odd_bits = sum(1 << 2 * t for t in range(32))
    # 32 threads: t % 3 is 0 and 1 for 11 of them, 2 for 10; counters run through 0 to 9
    assert a.tolist() == [0xFF00000000, odd_bits, 0b011, 32 % 10, (3 - 32) % 10]


@nbtc.kernel
def prints(x):
    if nbtc.thread_idx.x < 2:
        print("thread", nbtc.thread_idx.x, x[0], x[0] > 1, (1, -2), "100%")


def test_print(capsys):
    prints[1, 32](np.full(1, 1.5, np.float32))
    assert capsys.readouterr().out.splitlines() == [f"thread {t} 1.500000 1 (1, -2) 100%" for t in range(2)]


@nbtc.kernel
def fences(x):
    x[0] = 1
    nbtc.threadfence_block()
    nbtc.threadfence()
    nbtc.threadfence_system()
    nbtc.nanosleep(20)


def test_fences_and_sleep():
    text = fences.ptx(np.zeros(1))
    assert all(form in text for form in ("membar.cta", "membar.gl", "membar.sys", "nanosleep.u32"))
    x = np.zeros(1)
    fences[1, 1](x)
    assert x[0] == 1


@nbtc.kernel
def varying_shape(x):
    s = nbtc.shared(nbtc.thread_idx.x, np.float32)
    x[0] = s[0]


@nbtc.kernel
def odd_alignment(x):
    x[0] = nbtc.shared(4, np.float32, align=3)[0]


@nbtc.kernel
def no_type(x):
    x[0] = nbtc.local(4, 3)[0]


@nbtc.kernel
def float_bits(x):
    nbtc.atomic_or(x, 0, 1)


@nbtc.kernel
def two_indices(x):
    nbtc.atomic_add(x, (0, 0), 1)


@nbtc.kernel
def prints_array(x):
    print(x)


@pytest.mark.parametrize(
    "kernel, said",
    [
        (varying_shape, "pass constants"),
        (odd_alignment, "power of two"),
        (no_type, "element type"),
        (float_bits, "works on integers"),
        (two_indices, "1 integer indices are wanted"),
        (prints_array, "print shows numbers"),
    ],
)
def test_wrong_words_are_refused_with_the_line(kernel, said):
    with pytest.raises(KernelError, match=rf"{kernel.__name__} \(.*test_memory.py:\d+\).*{said}"):
        kernel.ptx(np.zeros(3))
