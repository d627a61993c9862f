// Thrust's algorithms on a device against the standard library's; every result is exact.
//
//     thrust device NAME
#include <thrust/adjacent_difference.h>
#include <thrust/binary_search.h>
#include <thrust/copy.h>
#include <thrust/count.h>
#include <thrust/device_vector.h>
#include <thrust/extrema.h>
#include <thrust/functional.h>
#include <thrust/gather.h>
#include <thrust/inner_product.h>
#include <thrust/merge.h>
#include <thrust/partition.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/scatter.h>
#include <thrust/sequence.h>
#include <thrust/set_operations.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <thrust/unique.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using Words = std::vector<int>;
using Device = thrust::device_vector<int>;
constexpr int COUNT = 5000;

struct Odd {
    __host__ __device__ bool operator()(int x) const { return x & 1; }
};
struct Order {  // by the last two digits, downwards
    __host__ __device__ bool operator()(int a, int b) const {
        return a % 100 != b % 100 ? a % 100 > b % 100 : a < b;
    }
};
struct Square {
    __host__ __device__ int operator()(int x) const { return x * x; }
};

static Words drawn(int below) {
    Words out(COUNT);
    for (int& x : out) x = rand() % below;
    return out;
}

static bool same(const Device& got, const Words& wanted) {
    if (got.size() != wanted.size()) return false;
    Words back(got.size());
    thrust::copy(got.begin(), got.end(), back.begin());
    return back == wanted;
}

static const std::map<std::string, bool (*)()> ALGORITHMS = {
    {"sort", [] {
         Words x = drawn(100000);
         Device d = x;
         thrust::sort(d.begin(), d.end());
         std::sort(x.begin(), x.end());
         return same(d, x);
     }},
    {"sort_with", [] {  // an order of one's own is a merge sort
         Words x = drawn(100000);
         Device d = x;
         thrust::sort(d.begin(), d.end(), Order{});
         std::sort(x.begin(), x.end(), Order{});
         return same(d, x);
     }},
    {"sort_by_key", [] {
         Words x = drawn(50), places(COUNT);
         Device d = x, at(COUNT);
         thrust::sequence(at.begin(), at.end());
         thrust::stable_sort_by_key(d.begin(), d.end(), at.begin());
         std::iota(places.begin(), places.end(), 0);
         std::stable_sort(places.begin(), places.end(), [&](int a, int b) { return x[a] < x[b]; });
         return same(at, places);
     }},
    {"reduce", [] {
         Words x = drawn(1000);
         Device d = x;
         return thrust::reduce(d.begin(), d.end()) == std::accumulate(x.begin(), x.end(), 0) &&
                thrust::count_if(d.begin(), d.end(), Odd{}) == std::count_if(x.begin(), x.end(), Odd{}) &&
                thrust::inner_product(d.begin(), d.end(), d.begin(), 0) ==
                    std::inner_product(x.begin(), x.end(), x.begin(), 0);
     }},
    {"transform_reduce", [] {
         Words x = drawn(300);
         Device d = x;
         int wanted = 0;
         for (int y : x) wanted = std::max(wanted, y * y);
         return thrust::transform_reduce(d.begin(), d.end(), Square{}, 0, thrust::maximum<int>()) == wanted;
     }},
    {"extrema", [] {
         Words x = drawn(100000);
         Device d = x;
         const auto ends = thrust::minmax_element(d.begin(), d.end());
         const auto wanted = std::minmax_element(x.begin(), x.end());
         return ends.first - d.begin() == wanted.first - x.begin() && *ends.second == *wanted.second;
     }},
    {"scan", [] {
         Words x = drawn(100), in, ex(COUNT);
         Device d = x, a(COUNT), b(COUNT);
         thrust::inclusive_scan(d.begin(), d.end(), a.begin());
         thrust::exclusive_scan(d.begin(), d.end(), b.begin(), 7);
         std::partial_sum(x.begin(), x.end(), std::back_inserter(in));
         std::exclusive_scan(x.begin(), x.end(), ex.begin(), 7);
         return same(a, in) && same(b, ex);
     }},
    {"scan_by_key", [] {
         Words keys = drawn(3), x = drawn(100), wanted(COUNT);
         std::sort(keys.begin(), keys.end());
         Device k = keys, d = x, out(COUNT);
         thrust::inclusive_scan_by_key(k.begin(), k.end(), d.begin(), out.begin());
         for (int i = 0; i < COUNT; i++) wanted[i] = x[i] + (i && keys[i] == keys[i - 1] ? wanted[i - 1] : 0);
         return same(out, wanted);
     }},
    {"reduce_by_key", [] {
         Words keys = drawn(40), x = drawn(100), sums(40);
         std::sort(keys.begin(), keys.end());
         Device k = keys, d = x, ends(COUNT), out(COUNT);
         const auto last = thrust::reduce_by_key(k.begin(), k.end(), d.begin(), ends.begin(), out.begin());
         out.resize(last.second - out.begin());
         for (int i = 0; i < COUNT; i++) sums[keys[i]] += x[i];
         return same(out, sums);
     }},
    {"copy_if", [] {
         Words x = drawn(1000), wanted;
         Device d = x, out(COUNT);
         out.resize(thrust::copy_if(d.begin(), d.end(), out.begin(), Odd{}) - out.begin());
         std::copy_if(x.begin(), x.end(), std::back_inserter(wanted), Odd{});
         return same(out, wanted);
     }},
    {"remove_if", [] {
         Words x = drawn(1000);
         Device d = x;
         d.erase(thrust::remove_if(d.begin(), d.end(), Odd{}), d.end());
         x.erase(std::remove_if(x.begin(), x.end(), Odd{}), x.end());
         return same(d, x);
     }},
    {"stable_partition", [] {
         Words x = drawn(1000);
         Device d = x;
         thrust::stable_partition(d.begin(), d.end(), Odd{});
         std::stable_partition(x.begin(), x.end(), Odd{});
         return same(d, x);
     }},
    {"unique", [] {
         Words x = drawn(3);
         Device d = x;
         d.erase(thrust::unique(d.begin(), d.end()), d.end());
         x.erase(std::unique(x.begin(), x.end()), x.end());
         return same(d, x);
     }},
    {"merge", [] {
         Words x = drawn(1000), y = drawn(1000), wanted;
         std::sort(x.begin(), x.end()), std::sort(y.begin(), y.end());
         Device a = x, b = y, out(2 * COUNT);
         thrust::merge(a.begin(), a.end(), b.begin(), b.end(), out.begin());
         std::merge(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(wanted));
         return same(out, wanted);
     }},
    {"set_operations", [] {
         Words x = drawn(9000), y = drawn(9000), either, both;
         std::sort(x.begin(), x.end()), std::sort(y.begin(), y.end());
         Device a = x, b = y, c(2 * COUNT), d(COUNT);
         c.resize(thrust::set_union(a.begin(), a.end(), b.begin(), b.end(), c.begin()) - c.begin());
         d.resize(thrust::set_intersection(a.begin(), a.end(), b.begin(), b.end(), d.begin()) - d.begin());
         std::set_union(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(either));
         std::set_intersection(x.begin(), x.end(), y.begin(), y.end(), std::back_inserter(both));
         return same(c, either) && same(d, both);
     }},
    {"lower_bound", [] {
         Words x = drawn(1000), y = drawn(1000), wanted;
         std::sort(x.begin(), x.end());
         Device a = x, b = y, out(COUNT);
         thrust::lower_bound(a.begin(), a.end(), b.begin(), b.end(), out.begin());
         for (int z : y) wanted.push_back(std::lower_bound(x.begin(), x.end(), z) - x.begin());
         return same(out, wanted);
     }},
    {"gather_scatter", [] {
         Words places(COUNT), x = drawn(1000), there(COUNT), back(COUNT);
         std::iota(places.begin(), places.end(), 0);
         std::reverse(places.begin() + 100, places.end());
         Device map = places, d = x, a(COUNT), b(COUNT);
         thrust::gather(map.begin(), map.end(), d.begin(), a.begin());
         thrust::scatter(d.begin(), d.end(), map.begin(), b.begin());
         for (int i = 0; i < COUNT; i++) there[i] = x[places[i]], back[places[i]] = x[i];
         return same(a, there) && same(b, back);
     }},
    {"adjacent_difference", [] {
         Words x = drawn(1000), wanted;
         Device d = x, out(COUNT);
         thrust::adjacent_difference(d.begin(), d.end(), out.begin());
         std::adjacent_difference(x.begin(), x.end(), std::back_inserter(wanted));
         return same(out, wanted);
     }},
};

int main(int, char** words) {
    const bool right = ALGORITHMS.at(words[2])();
    if (!right) std::printf("%s: not what the standard library computes\n", words[2]);
    return !right;
}
