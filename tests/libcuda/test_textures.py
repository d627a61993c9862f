"""CUDA arrays, textures and surfaces through the driver and the runtime."""

from __future__ import annotations

from clients import compiled, python, run

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#define CHECK(x) do { cudaError_t e = (x); if (e) { printf("%s: %s\n", #x, cudaGetErrorName(e)); exit(1); } } while (0)
__global__ void plane(float *out, cudaTextureObject_t t, int w, int h) {
  int x = threadIdx.x, y = blockIdx.x;
  out[y * w + x] = tex2D<float>(t, (x + 1.5f) / w, (y + 0.5f) / h);
}
__global__ void lines(float4 *out, cudaTextureObject_t t, int n) {
  if (threadIdx.x < n) out[threadIdx.x] = tex1Dfetch<float4>(t, threadIdx.x);
}
__global__ void layers(float *out, cudaTextureObject_t t, int w, int h) {
  int x = threadIdx.x, y = threadIdx.y, z = blockIdx.x;
  out[(z * h + y) * w + x] = tex2DLayered<float>(t, x + 0.5f, y + 0.5f, z);
}
__global__ void write(cudaSurfaceObject_t s, int w) {
  surf2Dwrite(threadIdx.x + 100.0f * blockIdx.x, s, threadIdx.x * 4, blockIdx.x, cudaBoundaryModeTrap);
}
int main() {
  const int w = 8, h = 4, d = 3;
  float host[d * h * w], back[d * h * w], *out;
  for (int i = 0; i < d * h * w; i++) host[i] = i * i % 97;
  CHECK(cudaMalloc(&out, sizeof host));
  cudaChannelFormatDesc one = cudaCreateChannelDesc<float>(), seen;
  if (one.x != 32 || one.y || one.f != cudaChannelFormatKindFloat) return 2;
  cudaArray_t a;
  CHECK(cudaMallocArray(&a, &one, w, h, cudaArraySurfaceLoadStore));
  CHECK(cudaMemcpy2DToArray(a, 0, 0, host, w * 4, w * 4, h, cudaMemcpyHostToDevice));
  cudaExtent extent; unsigned flags;
  CHECK(cudaArrayGetInfo(&seen, &extent, &flags, a));
  if (seen.x != 32 || extent.width != w || extent.height != h || flags != cudaArraySurfaceLoadStore) return 3;
  cudaResourceDesc r = {}; r.resType = cudaResourceTypeArray; r.res.array.array = a;
  cudaTextureDesc how = {};
  how.addressMode[0] = how.addressMode[1] = cudaAddressModeWrap; how.filterMode = cudaFilterModeLinear;
  how.readMode = cudaReadModeElementType; how.normalizedCoords = 1;
  cudaTextureObject_t t; CHECK(cudaCreateTextureObject(&t, &r, &how, 0));
  plane<<<h, w>>>(out, t, w, h);
  CHECK(cudaMemcpy(back, out, w * h * 4, cudaMemcpyDeviceToHost));
  for (int i = 0; i < w * h; i++) if (back[i] != host[i / w * w + (i + 1) % w]) return 4;
  cudaSurfaceObject_t s; CHECK(cudaCreateSurfaceObject(&s, &r));
  write<<<h, w>>>(s, w);
  CHECK(cudaMemcpy2DFromArray(back, w * 4, a, 0, 0, w * 4, h, cudaMemcpyDeviceToHost));
  for (int i = 0; i < w * h; i++) if (back[i] != i % w + 100 * (i / w)) return 5;
  cudaArray_t cube;
  CHECK(cudaMalloc3DArray(&cube, &one, make_cudaExtent(w, h, d), cudaArrayLayered));
  cudaMemcpy3DParms p = {};
  p.srcPtr = make_cudaPitchedPtr(host, w * 4, w, h); p.dstArray = cube; p.extent = make_cudaExtent(w, h, d);
  p.kind = cudaMemcpyHostToDevice;
  CHECK(cudaMemcpy3D(&p));
  cudaResourceDesc rl = {}; rl.resType = cudaResourceTypeArray; rl.res.array.array = cube;
  cudaTextureDesc plain = {}; plain.readMode = cudaReadModeElementType;
  cudaTextureObject_t tl; CHECK(cudaCreateTextureObject(&tl, &rl, &plain, 0));
  layers<<<d, dim3(w, h)>>>(out, tl, w, h);
  CHECK(cudaMemcpy(back, out, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < d * h * w; i++) if (back[i] != host[i]) return 6;
  unsigned char bytes[64], *memory; for (int i = 0; i < 64; i++) bytes[i] = 4 * i;
  CHECK(cudaMalloc(&memory, 64)); CHECK(cudaMemcpy(memory, bytes, 64, cudaMemcpyHostToDevice));
  cudaResourceDesc rm = {}; rm.resType = cudaResourceTypeLinear; rm.res.linear.devPtr = memory;
  rm.res.linear.desc = cudaCreateChannelDesc<uchar4>(); rm.res.linear.sizeInBytes = 64;
  plain.readMode = cudaReadModeNormalizedFloat;
  cudaTextureObject_t tm; CHECK(cudaCreateTextureObject(&tm, &rm, &plain, 0));
  lines<<<1, 32>>>((float4 *)out, tm, 16);
  CHECK(cudaMemcpy(back, out, 256, cudaMemcpyDeviceToHost));
  for (int i = 0; i < 64; i++) if (back[i] != bytes[i] / 255.0f) return 7;
  how.sRGB = 1;
  if (cudaCreateTextureObject(&t, &r, &how, 0) != cudaErrorNotSupported) return 8;
  cudaGetLastError();
  CHECK(cudaDestroyTextureObject(tl)); CHECK(cudaDestroySurfaceObject(s)); CHECK(cudaFreeArray(cube));
  if (cudaDestroyTextureObject(tl) != cudaErrorInvalidValue || cudaFreeArray(cube) == cudaSuccess) return 9;
  cudaGetLastError();
  CHECK(cudaFree(memory));
  lines<<<1, 32>>>((float4 *)out, tm, 16);  // the memory of the texture is gone
  printf("then %s\n", cudaGetErrorName(cudaDeviceSynchronize()));
  return 0;
}
"""


def test_a_program_with_textures(tmp_path):
    done = run(compiled(tmp_path, SOURCE))
    assert done.returncode == 0, done
    assert "then cudaErrorLaunchFailure" in done.stdout
    assert "has been destroyed" in done.stderr
    assert "textures in sRGB aren't there" in done.stderr


def test_arrays_of_the_driver():
    python("""
ready()
desc = (u64 * 5)(8, 4, 3, 0x20 | 1 << 32, 0)  # 8 x 4 x 3, float, one channel
array, x = u64(), (u32 * 96)(*range(96))
ok(cu.cuArray3DCreate_v2(byref(array), desc))
whole = (u64 * 25)()
whole[4], whole[5], whole[9], whole[10] = 1, cast(x, c_void_p).value, 32, 4
whole[15], whole[18] = 3, array.value
whole[22:25] = [32, 4, 3]
ok(cu.cuMemcpy3D_v2(whole))
y = (u32 * 4)()
part = (u64 * 25)()
part[0], part[1], part[2], part[4], part[7] = 8, 2, 1, 3, array.value
part[15], part[16], part[20], part[21] = 1, cast(y, c_void_p).value, 8, 2
part[22:25] = [8, 2, 1]
ok(cu.cuMemcpy3D_v2(part))
assert list(y) == [32 + 16 + 2, 32 + 16 + 3, 32 + 24 + 2, 32 + 24 + 3]
part[1] = 3  # rows 3 and 4 of 4
assert cu.cuMemcpy3D_v2(part) == 1
line = (u32 * 10)()
ok(cu.cuMemcpyAtoH_v2(line, array, c_size_t(4), c_size_t(40)))  # goes on in the next row
assert list(line) == list(range(1, 11))
back = (u64 * 5)()
ok(cu.cuArray3DGetDescriptor_v2(back, array))
assert list(back) == list(desc)
free, before, total = c_size_t(), c_size_t(), c_size_t()
ok(cu.cuMemGetInfo_v2(byref(before), byref(total)))
ok(cu.cuArrayDestroy(array))
ok(cu.cuMemGetInfo_v2(byref(free), byref(total)))
assert free.value > before.value
assert cu.cuArrayDestroy(array) == 400
assert cu.cuMemcpy3D_v2(whole) == 400
for wrong in ((0, 4, 0, 0x20 | 1 << 32, 0), (8, 4, 0, 0x21 | 1 << 32, 0), (8, 4, 0, 0x20 | 3 << 32, 0),
              (8, 4, 5, 0x20 | 1 << 32, 4), (8, 0, 3, 0x20 | 1 << 32, 0), (1 << 20, 4, 0, 0x20 | 1 << 32, 0)):
    assert cu.cuArray3DCreate_v2(byref(array), (u64 * 5)(*wrong)) == 1, wrong
assert cu.cuArray3DCreate_v2(byref(array), (u64 * 5)(8, 4, 0, 0x20 | 1 << 32, 0x40)) == 801
""")


def test_texture_objects_of_the_driver():
    python("""
ready()
memory, t = allocate(1024), u64()
how = (u32 * 26)()
linear = (u64 * 18)(2, memory.value, 0x20 | 4 << 32, 1024)
ok(cu.cuTexObjectCreate(byref(t), linear, how, None))
seen = (u64 * 18)()
ok(cu.cuTexObjectGetResourceDesc(seen, t))
assert list(seen) == list(linear)
how[3] = 1
assert cu.cuTexObjectCreate(byref(t), linear, how, None) == 1  # linear memory is not filtered
how[3], linear[3] = 0, 2048
assert cu.cuTexObjectCreate(byref(t), linear, how, None) == 1  # more than the allocation
rows = (u64 * 18)(3, linear[1], 0x20 | 1 << 32, 16, 4, 64)
ok(cu.cuTexObjectCreate(byref(t), rows, how, None))
rows[5] = 65
assert cu.cuTexObjectCreate(byref(t), rows, how, None) == 1  # rows begin at multiples of 32 bytes
rows[5], how[0] = 64, 7
assert cu.cuTexObjectCreate(byref(t), rows, how, None) == 1
how[0] = 0
assert cu.cuTexObjectCreate(byref(t), rows, how, how) == 801
assert cu.cuSurfObjectCreate(byref(t), rows) == 1  # surfaces are of arrays
assert cu.cuTexObjectDestroy(u64(77)) == 1
""")
