"""Programs of numba.cuda on the emulated device."""

import math

import numpy as np
import pytest
from numba import cuda, float32, int32

import nbtc
from nbtc import errors

TABLE = np.arange(10, dtype=np.int32) ** 2


@cuda.jit
def add(a, b, c):
    i = cuda.grid(1)
    if i < c.size:
        c[i] = a[i] + b[i]


@cuda.jit
def block_sums(a, out):
    part = cuda.shared.array(4, float32)
    s = a[cuda.grid(1)]
    for step in (16, 8, 4, 2, 1):
        s += cuda.shfl_down_sync(0xFFFFFFFF, s, step)
    if cuda.laneid == 0:
        part[cuda.threadIdx.x // 32] = s
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        cuda.atomic.add(out, 0, part[0] + part[1] + part[2] + part[3])


@cuda.jit
def reversed_in_dynamic_memory(a):
    tile = cuda.shared.array(0, int32)
    i = cuda.threadIdx.x
    tile[i] = a[i]
    cuda.syncthreads()
    a[i] = tile[a.size - 1 - i]


@cuda.jit
def local_and_constant(a):
    own = cuda.local.array(10, int32)
    squares = cuda.const.array_like(TABLE)
    for k in range(10):
        own[k] = squares[(k + cuda.threadIdx.x) % 10]
    a[cuda.threadIdx.x] = own[3]


@cuda.jit
def rotate_three_times(a):
    grid = cuda.cg.this_grid()
    i = cuda.grid(1)
    for _ in range(3):
        v = a[(i + 1) % a.size]
        grid.sync()
        a[i] = v
        grid.sync()


@cuda.jit
def functions(x, out):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = math.exp(x[i]) * math.sin(x[i]) + math.sqrt(abs(x[i]))


@cuda.jit
def halves(x, out):
    i = cuda.grid(1)
    out[i] = x[i] * x[i]


@cuda.jit(debug=True, opt=False)
def divides(x):
    x[cuda.threadIdx.x] = 1 // x[cuda.threadIdx.x]


@cuda.jit
def writes_behind(x):
    x[cuda.grid(1) + 10_000] = 1


@pytest.fixture(autouse=True)
def device():
    with nbtc.cuda.emulated("sm_80"):
        yield


def test_device_arrays_streams_and_events():
    a = np.arange(1000, dtype=np.float32)
    stream, start, end = cuda.stream(), cuda.event(), cuda.event()
    d, c = cuda.to_device(a, stream=stream), cuda.device_array(1000, np.float32)
    start.record(stream)
    add[8, 128, stream](d, d, c)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) > 0
    assert (c.copy_to_host(stream=stream) == 2 * a).all() and (c[10:20].copy_to_host() == 2 * a[10:20]).all()
    c[:] = d
    assert (c.copy_to_host() == a).all()


def test_arrays_of_the_host():
    a, c = np.arange(40, dtype=np.float32), np.zeros(80, np.float32)
    add[1, 64](cuda.In(a), a, cuda.Out(c[::2]))
    assert (c[::2] == 2 * a).all() and (c[1::2] == 0).all()
    pinned, managed = cuda.pinned_array(40, np.float32), cuda.managed_array(40, np.float32)
    pinned[:] = 3
    add[1, 64](pinned, a, managed)
    assert (managed == a + 3).all()


def test_shared_local_and_constant_arrays():
    a, out = np.arange(512, dtype=np.float32), np.zeros(1, np.float32)
    block_sums[4, 128](a, out)
    assert out[0] == a.sum()
    b = np.arange(64, dtype=np.int32)
    reversed_in_dynamic_memory[1, 64, 0, 256](b)
    assert (b == np.arange(64)[::-1]).all()
    local_and_constant[1, 20](c := np.zeros(20, np.int32))
    assert (c == TABLE[(np.arange(20) + 3) % 10]).all()


def test_grid_wide_barriers():
    x = np.arange(256, dtype=np.int32)
    rotate_three_times[4, 64](x)
    assert (x == (np.arange(256) + 3) % 256).all()


def test_functions_and_half_precision():
    x, out = np.linspace(-3, 3, 100), np.zeros(100)
    functions[1, 128](x, out)
    np.testing.assert_allclose(out, np.exp(x) * np.sin(x) + np.sqrt(abs(x)), rtol=1e-15, atol=1e-15)
    h = np.linspace(-3, 3, 32).astype(np.float16)
    halves[1, 32](h, got := np.zeros(32, np.float16))
    assert (got == h * h).all()


def test_exceptions_of_kernels():
    with pytest.raises(ZeroDivisionError):
        divides[1, 4](np.arange(4))
    with pytest.raises(errors.ProgramError, match="outside"):
        writes_behind[1, 1](np.zeros(4, np.float32))


def test_device_functions_and_forall():
    @cuda.jit(device=True)
    def square(x):
        return x * x

    @cuda.jit
    def squares(x):
        i = cuda.grid(1)
        if i < x.size:
            x[i] = square(x[i])

    squares.forall(10)(x := np.arange(10.0))
    assert (x == np.arange(10.0) ** 2).all()


@cuda.jit
def neighbours(a, out):
    s = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    s[i] = a[i]
    out[i] = s[63 - i]


def test_launches_are_checked_or_counted():
    a, out, found = np.arange(64, dtype=np.float32), np.zeros(64, np.float32), []
    with nbtc.cuda.emulated("sm_80", checked=True), pytest.raises(errors.ProgramError, match="data race"):
        neighbours[1, 64](a, out)
    with nbtc.cuda.emulated("sm_80", profiles=found):
        neighbours[1, 64](a, out)
    assert len(found) == 1
    assert found[0].total.executed > 0
