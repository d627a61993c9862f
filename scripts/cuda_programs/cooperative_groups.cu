// Cooperative groups: tiles, labels, grids, clusters and copies against what the host computes; every result is exact.
//
//     cooperative_groups group NAME
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda/barrier>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

namespace cg = cooperative_groups;
using Words = std::vector<int>;
constexpr int THREADS = 256;

static void check(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("%s\n", cudaGetErrorString(status));
    std::exit(1);
}

static int* device(const Words& values) {
    int* out;
    check(cudaMalloc(&out, values.size() * 4));
    check(cudaMemcpy(out, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    return out;
}

static Words drawn(size_t count) {
    Words out(count);
    for (int& x : out) x = rand() % 1000;
    return out;
}

static int compared(const char* what, const int* from, const Words& wanted) {
    Words got(wanted.size());
    check(cudaDeviceSynchronize());
    check(cudaMemcpy(got.data(), from, got.size() * 4, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < got.size(); i++)
        if (got[i] != wanted[i]) return std::printf("%s: %d at %zu, expected %d\n", what, got[i], i, wanted[i]), 1;
    return 0;
}

// A kernel of one block whose threads each have one number and give `RESULTS` of them; `wanted` says those of thread t.
using Kernel = void (*)(const int*, int*);
template <int RESULTS>
static int of_block(const char* what, Kernel kernel, const std::function<void(const Words&, int, int*)>& wanted) {
    Words in = drawn(THREADS), results(THREADS * RESULTS);
    int* out = device(results);
    kernel<<<1, THREADS>>>(device(in), out);
    for (int t = 0; t < THREADS; t++) wanted(in, t, &results[t * RESULTS]);
    return compared(what, out, results);
}

template <int SIZE>
__global__ void tile(const int* in, int* out) {
    const auto block = cg::this_thread_block();
    const auto part = cg::tiled_partition<SIZE>(block);
    const int x = in[block.thread_rank()];
    out += block.thread_rank() * 7;
    out[0] = cg::reduce(part, x, cg::plus<int>());
    out[1] = cg::reduce(part, x, cg::greater<int>());
    out[2] = int(cg::reduce(part, double(x), [](double a, double b) { return a < b ? a : b; }));
    out[3] = cg::inclusive_scan(part, x, cg::plus<int>());
    out[4] = cg::exclusive_scan(part, x, cg::plus<int>());
    out[5] = part.shfl_down(x, 1);
    out[6] = part.meta_group_rank();
}

template <int SIZE>
static int tiles(const char* what) {
    return of_block<7>(what, tile<SIZE>, [](const Words& in, int t, int* out) {
        const auto from = in.begin() + t / SIZE * SIZE;
        out[0] = std::accumulate(from, from + SIZE, 0);
        out[1] = *std::max_element(from, from + SIZE), out[2] = *std::min_element(from, from + SIZE);
        out[3] = std::accumulate(from, in.begin() + t + 1, 0), out[4] = out[3] - in[t];
        out[5] = in[t % SIZE == SIZE - 1 ? t : t + 1], out[6] = t / SIZE;
    });
}

__global__ void warps_together(const int* in, int* out) {  // a tile of four warps
    __shared__ cg::block_tile_memory<THREADS> room;
    const auto block = cg::this_thread_block(room);
    const auto part = cg::tiled_partition<128>(block);
    const int x = in[block.thread_rank()];
    out[block.thread_rank() * 2] = cg::reduce(part, x, cg::plus<int>());
    out[block.thread_rank() * 2 + 1] = cg::inclusive_scan(part, x, cg::plus<int>());
}

__global__ void labels(const int* in, int* out) {
    const auto part = cg::tiled_partition<32>(cg::this_thread_block());
    const int x = in[threadIdx.x];
    const auto same = cg::labeled_partition(part, x % 5);
    const auto nested = cg::labeled_partition(same, x % 2);
    out += threadIdx.x * 5;
    out[0] = cg::reduce(same, x, cg::plus<int>());
    out[1] = same.size() * 100 + same.thread_rank();
    out[2] = nested.shfl(x, 0);
    out[3] = cg::reduce(cg::binary_partition(part, x > 500), x, cg::bit_xor<int>());
    out[4] = -1;
    if (x % 3 == 0) {
        const auto here = cg::coalesced_threads();
        out[4] = cg::reduce(here, x, cg::plus<int>()) * 100 + here.thread_rank();
    }
}

static void labels_wanted(const Words& in, int t, int* out) {
    int first = -1;
    for (int i = t / 32 * 32; i < t / 32 * 32 + 32; i++) {
        const bool same = in[i] % 5 == in[t] % 5;
        if (same) out[0] += in[i], out[1] += 100 + (i < t);
        if (same && first < 0 && in[i] % 2 == in[t] % 2) first = in[i];
        if ((in[i] > 500) == (in[t] > 500)) out[3] ^= in[i];
        if (in[i] % 3 == 0) out[4] += in[i] * 100 + (i < t);
    }
    out[2] = first;
    if (in[t] % 3) out[4] = -1;
}

__global__ void once(const int* in, int* out) {
    __shared__ int calls;
    const auto block = cg::this_thread_block();
    cg::invoke_one(block, [&] { calls = 0; });
    block.sync();
    const auto part = cg::tiled_partition<8>(block);
    const int first = in[part.meta_group_rank() * 8];
    out[threadIdx.x * 2] = cg::invoke_one_broadcast(part, [&] { return atomicAdd(&calls, 1) * 0 + first; });
    block.sync();
    out[threadIdx.x * 2 + 1] = calls;
}

__global__ void grid(const int* in, int* parts, int* out, int count) {
    const auto all = cg::this_grid();
    int sum = 0;
    for (int i = all.thread_rank(); i < count; i += all.size()) sum += in[i];
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    sum = cg::reduce(warp, sum, cg::plus<int>());
    if (warp.thread_rank() == 0) atomicAdd(parts + blockIdx.x, sum);
    all.sync();
    if (all.thread_rank() == 0)
        for (int b = 0; b < gridDim.x; b++) *out += parts[b];
    for (int turn = 0; turn < 5; turn++) {  // blocks add to the sum one after the other
        all.sync();
        if (all.block_rank() == turn && threadIdx.x == 0) *out += turn;
    }
    auto token = all.barrier_arrive();
    all.barrier_wait(std::move(token));
    if (all.thread_rank() == all.size() - 1) out[1] = *out;
}

static int grid_sum(const char* what) {
    int count = 10000;
    const Words values = drawn(count);
    int *in = device(values), *parts = device(Words(24)), *out = device(Words(2));
    void* arguments[] = {&in, &parts, &out, &count};
    check(cudaLaunchCooperativeKernel((void*)grid, dim3(24), dim3(128), arguments, 0, 0));
    const int sum = std::accumulate(values.begin(), values.end(), 10);
    return compared(what, out, {sum, sum});
}

__global__ void __cluster_dims__(4, 1, 1) clusters(const int* in, int* out) {
    const auto cluster = cg::this_cluster();
    __shared__ int own[64], sum;
    own[threadIdx.x] = in[blockIdx.x * 64 + threadIdx.x];
    if (threadIdx.x == 0) sum = 0;
    cluster.sync();
    const int* next = cluster.map_shared_rank(own, (cluster.block_rank() + 1) % cluster.num_blocks());
    out[blockIdx.x * 64 + threadIdx.x] = next[63 - threadIdx.x] + 1000 * cluster.query_shared_rank(next);
    atomicAdd(cluster.map_shared_rank(&sum, 0), own[threadIdx.x]);
    auto token = cluster.barrier_arrive();
    cluster.barrier_wait(std::move(token));
    if (threadIdx.x == 0) out[gridDim.x * 64 + blockIdx.x] = *cluster.map_shared_rank(&sum, 0);
    cluster.sync();
}

static int of_clusters(const char* what) {
    const Words in = drawn(512);
    Words wanted(520);
    int* out = device(wanted);
    clusters<<<8, 64>>>(device(in), out);
    for (int b = 0; b < 8; b++) {
        const int first = b / 4 * 4, next = (b + 1) % 4;
        for (int t = 0; t < 64; t++) wanted[b * 64 + t] = in[(first + next) * 64 + 63 - t] + 1000 * next;
        wanted[512 + b] = std::accumulate(&in[first * 64], &in[first * 64] + 256, 0);
    }
    return compared(what, out, wanted);
}

constexpr int COPIED = 100;

__global__ void copies(const int* in, int* out) {  // one of words of 16 bytes, then one of a length of its own
    __shared__ alignas(16) int aligned[COPIED], rest[COPIED - 3];
    const auto block = cg::this_thread_block();
    cg::memcpy_async(block, aligned, in, cuda::aligned_size_t<16>(sizeof aligned));
    cg::memcpy_async(block, rest, in + 1, sizeof rest);
    cg::wait_prior<1>(block);
    out[threadIdx.x * 2] = aligned[threadIdx.x * 7 % COPIED];
    cg::wait(block);
    out[threadIdx.x * 2 + 1] = rest[threadIdx.x * 3 % (COPIED - 3)];
}

static const std::map<std::string, std::function<int(const char*)>> GROUPS = {
    {"tile_32", tiles<32>}, {"tile_16", tiles<16>}, {"tile_4", tiles<4>},
    {"tile_128", [](auto what) { return of_block<2>(what, warps_together, [](const Words& in, int t, int* out) {
         const auto from = in.begin() + t / 128 * 128;
         out[0] = std::accumulate(from, from + 128, 0), out[1] = std::accumulate(from, in.begin() + t + 1, 0);
     }); }},
    {"labels", [](auto what) { return of_block<5>(what, labels, labels_wanted); }},
    {"invoke_one", [](auto what) { return of_block<2>(what, once, [](const Words& in, int t, int* out) {
         out[0] = in[t / 8 * 8], out[1] = THREADS / 8;
     }); }},
    {"grid", grid_sum},
    {"cluster", of_clusters},
    {"memcpy_async", [](auto what) { return of_block<2>(what, copies, [](const Words& in, int t, int* out) {
         out[0] = in[t * 7 % COPIED], out[1] = in[1 + t * 3 % (COPIED - 3)];
     }); }},
};

int main(int, char** words) { return GROUPS.at(words[2])(words[2]); }
