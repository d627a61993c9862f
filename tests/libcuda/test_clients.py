"""Python packages that use CUDA, on nbtc's driver: each in a process of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys

import pytest


def client(code: str, command: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """A program of Python; without a command before it, it calls `nbtc.cuda.install`."""
    first = "" if command else "import nbtc; nbtc.cuda.install('H200')\n"
    line = [*command, sys.executable, "-P", "-c", first + code]
    done = subprocess.run(line, capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stdout + done.stderr
    return done


NUMBA = """
import warnings
import numpy as np
from numba import cuda
warnings.simplefilter("ignore")
@cuda.jit
def scaled(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 2 * x[i] + 1
d = cuda.to_device(np.arange(100.0))
scaled[1, 128](d)
assert (d.copy_to_host() == 2 * np.arange(100.0) + 1).all()
h = np.arange(10.0)
scaled[1, 32](h)
assert h[3] == 7
assert tuple(cuda.get_current_device().compute_capability) == (9, 0)
try:
    scaled[1, 2048](d)
except Exception as error:
    assert "CUDA_ERROR_INVALID_VALUE" in str(error), error
else:
    raise SystemExit("a block of 2048 threads ran")
"""


@pytest.mark.parametrize("command", [(), (sys.executable, "-m", "nbtc", "run", "--arch", "H200")])
def test_numba_cuda(command):
    pytest.importorskip("numba_cuda")
    client(NUMBA, command)


def test_cuda_bindings():
    pytest.importorskip("cuda.bindings")
    client("""
import ctypes
import numpy as np
from cuda.bindings import driver
def ok(found):
    assert found[0] == driver.CUresult.CUDA_SUCCESS, found
    return found[1] if len(found) == 2 else found[1:]
ok(driver.cuInit(0))
device = ok(driver.cuDeviceGet(0))
assert b"H200" in ok(driver.cuDeviceGetName(64, device))
ok(driver.cuCtxSetCurrent(ok(driver.cuDevicePrimaryCtxRetain(device))))
text = '''.version 8.0 .target sm_80 .address_size 64
.visible .entry add(.param .u64 x, .param .u32 n) { .reg .b32 t, v; .reg .b64 a, o;
ld.param.u64 a, [x]; ld.param.u32 v, [n]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 a, a, o;
red.global.add.u32 [a], v; ret; }'''
kernel = ok(driver.cuModuleGetFunction(ok(driver.cuModuleLoadData(text.encode() + b"\\0")), b"add"))
x, stream = np.arange(32, dtype=np.uint32), ok(driver.cuStreamCreate(0))
d = ok(driver.cuMemAlloc(x.nbytes))
ok(driver.cuMemcpyHtoDAsync(d, x.ctypes.data, x.nbytes, stream))
for n in range(5):
    arguments = ((d, n), (None, ctypes.c_uint32))
    ok(driver.cuLaunchKernel(kernel, 1, 1, 1, 32, 1, 1, 0, stream, arguments, 0))
y = np.empty_like(x)
ok(driver.cuMemcpyDtoHAsync(y.ctypes.data, d, x.nbytes, stream))
ok(driver.cuStreamSynchronize(stream))
assert (y == x + 10).all(), y
assert driver.cuMemFree(int(d) + 1)[0] == driver.CUresult.CUDA_ERROR_INVALID_VALUE
""")


def test_cuda_core():
    pytest.importorskip("cuda.core")
    client("""
import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch
code = '''extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] += a * x[i]; }'''
device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(std="c++17", arch=f"sm_{device.arch}")
kernel = Program(code, code_type="c++", options=options).compile("cubin").get_kernel("axpy")
memory, n = LegacyPinnedMemoryResource(), 1000
buffers = [memory.allocate(4 * n) for _ in range(2)]
x, y = (np.from_dlpack(b).view(np.float32) for b in buffers)
x[:], y[:] = np.arange(n), 1
launch(stream, LaunchConfig(grid=4, block=256), kernel, np.float32(2), *buffers, np.int32(n))
stream.sync()
assert (y == 1 + 2 * x).all() and "H200" in device.name
""")


def test_cuda_core_graphs_clusters_and_links():
    pytest.importorskip("cuda.core")
    client("""
import numpy as np
from cuda.core import (Device, EventOptions, LaunchConfig, LegacyPinnedMemoryResource, Linker, LinkerOptions, Program,
                       ProgramOptions, VirtualMemoryResource, launch)
from cuda.core.graph import GraphBuilder
device = Device()
device.set_current()
stream, memory, arch = device.create_stream(), LegacyPinnedMemoryResource(), f"sm_{device.arch}"
for name in dir(device.properties):
    getattr(device.properties, name)

def integers(count):
    buffer = memory.allocate(4 * count)
    return buffer, np.from_dlpack(buffer).view(np.int32)

def program(text, **more):
    return Program('extern "C" ' + text, "c++", ProgramOptions(std="c++17", arch=arch, **more))

add = program("__global__ void add(int *x) { *x += 1; }").compile("cubin").get_kernel("add")
buffer, x = integers(1)
x[:] = 0
one = LaunchConfig(grid=1, block=1)
builder = device.create_graph_builder().begin_building()
launch(builder, one, add, buffer)
left, right = builder.split(2)
launch(left, one, add, buffer)
launch(right, one, add, buffer)
builder = GraphBuilder.join(left, right)
launch(builder, one, add, buffer)
graph = builder.end_building().complete()
for n in (4, 8):
    graph.launch(stream)
    stream.sync()
    assert x[0] == n, x

text = '''__global__ void rank(int *x) { unsigned r, n; asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n)); x[blockIdx.x] = 10 * n + r; }'''
buffer, x = integers(4)
launch(stream, LaunchConfig(grid=2, cluster=2, block=1), program(text).compile("cubin").get_kernel("rank"), buffer)
stream.sync()
assert x.tolist() == [20, 21, 20, 21]

kind = {"ptx": {}, "ltoir": {"link_time_optimization": True}}
for form, more in kind.items():
    parts = [program(p, relocatable_device_code=True, **more).compile(form) for p in (
        "__device__ int f(int); extern \\"C\\" __global__ void k(int *x) { *x = f(*x); }",
        "__device__ int f(int x) { return 3 * x; }")]
    linked = Linker(*parts, options=LinkerOptions(arch=arch, **more)).link("cubin")
    buffer, x = integers(1)
    x[:] = 7
    launch(stream, one, linked.get_kernel("k"), buffer)
    stream.sync()
    assert x[0] == 21, form
begin, end = (stream.record(options=EventOptions(timing_enabled=True)) for _ in range(2))
assert end - begin >= 0
mapped = VirtualMemoryResource(device).allocate(1 << 20)
assert mapped.size >= 1 << 20
mapped.close()
""")


def test_triton_on_the_device_of_a_cuda_build_of_torch():
    torch = pytest.importorskip("torch")
    pytest.importorskip("triton")
    if torch.version.cuda is None or not torch.version.cuda.startswith("13"):
        pytest.skip("torch is not a build for CUDA 13")
    client("""
import sys
import os, tempfile
with tempfile.TemporaryDirectory() as folder:
    with open(os.path.join(folder, "kernels.py"), "w") as file:
        file.write('''
import triton, triton.language as tl
@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)
''')
    sys.path.insert(0, folder)
    import torch
    from kernels import add
    assert torch.cuda.is_available() and "H200" in torch.cuda.get_device_name()
    x, y, o = (torch.empty(1000, device="cuda") for _ in range(3))
    a, b = torch.randn(1000), torch.randn(1000)
    x.copy_(a); y.copy_(b)
    add[(8,)](x, y, o, 1000, B=128)
    assert (o.cpu() == a + b).all()
""")


def test_one_process_has_one_gpu_and_no_other_driver(tmp_path):
    client("""
import nbtc.errors
nbtc.cuda.install("H200")
try:
    nbtc.cuda.install("A100")
except nbtc.errors.OptionError as error:
    assert "one GPU" in str(error)
else:
    raise SystemExit("two GPUs")
""")
    import shutil

    from nbtc.libcuda.library.files import folder

    other = tmp_path / "libcudart.so.13"
    shutil.copy(folder() / "libcudart.so.13", other)
    done = client(
        f"""
import nbtc, nbtc.errors, ctypes
ctypes.CDLL({str(other)!r})
try:
    nbtc.cuda.install("H200")
except nbtc.errors.DeviceError as error:
    print(error)
""",
        (sys.executable, "-c", "import os, sys; os.execv(sys.argv[1], sys.argv[1:])"),
    )
    assert str(other) in done.stdout


def test_shims_give_ptx(tmp_path):
    from nbtc.libcuda.library.files import folder

    source, out = tmp_path / "k.ptx", tmp_path / "k.cubin"
    source.write_text(".version 8.0 .target sm_80\n")
    ptxas = str(folder() / "bin" / "ptxas")
    subprocess.run([ptxas, "-v", "--gpu-name=sm_90a", str(source), "-o", str(out)], check=True)
    assert out.read_text() == source.read_text()
    assert b"release 13.0" in subprocess.run([ptxas, "--version"], capture_output=True, check=True).stdout
    assert subprocess.run([ptxas], capture_output=True).returncode == 1


def test_the_shim_of_nvcc_writes_ptx_where_machine_code_would_be(tmp_path):
    from nbtc.libcuda.library.files import folder

    nvcc = tmp_path / "nvcc"
    nvcc.write_text('#!/bin/sh\necho "$@"\n')
    nvcc.chmod(0o755)
    place = folder() / "bin"
    env = {"PATH": f"{place}:{tmp_path}:{os.environ['PATH']}"}

    def said(*words: str) -> str:
        return subprocess.run(["nvcc", *words], capture_output=True, text=True, check=True, env=env).stdout

    assert said("--cubin", "-arch", "sm_90", "a/k l.cu") == "--ptx -arch sm_90 a/k l.cu -o k l.cubin\n"
    assert said("-cubin", "-o", "x", "k.cu") == "--ptx -o x k.cu\n"
    assert said("-c", "k.cu") == "-c k.cu\n"
    assert said("--version").startswith("--version\nnbtc in place of nvcc")


def test_pycuda():
    if importlib.util.find_spec("pycuda") is None or shutil.which("nvcc") is None:
        pytest.skip("needs PyCUDA and nvcc")
    client("""
import numpy as np
import pycuda.driver as driver, pycuda.gpuarray as gpuarray
import pycuda.autoinit
from pycuda.compiler import SourceModule
from pycuda.elementwise import ElementwiseKernel
from pycuda.reduction import ReductionKernel
assert "H200" in driver.Device(0).name()
module = SourceModule('''
__constant__ float scale;
__global__ void product(float *d, float *a, float *b) { int i = threadIdx.x; d[i] = a[i] * b[i] * scale; }
''', cache_dir=False)
where, size = module.get_global("scale")
driver.memcpy_htod(where, np.float32(3))
a, b, d = np.arange(100, dtype=np.float32), np.full(100, 2, np.float32), np.zeros(100, np.float32)
module.get_function("product")(driver.Out(d), driver.In(a), driver.In(b), block=(100, 1, 1), grid=(1, 1))
assert (d == 6 * a).all()
x, z = gpuarray.to_gpu(a), gpuarray.empty(100, np.float32)
ElementwiseKernel("float a, float *x, float *z", "z[i] = a * x[i]")(5, x, z)
assert (z.get() == 5 * a).all()
total = ReductionKernel(np.int32, neutral="0", reduce_expr="a+b", map_expr="x[i]", arguments="int *x")
assert total(gpuarray.to_gpu(np.arange(1000, dtype=np.int32))).get() == 499500
try:
    module.get_function("product")(driver.Out(d), driver.In(a), driver.In(b), block=(2048, 1, 1))
except driver.LogicError as error:
    assert "invalid argument" in str(error)
else:
    raise SystemExit("a block of 2048 threads ran")
""")


def test_what_has_a_static_runtime_is_told_why():
    pytest.importorskip("cupy")
    done = client(
        "import cupy\ntry: cupy.arange(3)\nexcept cupy.cuda.runtime.CUDARuntimeError as error: print(error)",
        (sys.executable, "-m", "nbtc", "run"),
    )
    assert "SymbolNotFound" in done.stdout and "-cudart shared" in done.stderr
