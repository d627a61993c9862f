"""Bad pointers, sizes and handles are refused, not followed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from clients import python, run

from nbtc.libcuda.rows import SONAMES, rows

HERE = Path(__file__).parent


@pytest.mark.parametrize("which", ["driver", "runtime"])
def test_random_calls_end_in_error_codes(which, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = tmp_path / "random_calls"
    command = ["gcc", "-O1", "-o", str(program), str(HERE / "random_calls.c"), "-ldl"]
    subprocess.run(command, check=True)
    names = [row.name for row in rows(which) if not row.name.startswith("__")]
    (tmp_path / "names").write_text("\n".join(names))
    done = run(program, SONAMES[which], str(tmp_path / "names"), "6000", "5")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith("6000 calls") and "Traceback" not in done.stderr


def test_pointers_that_lead_nowhere_are_refused():
    python("""
ready()
for at in (0, 8, 1 << 40, (1 << 63) + 5, (1 << 64) - 8):
    assert cu.cuDeviceGetCount(c_void_p(at)) == 1, hex(at)
    assert cu.cuModuleLoadData(c_void_p(at), c_void_p(at)) == 1, hex(at)
d, x = allocate(256), (c_char * 512)()
for target, source, size in ((d.value, 8, 64), (d.value + 1, addressof(x), 256), (d.value, addressof(x), 257),
                             (8, addressof(x), 16), (d.value, addressof(x), (1 << 64) - 1)):
    assert cu.cuMemcpyHtoD_v2(u64(target), c_void_p(source), c_size_t(size)) == 1, (hex(target), hex(source), size)
assert cu.cuMemcpyDtoH_v2(c_void_p(16), d, c_size_t(64)) == 1
assert cu.cuMemcpyHtoD_v2(u64(addressof(x)), x, c_size_t(16)) == 1, "memory of the host is not the device's"
assert cu.cuMemsetD32_v2(d, u32(1), c_size_t(65)) == 1
assert cu.cuMemFree_v2(u64(addressof(x))) == 1
ok(cu.cuMemFree_v2(d))
assert cu.cuMemFree_v2(d) == 1
assert cu.cuMemcpyHtoD_v2(d, x, c_size_t(64)) == 1
assert cu.cuDeviceGetCount(c_void_p(d.value)) == 1, "freed memory is not written to"
assert cu.cuLaunchHostFunc(None, x, None) == 1, "data is no function"
""")


def test_what_a_context_owned_is_gone_with_it():
    python("""
ok(cu.cuInit(0))
first, second = u64(), u64()
ok(cu.cuCtxCreate_v2(byref(first), 0, 0))
m = module(TWICE)
f, d, s = kernel(m, "twice"), allocate(256), u64()
ok(cu.cuStreamCreate(byref(s), 0))
ok(cu.cuCtxDestroy_v2(first))
ok(cu.cuCtxCreate_v2(byref(second), 0, 0))
assert cu.cuStreamSynchronize(s) == 400
assert cu.cuMemFree_v2(d) == 1
assert launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)) == 400
assert cu.cuModuleUnload(m) == 400
assert cu.cuCtxSetCurrent(first) == 400
""")


def test_a_forked_process_is_told():
    done = python("""
import os
ready()
d = allocate(64)
child = os.fork()
if not child:
    p = u64()
    os._exit(0 if cu.cuMemAlloc_v2(byref(p), c_size_t(64)) == 3 else 1)
assert os.waitpid(child, 0)[1] == 0
ok(cu.cuMemFree_v2(d))
""")
    assert "forked process" in done.stderr


def test_threads_launch_at_once():
    python("""
import threading
context = ready()
f = kernel(module(TWICE), "twice")
wrong = []
def work(n):
    ok(cu.cuCtxSetCurrent(context))
    d = allocate(128)
    x = (u32 * 32)(*range(32))
    ok(cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)))
    for _ in range(20):
        ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)))
    ok(cu.cuMemcpyDtoH_v2(x, d, c_size_t(128)))
    if list(x) != [(i << 20) & 0xFFFFFFFF for i in range(32)]:
        wrong.append(n)
threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
for t in threads: t.start()
for t in threads: t.join()
assert not wrong, wrong
""")


def test_no_library_comes_from_the_current_folder(tmp_path):
    from nbtc.libcuda.command import environment

    made = environment({"LD_LIBRARY_PATH": "/opt/x", "LD_PRELOAD": "/opt/y.so"}, "H200", True, "profile.txt", 2)
    for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", "TRITON_LIBCUDA_PATH"):
        assert all(Path(p).is_absolute() for p in made[name].split(":")), made[name]
    assert made["NBTC_ARCH"] == "H200" and made["NBTC_CHECKED"] == "1" and made["NBTC_THREADS"] == "2"
    assert made["LD_LIBRARY_PATH"].endswith(":/opt/x") and made["LD_PRELOAD"].endswith(":/opt/y.so")
