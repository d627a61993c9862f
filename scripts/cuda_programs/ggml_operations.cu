// ggml's operations on tensors of float, by its functions for CUDA, against formulas in float64 by the bound of its own
// tests (errors' squares over values' squares at most 1e-7).
#include "argsort.cuh"
#include "cumsum.cuh"
#include "im2col.cuh"
#include "mean.cuh"
#include "norm.cuh"
#include "pool2d.cuh"
#include "rope.cuh"
#include "softmax.cuh"
#include "sumrows.cuh"
#include "unary.cuh"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

using Numbers = std::vector<float>;
using Operation = void (*)(ggml_backend_cuda_context&, ggml_tensor*);

static ggml_context* graph = ggml_init({1 << 20, nullptr, true});  // of tensors whose memory is the device's

static ggml_tensor* placed(ggml_tensor* tensor, const void* values) {
    CUDA_CHECK(cudaMalloc(&tensor->data, ggml_nbytes(tensor)));
    if (values) CUDA_CHECK(cudaMemcpy(tensor->data, values, ggml_nbytes(tensor), cudaMemcpyHostToDevice));
    return tensor;
}

struct Input {
    ggml_tensor* on;
    Numbers x;

    explicit Input(std::vector<int64_t> shape) {
        shape.resize(4, 1);
        on = ggml_new_tensor(graph, GGML_TYPE_F32, 4, shape.data());
        x.resize(ggml_nelements(on));
        for (float& v : x) v = rand() / float(RAND_MAX) * 2 - 1;
        placed(on, x.data());
    }
};

static ggml_tensor* numbers(const std::vector<int>& values) {
    return placed(ggml_new_tensor_1d(graph, GGML_TYPE_I32, values.size()), values.data());
}

static int done(const char* name, ggml_tensor* out, Operation operation, const std::vector<double>& wanted) {
    ggml_backend_cuda_context context(0);
    placed(out, nullptr);
    operation(context, out);
    CUDA_CHECK(cudaDeviceSynchronize());
    Numbers got(wanted.size());
    if (ggml_nbytes(out) != got.size() * sizeof(float)) return std::printf("%s: another shape\n", name);
    CUDA_CHECK(cudaMemcpy(got.data(), out->data, ggml_nbytes(out), cudaMemcpyDeviceToHost));
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); i++) {
        const double x = out->type == GGML_TYPE_I32 ? *reinterpret_cast<int*>(&got[i]) : got[i];
        error += (x - wanted[i]) * (x - wanted[i]), size += wanted[i] * wanted[i];
    }
    std::printf("%s: error %g, allowed 1e-07\n", name, error / size);
    return !(error / size <= 1e-7);
}

// What `row` makes of each row: it is given the values of one and their number.
static std::vector<double> by_rows(const Input& a, const std::function<void(double*, int64_t)>& row) {
    std::vector<double> out(a.x.begin(), a.x.end());
    for (int64_t r = 0, n = a.on->ne[0]; r < ggml_nrows(a.on); r++) row(&out[r * n], n);
    return out;
}

static double squares(const double* x, int64_t n) { return std::inner_product(x, x + n, x, 0.0); }

static int softmax(const char* name) {
    Input a({300, 7, 3}), mask({300, 7});
    auto wanted = by_rows(a, [&, r = 0](double* x, int64_t n) mutable {
        for (int64_t i = 0; i < n; i++) x[i] = std::exp(0.5 * x[i] + mask.x[r % 7 * n + i]);
        const double sum = std::accumulate(x, x + n, 0.0);
        for (int64_t i = 0; i < n; i++) x[i] /= sum;
        r++;
    });
    return done(name, ggml_soft_max_ext(graph, a.on, mask.on, 0.5f, 0), ggml_cuda_op_soft_max, wanted);
}

static int normed(const char* name) {
    Input a({200, 5});
    return done(name, ggml_norm(graph, a.on, 1e-5f), ggml_cuda_op_norm, by_rows(a, [](double* x, int64_t n) {
        const double mean = std::accumulate(x, x + n, 0.0) / n;
        for (int64_t i = 0; i < n; i++) x[i] -= mean;
        const double scale = 1 / std::sqrt(squares(x, n) / n + 1e-5);
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    }));
}

static int rms_normed(const char* name) {
    Input a({1500, 3});
    return done(name, ggml_rms_norm(graph, a.on, 1e-6f), ggml_cuda_op_rms_norm, by_rows(a, [](double* x, int64_t n) {
        const double scale = 1 / std::sqrt(squares(x, n) / n + 1e-6);
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    }));
}

static int l2_normed(const char* name) {
    Input a({100, 6});
    return done(name, ggml_l2_norm(graph, a.on, 1e-6f), ggml_cuda_op_l2_norm, by_rows(a, [](double* x, int64_t n) {
        const double scale = 1 / std::max(std::sqrt(squares(x, n)), 1e-6);
        for (int64_t i = 0; i < n; i++) x[i] *= scale;
    }));
}

static int turned(const char* name) {  // rotary embedding of pairs half a row apart
    Input a({64, 3, 5});
    auto wanted = by_rows(a, [r = 0](double* x, int64_t n) mutable {
        const int place = 7 * (r++ / 3);
        for (int64_t i = 0; i < n / 2; i++) {
            const double angle = place * std::pow(10000.0, -2.0 * i / n), y = x[i], z = x[i + n / 2];
            x[i] = y * std::cos(angle) - z * std::sin(angle), x[i + n / 2] = y * std::sin(angle) + z * std::cos(angle);
        }
    });
    ggml_tensor* places = numbers({0, 7, 14, 21, 28});
    ggml_tensor* out = ggml_rope_ext(graph, a.on, places, nullptr, 64, GGML_ROPE_TYPE_NEOX, 0, 10000, 1, 0, 1, 32, 1);
    return done(name, out, ggml_cuda_op_rope, wanted);
}

static int sorted(const char* name) {
    Input a({200, 4});
    auto wanted = by_rows(a, [](double* x, int64_t n) {
        std::vector<double> places(n), values(x, x + n);
        std::iota(places.begin(), places.end(), 0);
        std::sort(places.begin(), places.end(), [&](double i, double j) { return values[i] > values[j]; });
        std::copy(places.begin(), places.end(), x);
    });
    return done(name, ggml_argsort(graph, a.on, GGML_SORT_ORDER_DESC), ggml_cuda_op_argsort, wanted);
}

static int running(const char* name) {
    Input a({700, 3});
    auto wanted = by_rows(a, [](double* x, int64_t n) { std::partial_sum(x, x + n, x); });
    return done(name, ggml_cumsum(graph, a.on), ggml_cuda_op_cumsum, wanted);
}

static int summed(const char* name, bool mean) {
    Input a({333, 4});
    std::vector<double> wanted;
    by_rows(a, [&](double* x, int64_t n) { wanted.push_back(std::accumulate(x, x + n, 0.0) / (mean ? n : 1)); });
    return mean ? done(name, ggml_mean(graph, a.on), ggml_cuda_op_mean, wanted)
                : done(name, ggml_sum_rows(graph, a.on), ggml_cuda_op_sum_rows, wanted);
}

static int columns(const char* name) {  // of a convolution of 3 by 3, its steps 2 and 1, its borders 1
    Input kernel({3, 3, 2, 4}), image({9, 6, 2});
    ggml_tensor* out = ggml_im2col(graph, kernel.on, image.on, 2, 1, 1, 1, 1, 1, true, GGML_TYPE_F32);
    std::vector<double> wanted;
    for (int y = 0; y < 6; y++)
        for (int x = 0; x < 5; x++)
            for (int c = 0; c < 2; c++)
                for (int k = 0; k < 9; k++) {
                    const int row = y + k / 3 - 1, at = 2 * x + k % 3 - 1;
                    wanted.push_back(row < 0 || row > 5 || at < 0 || at > 8 ? 0 : image.x[(c * 6 + row) * 9 + at]);
                }
    return done(name, out, ggml_cuda_op_im2col, wanted);
}

static int pooled(const char* name) {
    Input a({8, 6, 3});
    std::vector<double> wanted;
    for (int c = 0; c < 3; c++)
        for (int y = 0; y < 3; y++)
            for (int x = 0; x < 4; x++) {
                const float* at = &a.x[(c * 6 + 2 * y) * 8 + 2 * x];
                wanted.push_back(std::max({at[0], at[1], at[8], at[9]}));
            }
    return done(name, ggml_pool_2d(graph, a.on, GGML_OP_POOL_MAX, 2, 2, 2, 2, 0, 0), ggml_cuda_op_pool2d, wanted);
}

using Make = ggml_tensor* (*)(ggml_context*, ggml_tensor*);

static int each(const char* name, Make make, Operation call, double (*f)(double)) {
    Input a({500, 3});
    auto wanted = by_rows(a, [=](double* x, int64_t n) { std::transform(x, x + n, x, f); });
    return done(name, make(graph, a.on), call, wanted);
}

static const std::map<std::string, std::function<int(const char*)>> OPERATIONS = {
    {"softmax", softmax}, {"norm", normed}, {"rms_norm", rms_normed}, {"l2_norm", l2_normed}, {"rope", turned},
    {"argsort", sorted}, {"cumsum", running}, {"im2col", columns}, {"pool_2d", pooled},
    {"sum_rows", [](auto n) { return summed(n, false); }},
    {"mean", [](auto n) { return summed(n, true); }},
    {"silu", [](auto n) {
         return each(n, ggml_silu, ggml_cuda_op_silu, [](double x) { return x / (1 + std::exp(-x)); });
     }},
    {"gelu_erf", [](auto n) {
         const auto gelu = [](double x) { return x * std::erfc(-x / std::sqrt(2.0)) / 2; };
         return each(n, ggml_gelu_erf, ggml_cuda_op_gelu_erf, gelu);
     }},
};

int operation(const char* name) { return OPERATIONS.at(name)(name); }
