"""CMake's ways to build programs of CUDA, and their tests under `nbtc run --checked ctest`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET

import pytest

RUN = [sys.executable, "-P", "-m", "nbtc", "run"]
TOOLS = ("cmake", "ctest", "nvcc", "g++", "make")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not all(shutil.which(tool) for tool in TOOLS), reason="needs CMake and nvcc"),
]

FILES = {
    "CMakeLists.txt": """
cmake_minimum_required(VERSION 3.20)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(CMAKE_CUDA_ARCHITECTURES 80-virtual)
set(CMAKE_CUDA_FLAGS -lineinfo)
project(programs LANGUAGES CXX)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
enable_testing()

add_executable(sum sum.cu)
add_executable(racing sum.cu)
target_compile_definitions(racing PRIVATE RACING)

add_library(parts STATIC parts.cu)
add_executable(separate separate.cu)
target_link_libraries(separate parts)
set_target_properties(parts separate PROPERTIES CUDA_SEPARABLE_COMPILATION ON)

add_executable(toolkit toolkit.cpp)
target_link_libraries(toolkit CUDA::cudart)

add_library(texts OBJECT texts.cu)
set_target_properties(texts PROPERTIES CUDA_PTX_COMPILATION ON)
add_executable(driver driver.cpp)
target_link_libraries(driver CUDA::cuda_driver)
add_dependencies(driver texts)

add_executable(static sum.cu)
set_target_properties(static PROPERTIES CUDA_RUNTIME_LIBRARY Static)

foreach(name sum racing separate toolkit static)
  add_test(NAME ${name} COMMAND ${name})
endforeach()
add_test(NAME driver COMMAND driver $<TARGET_OBJECTS:texts>)
""",
    "texts.cu": """
extern "C" __global__ void fill(int *out, int n) { if (threadIdx.x < n) out[threadIdx.x] = 3 * threadIdx.x; }
""",
    "driver.cpp": r"""
#include <cuda.h>
int main(int, char **files) {
  CUcontext context;
  CUmodule module;
  CUfunction fill;
  CUdeviceptr d;
  int n = 20, x[32];
  void *arguments[] = {&d, &n};
  if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)) return 1;
  if (cuModuleLoad(&module, files[1]) || cuModuleGetFunction(&fill, module, "fill")) return 2;
  if (cuMemAlloc(&d, sizeof x) || cuMemsetD32(d, 7, 32)) return 3;
  if (cuLaunchKernel(fill, 1, 1, 1, 32, 1, 1, 0, 0, arguments, 0) || cuMemcpyDtoH(x, d, sizeof x)) return 4;
  for (int i = 0; i < 32; i++) if (x[i] != (i < n ? 3 * i : 7)) return 5;
  return cuMemFree(d);
}
""",
    "sum.cu": """
#include <cstdio>
__global__ void sum(const int *x, int *out) {
  __shared__ int held[64];
  held[threadIdx.x] = x[threadIdx.x];
  for (int n = 32; n; n /= 2) {
#ifndef RACING
    __syncthreads();
#endif
    if (threadIdx.x < n) held[threadIdx.x] += held[threadIdx.x + n];
  }
  if (!threadIdx.x) *out = held[0];
}
int main() {
  int *x, *out, found = 0;
  cudaMallocManaged(&x, 64 * sizeof(int));
  cudaMalloc(&out, sizeof(int));
  if (cudaGetLastError()) return 3;
  for (int i = 0; i < 64; i++) x[i] = i;
  sum<<<1, 64>>>(x, out);
  cudaError_t error = cudaMemcpy(&found, out, sizeof(int), cudaMemcpyDeviceToHost);
  if (error) { printf("%s\\n", cudaGetErrorString(error)); return 1; }
  return found != 63 * 32;
}
""",
    "parts.cu": """
__device__ int base = 5;
__constant__ int more[2] = {7, 9};
__device__ int twice(int x) { return 2 * x; }
""",
    "separate.cu": """
extern __device__ int base, twice(int);
extern __constant__ int more[2];
__global__ void fill(int *out) { out[threadIdx.x] = twice(threadIdx.x) + base + more[1]; }
int main() {
  int *out;
  cudaMallocManaged(&out, 32 * sizeof(int));
  fill<<<1, 32>>>(out);
  if (cudaDeviceSynchronize()) return 1;
  for (int i = 0; i < 32; i++) if (out[i] != 2 * i + 14) return 2;
  return 0;
}
""",
    "toolkit.cpp": r"""
#include <cuda_runtime_api.h>
static const char text[] = R"(.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x) {
.reg .b32 t, v; .reg .b64 a, o;
ld.param.u64 a, [x]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 a, a, o;
ld.global.u32 v, [a]; add.u32 v, v, v; st.global.u32 [a], v; ret; })";
int main() {
  cudaLibrary_t library;
  cudaKernel_t kernel;
  if (cudaLibraryLoadData(&library, text, 0, 0, 0, 0, 0, 0)) return 1;
  if (cudaLibraryGetKernel(&kernel, library, "twice")) return 2;
  int x[32], *d;
  for (int i = 0; i < 32; i++) x[i] = i;
  void *arguments[] = {&d};
  if (cudaMalloc((void **)&d, sizeof x) || cudaMemcpy(d, x, sizeof x, cudaMemcpyHostToDevice)) return 3;
  if (cudaLaunchKernel((const void *)kernel, dim3(1), dim3(32), arguments, 0, 0)) return 4;
  if (cudaMemcpy(x, d, sizeof x, cudaMemcpyDeviceToHost)) return 5;
  for (int i = 0; i < 32; i++) if (x[i] != 2 * i) return 6;
  return cudaFree(d);
}
""",
}


def test_projects_of_cmake_under_ctest(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    build = tmp_path / "build"
    for command in (["cmake", "-S", tmp_path, "-B", build, "-G", "Unix Makefiles"], ["cmake", "--build", build]):
        done = subprocess.run([*RUN, *command], capture_output=True, text=True)  # for libcuda.so, to link with
        assert not done.returncode, done.stdout + done.stderr
    sarif, junit, cases = (tmp_path / name for name in ("found.sarif", "found.xml", "ctest.xml"))
    command = [*RUN, "--checked", "--sarif", sarif, "--junit", junit]
    ctest = ["ctest", "--test-dir", build, "--output-on-failure", "--output-junit", cases]
    done = subprocess.run([*command, *ctest], capture_output=True, text=True, timeout=600, env=os.environ)
    assert done.returncode == 8, done.stdout + done.stderr  # ctest's own: tests failed
    said = {case.get("name"): case for case in ET.parse(cases).iter("testcase")}
    failed = {name for name, case in said.items() if case.get("status") != "run"}
    assert set(said) == {"sum", "racing", "separate", "toolkit", "driver", "static"} and failed == {
        "racing",
        "static",
    }, done.stdout
    assert "-cudart shared" in (said["static"].findtext("system-out") or "")
    lines = FILES["sum.cu"].splitlines()
    (place,) = {
        (r["ruleId"], p["artifactLocation"]["uri"].rpartition("/")[2], p["region"]["startLine"])
        for r in json.loads(sarif.read_text())["runs"][0]["results"]
        for p in [r["locations"][0]["physicalLocation"]]
    }
    assert place[1] == "sum.cu" and "held[threadIdx.x + n]" in lines[place[2] - 1], place
    assert ET.parse(junit).getroot().get("failures") == "1"
