// FlashAttention-2's kernels against attention in float64, by the bound of FlashAttention's own tests: their largest error
// is at most twice (gradients: three times) that of the same formulas with every intermediate matrix rounded to ELEMENT.
//
//     flash_attention forward|backward CAUSAL QUERIES KEYS HEADS KEY_HEADS
#include <cmath>
#include <cstring>
#include <vector>

#include "namespace_config.h"
#include "flash_fwd_launch_template.h"
#include "flash_bwd_launch_template.h"

using Element = cutlass::ELEMENT;
using Numbers = std::vector<double>;
constexpr int BATCH = 2, DIM = 64;

static int up(int n, int to) { return (n + to - 1) / to * to; }
static double rounded(double x) { return double(float(Element(float(x)))); }

static double drawn() {  // about normal, of Element
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += rand() / double(RAND_MAX);
    return rounded(sum);
}

template <class T>
static T* device(size_t count) {
    void* out;
    C10_CUDA_CHECK(cudaMalloc(&out, count * sizeof(T)));
    return static_cast<T*>(out);
}

struct Values {  // BATCH x rows x heads x DIM
    int rows, heads;
    Numbers host;
    Element* on;

    Values(int rows, int heads, bool random) : rows(rows), heads(heads), host(size_t(BATCH) * rows * heads * DIM) {
        std::vector<Element> words(host.size());
        for (size_t i = 0; random && i < host.size(); i++) words[i] = Element(float(host[i] = drawn()));
        on = device<Element>(host.size());
        if (random) C10_CUDA_CHECK(cudaMemcpy(on, words.data(), words.size() * sizeof(Element), cudaMemcpyHostToDevice));
    }
    double* row(int batch, int row, int head) { return &host[((size_t(batch) * rows + row) * heads + head) * DIM]; }
};

struct Attention {  // the formulas, with what `round` makes of intermediate results
    Numbers out, dq, dk, dv;
};

template <class Round>
static Attention attention(Values& q, Values& k, Values& v, Values& gradient, bool causal, Round round) {
    Attention got{Numbers(q.host.size()), Numbers(q.host.size()), Numbers(k.host.size()), Numbers(k.host.size())};
    double scale = 1 / std::sqrt(double(DIM));
    int shift = k.rows - q.rows, group = q.heads / k.heads;  // the last query sees every key
    for (int b = 0; b < BATCH; b++)
        for (int h = 0; h < q.heads; h++)
            for (int i = 0; i < q.rows; i++) {
                int keys = causal ? std::max(0, std::min(k.rows, i + shift + 1)) : k.rows;
                size_t at = q.row(b, i, h) - q.host.data();
                Numbers p(keys), dp(keys);
                double most = -INFINITY, sum = 0, dot = 0;
                for (int j = 0; j < keys; j++) {
                    for (int d = 0; d < DIM; d++) p[j] += q.row(b, i, h)[d] * k.row(b, j, h / group)[d];
                    most = std::max(most, p[j] = round(round(p[j]) * scale));
                }
                for (double& x : p) sum += x = std::exp(x - most);
                for (double& x : p) x = round(x / sum);
                for (int j = 0; j < keys; j++)
                    for (int d = 0; d < DIM; d++) {
                        got.out[at + d] += p[j] * v.row(b, j, h / group)[d];
                        dp[j] += gradient.row(b, i, h)[d] * v.row(b, j, h / group)[d];
                    }
                for (int j = 0; j < keys; j++) dot += p[j] * (dp[j] = round(dp[j]));
                for (int j = 0; j < keys; j++) {
                    double ds = round(round(p[j] * (dp[j] - dot)) * scale);
                    size_t to = k.row(b, j, h / group) - k.host.data();
                    for (int d = 0; d < DIM; d++) {
                        got.dq[at + d] += ds * k.row(b, j, h / group)[d];
                        got.dk[to + d] += ds * q.row(b, i, h)[d];
                        got.dv[to + d] += p[j] * gradient.row(b, i, h)[d];
                    }
                }
            }
    for (Numbers* m : {&got.out, &got.dq, &got.dk, &got.dv})
        for (double& x : *m) x = round(x);
    return got;
}

static double worst(const Numbers& a, const Numbers& b) {
    double most = 0;
    for (size_t i = 0; i < a.size(); i++) most = std::fmax(most, std::isnan(a[i]) ? INFINITY : std::fabs(a[i] - b[i]));
    return most;
}

static Numbers fetched(const Element* from, size_t count) {
    std::vector<Element> words(count);
    C10_CUDA_CHECK(cudaMemcpy(words.data(), from, count * sizeof(Element), cudaMemcpyDeviceToHost));
    return Numbers(words.begin(), words.end());
}

static int failed(const char* name, const Numbers& got, const Numbers& exact, const Numbers& coarse, double times) {
    double error = worst(got, exact), allowed = times * worst(coarse, exact) + 1e-5;
    std::printf("%s: largest error %g, allowed %g\n", name, error, allowed);
    return !(error <= allowed);
}

template <bool CAUSAL>
static void run(flash::Flash_bwd_params& params, bool backward) {
    flash::run_mha_fwd_hdim64<Element, CAUSAL>(params, nullptr);
    if (backward) flash::run_mha_bwd_hdim64<Element, CAUSAL>(params, nullptr);
    C10_CUDA_CHECK(cudaDeviceSynchronize());
}

int main(int, char** words) {
    bool backward = !std::strcmp(words[1], "backward"), causal = std::atoi(words[2]);
    int queries = std::atoi(words[3]), keys = std::atoi(words[4]), heads = std::atoi(words[5]), few = std::atoi(words[6]);
    Values q(queries, heads, true), k(keys, few, true), v(keys, few, true), gradient(queries, heads, true);
    Values out(queries, heads, false), dq(queries, heads, false), dk(keys, heads, false), dv(keys, heads, false);
    flash::Flash_bwd_params params = {};
    params.b = BATCH, params.h = heads, params.h_k = few, params.h_h_k_ratio = heads / few;
    params.d = params.d_rounded = DIM;
    params.seqlen_q = queries, params.seqlen_k = keys;
    params.seqlen_q_rounded = up(queries, 128), params.seqlen_k_rounded = up(keys, 128);
    params.scale_softmax = 1 / std::sqrt(float(DIM)), params.scale_softmax_log2 = params.scale_softmax * float(M_LOG2E);
    params.p_dropout = params.rp_dropout = 1, params.p_dropout_in_uint8_t = 255;
    params.scale_softmax_rp_dropout = params.scale_softmax;
    params.is_causal = causal, params.window_size_left = -1, params.window_size_right = causal ? 0 : -1;
    if (causal) params.window_size_left = keys;
    params.is_bf16 = std::is_same_v<Element, cutlass::bfloat16_t>, params.is_seqlens_k_cumulative = true;
#define TENSOR(NAME, T)                                          \
    params.NAME##_ptr = T.on, params.NAME##_head_stride = DIM;   \
    params.NAME##_row_stride = T.heads * DIM, params.NAME##_batch_stride = int64_t(T.rows) * T.heads * DIM
    TENSOR(q, q), TENSOR(k, k), TENSOR(v, v), TENSOR(o, out);
    TENSOR(do, gradient), TENSOR(dq, dq), TENSOR(dk, dk), TENSOR(dv, dv);
    params.softmax_lse_ptr = device<float>(size_t(BATCH) * heads * queries);
    params.dsoftmax_sum = device<float>(size_t(BATCH) * heads * params.seqlen_q_rounded);
    params.dq_accum_ptr = device<float>(size_t(BATCH) * params.seqlen_q_rounded * heads * DIM);
    causal ? run<true>(params, backward) : run<false>(params, backward);

    Attention exact = attention(q, k, v, gradient, causal, [](double x) { return x; });
    Attention coarse = attention(q, k, v, gradient, causal, rounded);
    int bad = failed("out", fetched(out.on, out.host.size()), exact.out, coarse.out, 2);
    if (!backward) return bad;
    bad += failed("dq", fetched(dq.on, dq.host.size()), exact.dq, coarse.dq, 3);
    Numbers sums[2];  // of the query heads that share a key head, which the caller of the kernels adds up
    for (int n = 0; n < 2; n++) {
        Numbers all = fetched(n ? dv.on : dk.on, dk.host.size());
        sums[n].resize(k.host.size());
        for (size_t i = 0; i < all.size(); i++)
            sums[n][(i / DIM / heads * few + i / DIM % heads / (heads / few)) * DIM + i % DIM] += all[i];
    }
    bad += failed("dk", sums[0], exact.dk, coarse.dk, 3);
    return bad + failed("dv", sums[1], exact.dv, coarse.dv, 3);
}
