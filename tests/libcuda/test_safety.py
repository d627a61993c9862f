"""Bad pointers, sizes and handles are refused, not followed."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from clients import python, run

from nbtc.libcuda.compilers.linker import LINKER
from nbtc.libcuda.library import boot, elf
from nbtc.libcuda.library.files import folder
from nbtc.libcuda.rows import SONAMES, rows

HERE = Path(__file__).parent


@pytest.mark.parametrize("which", ["driver", "runtime", "nvjitlink"])
def test_random_calls_end_in_error_codes(which, tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    program = tmp_path / "random_calls"
    command = ["gcc", "-O1", "-o", str(program), str(HERE / "random_calls.c"), "-ldl"]
    subprocess.run(command, check=True)
    names = LINKER if which == "nvjitlink" else [row.name for row in rows(which) if not row.name.startswith("__")]
    (tmp_path / "names").write_text("\n".join(names))
    done = run(program, SONAMES[which], str(tmp_path / "names"), "100000", "5")
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.startswith("100000 calls") and "Traceback" not in done.stderr
    assert int(done.stdout.split()[2]) > 1000, (
        done.stdout
    )  # succeeded: objects and descriptions are what they should be


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs a compiler")
def test_programs_say_that_python_has_no_shared_library(tmp_path, monkeypatch):
    monkeypatch.setattr(boot, "python_library", lambda: None)
    names = [row.name for row in rows("driver")]
    raw = elf.Library("libcuda.so.1", names, boot.IMPORTS, boot.boot_object("driver", names, str(tmp_path)), None)
    (tmp_path / "libcuda.so.1").write_bytes(raw.write())
    program, listed = tmp_path / "random_calls", tmp_path / "names"
    subprocess.run(["gcc", "-O1", "-o", program, HERE / "random_calls.c", "-ldl"], check=True)
    listed.write_text("\n".join(names))
    done = subprocess.run([program, tmp_path / "libcuda.so.1", listed, "100000", "5"], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("100000 calls"), done
    assert "it has no shared library.  Install it" in done.stderr and done.stderr.count("\n") == 1


def test_a_file_s_name_is_text(tmp_path):
    python(f"""
import os
os.chdir({str(tmp_path)!r})
ready()
graph, module, link = c_void_p(), c_void_p(), c_void_p()
assert cu.cuGraphCreate(byref(graph), u32(0)) == 0
for name in (b"\\xff\\xfe", b"a\\nb", b"\\x01"):
    assert cu.cuGraphDebugDotPrint(graph, name, u32(0)) == 1, name
    assert cu.cuModuleLoad(byref(module), name) == 1, name
assert os.listdir() == []
assert cu.cuGraphDebugDotPrint(graph, "gr\u00e4ph.dot".encode(), u32(0)) == 0
assert os.listdir() == ["gr\u00e4ph.dot"]
""")


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
assert cu.cuLaunchHostFunc(None, x, None) == 1, "data is not a function"
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


def test_a_process_forked_before_the_first_call_has_its_own_device():
    done = python("""
import os
child = os.fork()
ready()
d, x = allocate(128), (u32 * 32)(*range(32))
ok(cu.cuMemcpyHtoD_v2(d, x, c_size_t(128)))
ok(launch(kernel(module(TWICE), "twice"), (1, 1, 1), (32, 1, 1), d, u32(32)))
ok(cu.cuMemcpyDtoH_v2(x, d, c_size_t(128)))
assert list(x) == [2 * i for i in range(32)]
if not child:
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
""")
    assert "forked" not in done.stderr


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


def test_a_toolkit_without_names_to_link_with_gets_ours(tmp_path):
    from nbtc.libcuda.command import environment
    from nbtc.libcuda.library.files import LINKS, folder

    links = folder() / LINKS
    assert {p.name for p in links.iterdir()} == {"libcudart.so", "libnvrtc.so", "libnvJitLink.so"}
    nvcc, has = tmp_path / "bin" / "nvcc", tmp_path / "lib" / "libcudart.so"
    for made in (nvcc, has):
        made.parent.mkdir()
        made.touch(0o755)

    def named(path: object) -> list[str]:
        return environment({"PATH": f"{folder() / 'bin'}:{path}"})["LIBRARY_PATH"].split(":")

    assert str(links) not in named(nvcc.parent) and str(links) not in named(tmp_path)
    has.unlink()
    assert named(nvcc.parent)[-1] == str(links)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a program another user's rights")
def test_a_process_with_more_rights_than_its_user_is_refused(tmp_path):
    if shutil.which("gcc") is None:
        pytest.skip("there is no gcc")
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to others
        place = Path(name)
        place.chmod(0o755)
        source, program, library = place / "a.c", place / "a", place / "libcuda.so.1"
        source.write_text(
            "#include <dlfcn.h>\n#include <stdio.h>\n#include <sys/auxv.h>\n"
            "int main(int n, char **args) { void *l = dlopen(args[1], RTLD_NOW);\n"
            'int (*init)(int) = l ? dlsym(l, "cuInit") : 0;\n'
            'printf("%d %d\\n", (int)getauxval(AT_SECURE), init ? init(0) : -1); return 0; }\n'
        )
        subprocess.run(["gcc", "-o", str(program), str(source), "-ldl"], check=True)
        shutil.copy(folder() / "libcuda.so.1", library)
        library.chmod(0o755)
        os.chown(program, 65534, 65534)
        program.chmod(0o4755)
        done = subprocess.run([str(program), str(library)], capture_output=True, text=True, timeout=60)
    if done.stdout.startswith("0"):
        pytest.skip("programs with another user's rights don't run from here")
    assert done.stdout == "1 4\n" and "more rights than its user" in done.stderr, done.stdout + done.stderr


def test_another_driver_in_the_process_is_told(tmp_path):
    other = tmp_path / "libcuda.so.1"
    shutil.copy(folder() / "libcuda.so.1", other)
    done = python(f"CDLL({str(other)!r})\nok(cu.cuInit(0))\nok(cu.cuInit(0))")
    assert done.stderr.count("NVIDIA's driver too") == 1 and str(other) in done.stderr


def test_memory_and_contexts_of_others_are_refused():
    python("""
ok(cu.cuInit(0))
first, second = u64(), u64()
ok(cu.cuCtxCreate_v2(byref(first), 0, 0))
m = module(TWICE)
f, d, e = kernel(m, "twice"), allocate(256), allocate(256)
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)))
for wrong in (d.value + 1, d.value + 256, e.value - 1, f.value, first.value, addressof(first)):
    assert cu.cuMemFree_v2(u64(wrong)) == 1, hex(wrong)
for wrong in (d, m, first, u64(addressof(first)), u64(0), u64(d.value + 8)):
    assert launch(wrong, (1, 1, 1), (32, 1, 1), d, u32(32)) == 400, hex(wrong.value)
    assert wrong is m or cu.cuModuleUnload(wrong) == 400
for wrong in (d, m, f, u64(addressof(first))):
    assert cu.cuCtxSetCurrent(wrong) in (201, 400) and cu.cuCtxDestroy_v2(wrong) in (201, 400)
ok(cu.cuMemFree_v2(d))
assert cu.cuMemFree_v2(d) == 1 and cu.cuMemsetD8_v2(d, 1, c_size_t(1)) == 1
n = u64(7)
assert cu.cuMemcpyDtoH_v2(byref(n), d, c_size_t(8)) == 1 and n.value == 7
assert cu.cuMemcpyDtoD_v2(e, d, c_size_t(8)) == 1 and cu.cuMemcpyDtoD_v2(d, e, c_size_t(8)) == 1
popped = u64()
ok(cu.cuCtxPopCurrent_v2(byref(popped)))
assert cu.cuMemAlloc_v2(byref(n), c_size_t(8)) == 201
""")


def test_texts_of_errors_are_there_when_the_driver_has_ended():
    done = python("""
import atexit
def last():  # registered before the driver's end is
    text, d = c_char_p(b"nothing"), u64()
    assert cu.cuMemAlloc_v2(byref(d), c_size_t(8)) == 4
    ok(cu.cuGetErrorString(4, byref(text)))
    ok(cu.cuGetErrorString(4, None))
    rt.cudaGetErrorString.restype = c_char_p
    print(text.value.decode(), "|", rt.cudaGetErrorString(4).decode(), "|", cu.cuCtxDetach(u64(5)))
atexit.register(last)
ready()
rt.cudaGetLastError()
""")
    assert done.stdout == "driver shutting down | driver shutting down | 0\n"
