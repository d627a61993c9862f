"""Kernels kept on disk, and launches that are quick, leave nothing behind and may overlap."""

import enum
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numba import types

import nbtc
from nbtc.dialect import module, text_cache

FACTOR = 3
TABLE = np.arange(4)


@nbtc.device
def scaled(x):
    return x * FACTOR


def body(x):
    x[0] = scaled(x[1]) + TABLE[1]


def named():
    return text_cache.digest(body, (types.float64[::1],), "sm_90")


def test_a_text_is_found_by_all_that_it_depends_on(monkeypatch):
    first = named()
    assert first is not None and named() == first
    assert text_cache.digest(body, (types.float32[::1],), "sm_90") != first
    assert text_cache.digest(body, (types.float64[::1],), "sm_80") != first
    monkeypatch.setitem(globals(), "FACTOR", 4)
    assert named() != first
    monkeypatch.setitem(globals(), "FACTOR", 3)
    assert named() == first
    TABLE[1] = 7
    assert named() != first
    TABLE[1] = 1
    assert named() == first

    def closing(n):
        def inner(x):
            x[0] = n

        return text_cache.digest(inner, (types.float64[::1],), "sm_90")

    assert closing(1) == closing(1) != closing(2)
    assert closing(object()) is None  # its text is not known to be the same in another process


def test_a_kept_kernel_is_not_written_again(tmp_path, monkeypatch):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    x = np.arange(3.0)
    nbtc.kernel(body)[1, 1](x)
    assert x[0] == 4

    def unwanted(*_):
        raise RuntimeError("written again")

    monkeypatch.setattr(module, "write", unwanted)
    x = np.arange(3.0)
    nbtc.kernel(body)[1, 1](x)
    assert x[0] == 4


@nbtc.kernel
def empty():
    pass


def test_many_launches_take_little_time_and_leave_nothing():
    empty[1, 32]()
    least = np.inf
    for _ in range(5):
        start = time.thread_time()
        for _ in range(1000):
            empty[1, 32]()
        least = min(least, time.thread_time() - start)
    assert least < 0.1  # twice what 10,000 in half a second are: other processes share the caches
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(1000):
        empty[1, 32]()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 20_000  # bytes: not 20 a launch


@nbtc.kernel
def count(x, value):
    s = nbtc.shared(64, np.int32)
    t = nbtc.thread_idx.x
    s[t] = value
    nbtc.syncthreads()
    nbtc.atomic_add(x, 0, s[63 - t])


def test_launches_from_several_threads():
    def launch(value):
        x = np.zeros(1, np.int32)
        count[8, 64](x, value)
        return int(x[0])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(launch, range(40))) == [8 * 64 * v for v in range(40)]


def closing_over(value):
    """The name of the text of a kernel that takes `value` as a constant."""

    def inner(x):
        x[0] = value

    return text_cache.digest(inner, (types.float64[::1],), "sm_90")


def test_constants_in_classes_and_enums_are_part_of_a_text():
    def numbered(n):
        return enum.Enum("Mode", {"K": n})

    def kept(n):
        return type("Settings", (), {"FACTOR": n, "__module__": __name__})

    for make in (numbered, kept, lambda n: numbered(n).K, lambda n: enum.IntEnum("Mode", {"K": n}).K):
        assert closing_over(make(1)) == closing_over(make(1)) != closing_over(make(2)), make(1)
        assert closing_over(make(1)) is not None


def test_device_functions_of_nbtc_itself_are_more_than_their_names():
    """The examples are modules of nbtc, and make functions that close over numbers."""

    def made(n):
        def f(x):
            return x + n

        f.__module__ = "nbtc.examples.kernels.hopper"
        return closing_over(nbtc.device(f))

    assert made(64) == made(64) != made(128)
