"""Executables of nvcc, with the shared runtime."""

from __future__ import annotations

from clients import compiled, run

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
#define CHECK(x) do { cudaError_t e = (x); if (e) { printf("%s: %s\n", #x, cudaGetErrorName(e)); exit(1); } } while (0)
__device__ int total;
__constant__ float factor;
__managed__ int managed[4];
__global__ void scale(float *x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= factor;
  if (i == 0) printf("hello from %d threads\n", blockDim.x);
}
__global__ void count(const int *x) {
  atomicAdd(&total, x[threadIdx.x]);
  if (threadIdx.x < 4) managed[threadIdx.x] = threadIdx.x + 1;
}
__global__ void together(int *x) {
  cg::grid_group g = cg::this_grid();
  x[blockIdx.x] = blockIdx.x;
  g.sync();
  if (threadIdx.x == 0) x[gridDim.x + blockIdx.x] = x[(blockIdx.x + 1) % gridDim.x];
}
__global__ void bad(int *x) { x[1 << 20] = 1; }
template <class T> __global__ void fill(T *x, T v) {
  extern __shared__ char buffer[];
  buffer[threadIdx.x] = 1;
  x[threadIdx.x] = v;
}
int main(int argc, char **argv) {
  const int n = 1000;
  float *x, f = 3;
  CHECK(cudaMallocManaged(&x, n * sizeof(float)));
  for (int i = 0; i < n; i++) x[i] = i;
  CHECK(cudaMemcpyToSymbol(factor, &f, sizeof f));
  printf("before\n");
  scale<<<4, 256>>>(x, n);
  CHECK(cudaDeviceSynchronize());
  printf("after\n");
  for (int i = 0; i < n; i++) if (x[i] != 3.0f * i) return 2;
  int h[32], *d, sum = 0;
  for (int i = 0; i < 32; i++) h[i] = i;
  cudaStream_t s; CHECK(cudaStreamCreate(&s));
  CHECK(cudaMallocAsync(&d, sizeof h, s));
  CHECK(cudaMemcpyAsync(d, h, sizeof h, cudaMemcpyHostToDevice, s));
  count<<<1, 32, 0, s>>>(d);
  CHECK(cudaMemcpyFromSymbolAsync(&sum, total, sizeof sum, 0, cudaMemcpyDeviceToHost, s));
  CHECK(cudaStreamSynchronize(s));
  if (sum != 496 || managed[3] != 4) return 3;
  int *y, z[16]; CHECK(cudaMalloc(&y, sizeof z));
  int blocks = 8; void *args[] = {&y};
  CHECK(cudaLaunchCooperativeKernel((void*)together, dim3(blocks), dim3(32), args, 0, 0));
  CHECK(cudaMemcpy(z, y, sizeof z, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 8; i++) if (z[8 + i] != (i + 1) % 8) return 4;
  cudaFuncAttributes a; CHECK(cudaFuncGetAttributes(&a, fill<double>));
  if (a.maxThreadsPerBlock != 1024 || a.ptxVersion != 80 || a.binaryVersion != 90) return 5;
  fill<<<1, 32, 100 << 10>>>(x, 1.0f);
  if (cudaGetLastError() != cudaErrorInvalidValue) return 6;
  CHECK(cudaFuncSetAttribute(fill<float>, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10));
  fill<<<1, 32, 100 << 10>>>(x, 1.0f);
  CHECK(cudaGetLastError());
  fill<<<1, 2048>>>(x, 1.0f);
  if (cudaGetLastError() != cudaErrorInvalidConfiguration) return 7;
  cudaGraph_t g; cudaGraphExec_t exec; cudaEvent_t first, last; float ms;
  CHECK(cudaEventCreate(&first)); CHECK(cudaEventCreate(&last));
  CHECK(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal));
  count<<<1, 32, 0, s>>>(d);
  CHECK(cudaStreamEndCapture(s, &g)); CHECK(cudaGraphInstantiate(&exec, g, 0));
  CHECK(cudaEventRecord(first, s));
  for (int i = 0; i < 3; i++) CHECK(cudaGraphLaunch(exec, s));
  CHECK(cudaEventRecord(last, s)); CHECK(cudaEventSynchronize(last)); CHECK(cudaEventElapsedTime(&ms, first, last));
  CHECK(cudaMemcpyFromSymbol(&sum, total, sizeof sum));
  if (sum != 4 * 496 || !(ms > 0)) return 8;
  if (argc > 1) {
    bad<<<1, 1>>>(y);
    cudaError_t code = cudaDeviceSynchronize();
    printf("%s, then %s\n", cudaGetErrorName(code), cudaGetErrorName(cudaMalloc(&y, 4)));
    CHECK(cudaDeviceReset());
    CHECK(cudaMalloc(&y, 4));
  }
  printf("done\n");
  return 0;
}
"""


HELLO = r"""
#include <cstdio>
__global__ void hello() { if (!threadIdx.x) printf("hello from block %d\n", blockIdx.x); }
int main() { hello<<<2, 32>>>(); printf("%s\n", cudaGetErrorName(cudaDeviceSynchronize())); return cudaGetLastError(); }
"""


def test_a_program_may_begin_with_a_launch(tmp_path):
    done = run(compiled(tmp_path, HELLO))
    *blocks, code = done.stdout.splitlines()  # blocks that are on two threads print in any order
    assert (sorted(blocks), code) == ([f"hello from block {i}" for i in (0, 1)], "cudaSuccess"), done.stderr
    assert not done.returncode


def place(source, what):
    """Where a message says that a line of a program is."""
    return f"program.cu:{source[: source.index(what)].count(chr(10)) + 1}"


def test_an_executable_runs_unmodified(tmp_path):
    program = compiled(tmp_path, SOURCE)
    done = run(program)
    assert done.returncode == 0, done.stdout + done.stderr
    refused = done.stderr.splitlines()
    assert len(refused) == 2 and "49152 are allowed" in refused[0] and "2048 threads" in refused[1]
    assert done.stdout == "before\nhello from 256 threads\nafter\ndone\n"
    done = run(program, "fault")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "cudaErrorIllegalAddress, then cudaErrorIllegalAddress\ndone\n" in done.stdout
    assert place(SOURCE, "void bad") in done.stderr and "writes outside all memory" in done.stderr


def test_a_static_runtime_is_refused_with_what_to_do(tmp_path):
    program = compiled(tmp_path, "int main() { return cudaFree(0) != 0; }", "-cudart", "static")
    done = run(program)
    assert done.returncode == 1
    assert "-cudart shared" in done.stderr


RACE = r"""
__shared__ int s[64];
__global__ void race(int *x) { s[threadIdx.x] = threadIdx.x; x[threadIdx.x] = s[63 - threadIdx.x]; }
int main() { int *x; cudaMalloc(&x, 256); race<<<1, 64>>>(x); return cudaDeviceSynchronize() == cudaSuccess ? 0 : 9; }
"""


def test_checked_mode_names_the_source_line_of_a_race(tmp_path):
    program = compiled(tmp_path, RACE)
    assert run(program).returncode == 0
    done = run(program, NBTC_CHECKED="1")
    assert done.returncode == 9
    assert place(RACE, "void race") in done.stderr and "race" in done.stderr


def test_executables_whose_kernels_launch_kernels(tmp_path):
    source = """
#include <cstdio>
__global__ void child(int *sums, int depth, int *done) {
  atomicAdd(&sums[depth], blockIdx.x + 1);
  if (threadIdx.x == 0 && blockIdx.x == 0 && depth < 3) child<<<depth + 2, 2>>>(sums, depth + 1, done);
  if (depth == 3 && threadIdx.x == 0) atomicAdd(done, 1);
}
__global__ void after(int *sums, int *done) { sums[4] = *done; }
__global__ void parent(int *sums, int *done) {
  after<<<1, 1, 0, cudaStreamTailLaunch>>>(sums, done);
  cudaStream_t s;
  if (cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking)) return;
  child<<<1, 2, 0, s>>>(sums, 0, done);
  cudaStreamDestroy(s);
}
int main() {
  int *sums, want[] = {2, 6, 12, 20, 4};
  if (cudaMallocManaged(&sums, 6 * sizeof(int))) return 1;
  for (int i = 0; i < 6; i++) sums[i] = 0;
  parent<<<1, 1>>>(sums, sums + 5);
  if (cudaDeviceSynchronize()) return 2;
  for (int i = 0; i < 5; i++) if (sums[i] != want[i]) return 3 + i;
  return 0;
}
"""
    program = compiled(tmp_path, source, "-rdc=true")
    for changes in ({}, {"NBTC_CHECKED": "1"}):
        done = run(program, **changes)
        assert not done.returncode, done.stderr


ERRORS = r"""
#include <cstdio>
int main() {
  cudaExternalMemory_t imported;
  cudaExternalMemoryHandleDesc about{};
  if (cudaFree(nullptr)) return 1;
  cudaImportExternalMemory(&imported, &about);
  printf("%s ", cudaGetErrorName(cudaGetLastError()));
  cudaDeviceDisablePeerAccess(0);
  printf("%s ", cudaGetErrorName(cudaGetLastError()));
  printf("%s", cudaGetErrorName(cudaGetLastError()));
}
"""


def test_a_function_that_is_not_there_is_the_last_error_too(tmp_path):
    done = run(compiled(tmp_path, ERRORS))
    assert done.stdout == "cudaErrorNotSupported cudaErrorPeerAccessNotEnabled cudaSuccess"
    assert "cudaImportExternalMemory isn't there" in done.stderr
