"""Calls that are answered without Python give what Python would have given."""

from __future__ import annotations

from clients import python

COUNTED = """
from nbtc.libcuda import launching, memory
counts = dict.fromkeys(("launch", "copy"), 0)
def counting(module, name):
    whole = getattr(module, name)
    def counted(*args):
        counts[name] += 1
        return whole(*args)
    setattr(module, name, counted)
counting(launching, "launch")
import nbtc.libcuda.driver.copies as copies
counting(copies, "copy")
context = ready()
f = kernel(module(TWICE), "twice")
d, x = allocate(128), (u32 * 32)(*range(32))
def round_trip(p, n=32):
    ok(cu.cuMemcpyHtoD_v2(p, x, c_size_t(128)))
    code = launch(f, (1, 1, 1), (32, 1, 1), p, u32(n))
    y = (u32 * 32)()
    return code or cu.cuMemcpyDtoH_v2(y, p, c_size_t(128)) or list(y)
def doubled(n=32):
    return [2 * i if i < n else i for i in range(32)]
for n in (32, 5, 9):
    assert round_trip(d, n) == doubled(n)
"""


def test_repeated_launches_and_copies_need_no_python():
    python(
        COUNTED
        + """
before = dict(counts)
for n in range(33):
    assert round_trip(d, n) == doubled(n)
assert counts == before, counts
e = allocate(128)
for n in (32, 5, 9, 11):
    assert round_trip(e, n) == doubled(n) and round_trip(d, n) == doubled(n)
before = dict(counts)
assert round_trip(e, 31) == doubled(31) and counts == before
"""
    )


def test_what_is_gone_is_refused_after_it_worked():
    python(
        COUNTED
        + """
s = u64()
ok(cu.cuStreamCreate(byref(s), 0))
for _ in range(3):
    ok(cu.cuStreamSynchronize(s))
    ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value))
    ok(cu.cuMemcpyHtoDAsync_v2(d, x, c_size_t(128), s))
ok(cu.cuStreamDestroy_v2(s))
assert cu.cuStreamSynchronize(s) == 400
assert launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value) == 400
assert cu.cuMemcpyHtoDAsync_v2(d, x, c_size_t(128), s) == 400
for p in (0, 8, 1 << 40, (1 << 64) - 8, context.value):
    assert cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, c_void_p(p), None) == 1, hex(p)
    pointers = (c_void_p * 2)(p, p)
    assert cu.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, None, pointers, None) == 1, hex(p)
    assert cu.cuMemcpyHtoD_v2(d, c_void_p(p), c_size_t(128)) == 1, hex(p)
    assert cu.cuMemcpyDtoH_v2(c_void_p(p), d, c_size_t(128)) == 1, hex(p)
assert cu.cuMemcpyHtoD_v2(d, x, c_size_t(129)) == 1
assert round_trip(d, 7) == doubled(7)
popped = u64()
ok(cu.cuCtxPopCurrent_v2(byref(popped)))
assert launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)) == 201
assert cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)) == 201 and cu.cuCtxSynchronize() == 201
ok(cu.cuCtxPushCurrent_v2(popped))
for _ in range(3):
    assert round_trip(d, 7) == doubled(7)
ok(cu.cuMemFree_v2(d))
assert cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)) == 1
"""
    )


def test_a_module_that_is_gone_and_a_capture():
    python(
        COUNTED
        + """
m = module(TWICE)
g = kernel(m, "twice")
for _ in range(4):
    ok(launch(g, (1, 1, 1), (32, 1, 1), d, u32(32)))
ok(cu.cuModuleUnload(m))
assert launch(g, (1, 1, 1), (32, 1, 1), d, u32(32)) == 400
s, graph = u64(), u64()
ok(cu.cuStreamCreate(byref(s), 0))
ok(cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)))
for _ in range(4):
    ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(0), stream=s.value))
ok(cu.cuStreamBeginCapture_v2(s, 1))
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value))
assert cu.cuStreamSynchronize(s) == 900
y = (u32 * 32)()
cu.cuStreamEndCapture(s, byref(graph))
ok(cu.cuMemcpyDtoH_v2(y, d, c_size_t(128)))
assert list(y) == list(range(32)), "a captured launch has run"
"""
    )


def test_a_fault_of_a_repeated_launch_has_its_place_and_stays():
    done = python(
        COUNTED
        + """
n = counts["launch"]
ok(launch(f, (1, 1, 1), (32, 1, 1), u64(1 << 41), u32(32)))
assert counts["launch"] == n, "Python has launched it"
assert cu.cuCtxSynchronize() == 700 and launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)) == 700
assert cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)) == 700
ok(cu.cuDevicePrimaryCtxReset_v2(0))
"""
    )
    assert "twice" in done.stderr and "line 6" in done.stderr, done.stderr


def test_memory_of_the_host_that_goes_away():
    python(
        COUNTED
        + """

libc = CDLL(None)
libc.mmap.restype, libc.mmap.argtypes = c_void_p, (c_void_p, c_size_t, i32, i32, i32, c_int64)

for size in (4096, 1 << 16, 1 << 21):
    p = libc.mmap(None, 2 * size, 3, 34, -1, 0)
    big = allocate(2 * size)
    for _ in range(5):
        ok(cu.cuMemcpyHtoD_v2(big, c_void_p(p), c_size_t(2 * size)))
        ok(cu.cuMemcpyDtoH_v2(c_void_p(p), big, c_size_t(2 * size)))
    libc.munmap(c_void_p(p + size), c_size_t(size))
    assert cu.cuMemcpyHtoD_v2(big, c_void_p(p), c_size_t(2 * size)) == 1, size
    assert cu.cuMemcpyDtoH_v2(c_void_p(p), big, c_size_t(2 * size)) == 1, size
    ok(cu.cuMemcpyDtoH_v2(c_void_p(p), big, c_size_t(size)))
    ok(cu.cuMemFree_v2(big))
"""
    )


def test_a_forked_process_is_told_after_calls_that_needed_no_python():
    python(
        COUNTED
        + """
import os
ok(cu.cuCtxSynchronize())
child = CDLL(None).fork()
if not child:
    codes = cu.cuCtxSynchronize(), launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)), cu.cuCtxSynchronize()
    os._exit(0 if codes == (3, 3, 3) else 1)
assert os.waitpid(child, 0)[1] == 0
assert round_trip(d, 3) == doubled(3)
"""
    )


def test_code_with_loops_can_be_interrupted():
    done = python(
        """
import os, signal, threading, time
ready()
f = kernel(module('''.version 8.0 .target sm_80 .address_size 64
.visible .entry endless(.param .u64 x) { .reg .u32 v; .reg .u64 a; .reg .pred p; ld.param.u64 a, [x];
again: ld.volatile.global.u32 v, [a]; setp.eq.u32 p, v, 0; @p bra again; ret; }'''), "endless")
d = allocate(4)
ok(cu.cuMemsetD32_v2(d, u32(1), c_size_t(1)))
for _ in range(4):
    ok(launch(f, (1, 1, 1), (32, 1, 1), d))
ok(cu.cuMemsetD32_v2(d, u32(0), c_size_t(1)))
threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    launch(f, (1, 1, 1), (32, 1, 1), d)
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
"""
    )
    assert done.stdout == "interrupted\n"
