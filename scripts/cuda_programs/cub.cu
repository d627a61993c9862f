// CUB's primitives of warps, blocks and devices against what the host computes; every result is exact.
//
//     cub warp|block|device NAME
#include <cub/block/block_shuffle.cuh>
#include <cub/cub.cuh>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

using Words = std::vector<int>;

static void check(cudaError_t status) {
    if (status == cudaSuccess) return;
    std::printf("%s\n", cudaGetErrorString(status));
    std::exit(1);
}

static int* device(const Words& values) {
    int* out;
    check(cudaMalloc(&out, values.size() * 4 + 4));
    check(cudaMemcpy(out, values.data(), values.size() * 4, cudaMemcpyHostToDevice));
    return out;
}

static Words host(const int* from, size_t count) {
    Words out(count);
    check(cudaMemcpy(out.data(), from, count * 4, cudaMemcpyDeviceToHost));
    return out;
}

static Words drawn(size_t count, int below) {
    Words out(count);
    for (int& x : out) x = rand() % below;
    return out;
}

static int compared(const char* what, const Words& got, const Words& wanted) {
    for (size_t i = 0; i < wanted.size(); i++)
        if (i >= got.size() || got[i] != wanted[i]) {
            std::printf("%s: %d at %zu, expected %d\n", what, i < got.size() ? got[i] : -1, i, wanted[i]);
            return 1;
        }
    return 0;
}

// --- of warps and blocks: two blocks of 128 threads with four items each, which `Op` changes in place ----------------
constexpr int THREADS = 128, ITEMS = 4, BLOCKS = 2, TILE = THREADS * ITEMS;

template <class Op>
__global__ void apply(int* data) {
    __shared__ typename Op::Room room;
    int items[ITEMS], *at = data + blockIdx.x * TILE + threadIdx.x * ITEMS;
    for (int i = 0; i < ITEMS; i++) items[i] = at[i];
    Op{}(room, items);
    for (int i = 0; i < ITEMS; i++) at[i] = items[i];
}

struct WarpSum {
    using Of = cub::WarpReduce<int>;
    struct Room { Of::TempStorage warps[THREADS / 32]; };
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        for (int i = 0; i < ITEMS; i++) {
            const int sum = Of(room.warps[threadIdx.x / 32]).Sum(x[i]);
            if (threadIdx.x % 32 == 0) x[i] = sum;
            __syncwarp();
        }
    }
};
struct WarpScan {
    using Of = cub::WarpScan<int>;
    struct Room { Of::TempStorage warps[THREADS / 32]; };
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        for (int i = 0; i < ITEMS; i++) {
            Of(room.warps[threadIdx.x / 32]).InclusiveSum(x[i], x[i]);
            __syncwarp();
        }
    }
};
struct Less {
    __device__ bool operator()(int a, int b) const { return a < b; }
};
struct WarpSort {
    using Of = cub::WarpMergeSort<int, ITEMS>;
    struct Room { Of::TempStorage warps[THREADS / 32]; };
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room.warps[threadIdx.x / 32]).Sort(x, Less{}); }
};
struct WarpExchange {
    using Of = cub::WarpExchange<int, ITEMS>;
    struct Room { Of::TempStorage warps[THREADS / 32]; };
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        Of(room.warps[threadIdx.x / 32]).BlockedToStriped(x, x);
    }
};
template <cub::BlockReduceAlgorithm how>
struct BlockSum {
    using Of = cub::BlockReduce<int, THREADS, how>;
    using Room = typename Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        const int sum = Of(room).Sum(x);
        if (threadIdx.x == 0) x[0] = sum;
    }
};
template <cub::BlockScanAlgorithm how>
struct BlockScan {
    using Of = cub::BlockScan<int, THREADS, how>;
    using Room = typename Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room).ExclusiveSum(x, x); }
};
struct BlockRadixSort {
    using Of = cub::BlockRadixSort<int, THREADS, ITEMS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room).Sort(x); }
};
struct BlockMergeSort {
    using Of = cub::BlockMergeSort<int, THREADS, ITEMS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room).Sort(x, Less{}); }
};
struct BlockExchange {
    using Of = cub::BlockExchange<int, THREADS, ITEMS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room).BlockedToStriped(x, x); }
};
struct NotEqual {
    __device__ bool operator()(int a, int b) const { return a != b; }
};
struct BlockHeads {
    using Of = cub::BlockDiscontinuity<int, THREADS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        int heads[ITEMS];
        Of(room).FlagHeads(heads, x, NotEqual{});
        for (int i = 0; i < ITEMS; i++) x[i] = heads[i];
    }
};
struct BlockDifference {
    using Of = cub::BlockAdjacentDifference<int, THREADS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        Of(room).SubtractLeft(x, x, [](int right, int left) { return right - left; });
    }
};
struct BlockHistogram {
    using Of = cub::BlockHistogram<int, THREADS, ITEMS, THREADS, cub::BLOCK_HISTO_ATOMIC>;
    struct Room { Of::TempStorage own; int bins[THREADS]; };
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const {
        Of(room.own).Histogram(x, room.bins);
        __syncthreads();
        x[0] = room.bins[threadIdx.x];
    }
};
struct BlockRotate {
    using Of = cub::BlockShuffle<int, THREADS>;
    using Room = Of::TempStorage;
    __device__ void operator()(Room& room, int (&x)[ITEMS]) const { Of(room).Rotate(x[0], x[0], 5); }
};

using Change = std::function<void(int*)>;  // of what a warp or a block has, thread after thread

static Change striped(int threads) {
    return [=](int* x) {
        Words from(x, x + threads * ITEMS);
        for (int t = 0; t < threads; t++)
            for (int i = 0; i < ITEMS; i++) x[t * ITEMS + i] = from[i * threads + t];
    };
}

static Change sorted(int threads) {
    return [=](int* x) { std::sort(x, x + threads * ITEMS); };
}

template <class Op>
static int applied(const char* what, int threads, Change change) {
    Words values = drawn(BLOCKS * TILE, THREADS);
    int* data = device(values);
    apply<Op><<<BLOCKS, THREADS>>>(data);
    check(cudaDeviceSynchronize());
    for (int at = 0; at < BLOCKS * TILE; at += threads * ITEMS) change(values.data() + at);
    return compared(what, host(data, values.size()), values);
}

static void block_sum(int* x) { x[0] = std::accumulate(x, x + TILE, 0); }

static void block_scan(int* x) {
    int sum = 0;
    for (int i = 0; i < TILE; i++) sum += std::exchange(x[i], sum);
}

static const std::map<std::string, std::function<int(const char*)>> SMALL = {
    {"warp reduce", [](auto w) { return applied<WarpSum>(w, 32, [](int* x) {
         for (int i = 0; i < ITEMS; i++)
             for (int t = 1; t < 32; t++) x[i] += x[t * ITEMS + i];
     }); }},
    {"warp scan", [](auto w) { return applied<WarpScan>(w, 32, [](int* x) {
         for (int i = ITEMS; i < 32 * ITEMS; i++) x[i] += x[i - ITEMS];
     }); }},
    {"warp merge_sort", [](auto w) { return applied<WarpSort>(w, 32, sorted(32)); }},
    {"warp exchange", [](auto w) { return applied<WarpExchange>(w, 32, striped(32)); }},
    {"block reduce_warps", [](auto w) { return applied<BlockSum<cub::BLOCK_REDUCE_WARP_REDUCTIONS>>(w, THREADS, block_sum); }},
    {"block reduce_raking", [](auto w) { return applied<BlockSum<cub::BLOCK_REDUCE_RAKING>>(w, THREADS, block_sum); }},
    {"block scan_warps", [](auto w) { return applied<BlockScan<cub::BLOCK_SCAN_WARP_SCANS>>(w, THREADS, block_scan); }},
    {"block scan_raking", [](auto w) { return applied<BlockScan<cub::BLOCK_SCAN_RAKING>>(w, THREADS, block_scan); }},
    {"block radix_sort", [](auto w) { return applied<BlockRadixSort>(w, THREADS, sorted(THREADS)); }},
    {"block merge_sort", [](auto w) { return applied<BlockMergeSort>(w, THREADS, sorted(THREADS)); }},
    {"block exchange", [](auto w) { return applied<BlockExchange>(w, THREADS, striped(THREADS)); }},
    {"block discontinuity", [](auto w) { return applied<BlockHeads>(w, THREADS, [](int* x) {
         for (int i = TILE - 1; i > 0; i--) x[i] = x[i] != x[i - 1];
         x[0] = 1;
     }); }},
    {"block adjacent_difference", [](auto w) { return applied<BlockDifference>(w, THREADS, [](int* x) {
         for (int i = TILE - 1; i > 0; i--) x[i] -= x[i - 1];
     }); }},
    {"block histogram", [](auto w) { return applied<BlockHistogram>(w, THREADS, [](int* x) {
         Words bins(THREADS);
         for (int i = 0; i < TILE; i++) bins[x[i]]++;
         for (int t = 0; t < THREADS; t++) x[t * ITEMS] = bins[t];
     }); }},
    {"block shuffle", [](auto w) { return applied<BlockRotate>(w, THREADS, [](int* x) {
         Words from(x, x + TILE);
         for (int t = 0; t < THREADS; t++) x[t * ITEMS] = from[(t + 5) % THREADS * ITEMS];
     }); }},
};

// --- of devices: `call` is made twice, first to be told how much memory it needs ---------------------------------------
constexpr int COUNT = 5000;

template <class Call>
static void twice(Call call) {
    size_t bytes = 0;
    check(call(nullptr, bytes));
    void* room;
    check(cudaMalloc(&room, bytes + 1));
    check(call(room, bytes));
    check(cudaDeviceSynchronize());
}

struct Odd {
    __host__ __device__ bool operator()(int x) const { return x & 1; }
};

static int on_device(const std::string& name) {
    const char* what = name.c_str();
    Words values = drawn(COUNT, name == "run_length" || name == "unique" ? 3 : 1000), wanted, second(COUNT);
    int *in = device(values), *out = device(Words(COUNT)), *more = device(Words(COUNT)), *number = device({0});
    if (name == "reduce") {
        twice([&](void* t, size_t& n) { return cub::DeviceReduce::Sum(t, n, in, out, COUNT); });
        return compared(what, host(out, 1), {std::accumulate(values.begin(), values.end(), 0)});
    }
    if (name == "scan") {
        twice([&](void* t, size_t& n) { return cub::DeviceScan::InclusiveSum(t, n, in, out, COUNT); });
        std::partial_sum(values.begin(), values.end(), std::back_inserter(wanted));
        return compared(what, host(out, COUNT), wanted);
    }
    if (name == "radix_sort" || name == "merge_sort") {
        std::iota(second.begin(), second.end(), 0);
        int* places = device(second);
        if (name == "radix_sort")
            twice([&](void* t, size_t& n) { return cub::DeviceRadixSort::SortPairs(t, n, in, out, places, more, COUNT); });
        else
            twice([&](void* t, size_t& n) {
                return cub::DeviceMergeSort::StableSortPairs(t, n, in, places, COUNT, Less{});
            });
        std::stable_sort(second.begin(), second.end(), [&](int a, int b) { return values[a] < values[b]; });
        return compared(what, host(name == "radix_sort" ? more : places, COUNT), second);
    }
    if (name == "select") {
        twice([&](void* t, size_t& n) { return cub::DeviceSelect::If(t, n, in, out, number, COUNT, Odd{}); });
        std::copy_if(values.begin(), values.end(), std::back_inserter(wanted), Odd{});
        return compared(what, host(number, 1), {int(wanted.size())}) || compared(what, host(out, wanted.size()), wanted);
    }
    if (name == "partition") {
        twice([&](void* t, size_t& n) { return cub::DevicePartition::If(t, n, in, out, number, COUNT, Odd{}); });
        std::copy_if(values.begin(), values.end(), std::back_inserter(wanted), Odd{});
        const int odd = int(wanted.size());
        for (int i = COUNT - 1; i >= 0; i--)  // the others come from the end
            if (!(values[i] & 1)) wanted.push_back(values[i]);
        return compared(what, host(number, 1), {odd}) || compared(what, host(out, COUNT), wanted);
    }
    if (name == "unique") {
        twice([&](void* t, size_t& n) { return cub::DeviceSelect::Unique(t, n, in, out, number, COUNT); });
        std::unique_copy(values.begin(), values.end(), std::back_inserter(wanted));
        return compared(what, host(number, 1), {int(wanted.size())}) || compared(what, host(out, wanted.size()), wanted);
    }
    if (name == "run_length") {
        twice([&](void* t, size_t& n) { return cub::DeviceRunLengthEncode::Encode(t, n, in, out, more, number, COUNT); });
        Words lengths;
        for (int i = 0; i < COUNT; i++)
            if (i && values[i] == values[i - 1]) lengths.back()++;
            else wanted.push_back(values[i]), lengths.push_back(1);
        return compared(what, host(number, 1), {int(wanted.size())}) || compared(what, host(out, wanted.size()), wanted) ||
               compared(what, host(more, wanted.size()), lengths);
    }
    if (name == "histogram") {
        twice([&](void* t, size_t& n) { return cub::DeviceHistogram::HistogramEven(t, n, in, out, 101, 0, 1000, COUNT); });
        wanted.resize(100);
        for (int x : values) wanted[x / 10]++;
        return compared(what, host(out, 100), wanted);
    }
    if (name == "segmented_reduce") {
        const Words ends = {0, 10, 10, 777, 2500, COUNT};
        int* at = device(ends);
        twice([&](void* t, size_t& n) { return cub::DeviceSegmentedReduce::Sum(t, n, in, out, 5, at, at + 1); });
        for (int s = 0; s < 5; s++)
            wanted.push_back(std::accumulate(values.begin() + ends[s], values.begin() + ends[s + 1], 0));
        return compared(what, host(out, 5), wanted);
    }
    if (name == "segmented_sort" || name == "segmented_radix_sort") {
        const Words ends = {0, 10, 10, 777, 2500, COUNT};
        int* at = device(ends);
        if (name == "segmented_sort")
            twice([&](void* t, size_t& n) { return cub::DeviceSegmentedSort::SortKeys(t, n, in, out, COUNT, 5, at, at + 1); });
        else
            twice([&](void* t, size_t& n) {
                return cub::DeviceSegmentedRadixSort::SortKeys(t, n, in, out, COUNT, 5, at, at + 1);
            });
        for (int s = 0; s < 5; s++) std::sort(values.begin() + ends[s], values.begin() + ends[s + 1]);
        return compared(what, host(out, COUNT), values);
    }
    if (name == "adjacent_difference") {
        twice([&](void* t, size_t& n) {
            return cub::DeviceAdjacentDifference::SubtractLeftCopy(t, n, in, out, COUNT, cuda::std::minus<>{});
        });
        std::adjacent_difference(values.begin(), values.end(), std::back_inserter(wanted));
        return compared(what, host(out, COUNT), wanted);
    }
    if (name == "top_k") {
        auto unsorted = cuda::std::execution::env{cuda::execution::require(
            cuda::execution::determinism::not_guaranteed, cuda::execution::output_ordering::unsorted)};
        twice([&](void* t, size_t& n) { return cub::DeviceTopK::MaxKeys(t, n, in, out, COUNT, 100, unsorted); });
        std::sort(values.begin(), values.end(), std::greater<>{});
        wanted = host(out, 100);
        std::sort(wanted.begin(), wanted.end(), std::greater<>{});
        return compared(what, wanted, Words(values.begin(), values.begin() + 100));
    }
    if (name == "merge") {
        std::sort(values.begin(), values.begin() + 2000);
        std::sort(values.begin() + 2000, values.end());
        in = device(values);
        twice([&](void* t, size_t& n) { return cub::DeviceMerge::MergeKeys(t, n, in, 2000, in + 2000, COUNT - 2000, out); });
        std::sort(values.begin(), values.end());
        return compared(what, host(out, COUNT), values);
    }
    if (name == "transform") {
        check(cub::DeviceTransform::Transform(cuda::std::make_tuple(in, in), out, COUNT,
                                              [] __device__(int a, int b) { return a * b + 1; }));
        for (int x : values) wanted.push_back(x * x + 1);
        return compared(what, host(out, COUNT), wanted);
    }
    if (name == "reduce_by_key") {
        Words keys(COUNT), runs, sums;
        for (int i = 0; i < COUNT; i++) keys[i] = i * i / 100000;
        int *k = device(keys), *sum = device(Words(COUNT));
        twice([&](void* t, size_t& n) {
            return cub::DeviceReduce::ReduceByKey(t, n, k, out, in, sum, number, cuda::std::plus<>{}, COUNT);
        });
        for (int i = 0; i < COUNT; i++)
            if (i && keys[i] == keys[i - 1]) sums.back() += values[i];
            else runs.push_back(keys[i]), sums.push_back(values[i]);
        return compared(what, host(number, 1), {int(runs.size())}) || compared(what, host(sum, runs.size()), sums);
    }
    std::printf("%s: no such primitive\n", what);
    return 1;
}

int main(int, char** words) {
    const std::string of = words[1], name = words[2];
    return of == "device" ? on_device(name) : SMALL.at(of + " " + name)(words[2]);
}
