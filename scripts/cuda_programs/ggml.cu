// ggml's CUDA kernels against its code for CPUs, by the bounds of its own tests (test-backend-ops: errors' squares over
// values' squares at most 1e-7, for products 5e-4).
//
//     ggml dequantize TYPE           every type but those that need an importance matrix
//     ggml mul_mat_q TYPE COLUMNS    q4_0, q8_0, q4_K and q6_K, rows of 512 values
//     ggml operation NAME            on tensors of float
#include "convert.cu"
#include "quantize.cu"
#include "mmq.cuh"

#include <cstring>
#include <vector>

static int processors = 0;  // of the GPU, as the host code sees it; 0: as it is

const ggml_cuda_device_info& ggml_cuda_info() {
    static ggml_cuda_device_info info = [] {
        ggml_cuda_device_info now = {};
        cudaDeviceProp p;
        CUDA_CHECK(cudaGetDeviceProperties(&p, 0));
        now.device_count = now.physical_device_count = 1;
        auto& d = now.devices[0];
        d.cc = 100 * p.major + 10 * p.minor, d.nsm = processors ? processors : p.multiProcessorCount;
        d.warp_size = p.warpSize;
        d.smpb = p.sharedMemPerBlock, d.smpbo = p.sharedMemPerBlockOptin, d.physical_share_count = 1;
        return now;
    }();
    return info;
}
void ggml_cuda_set_device(int) {}
int ggml_cuda_get_device() { return 0; }
void ggml_cuda_error(const char* what, const char*, const char* file, int line, const char* why) {
    GGML_ABORT("%s:%d: %s: %s", file, line, what, why);
}

struct Pool : ggml_cuda_pool {
    void* alloc(size_t size, size_t* actual) override {
        void* out;
        CUDA_CHECK(cudaMalloc(&out, *actual = size));
        return out;
    }
    void free(void* at, size_t) override { CUDA_CHECK(cudaFree(at)); }
};
std::unique_ptr<ggml_cuda_pool> ggml_backend_cuda_context::new_pool_for_device(int, int) {
    return std::make_unique<Pool>();
}
ggml_backend_cuda_context::~ggml_backend_cuda_context() {}

template <class T>
static T* device(const std::vector<T>& values) {
    void* out;
    CUDA_CHECK(cudaMalloc(&out, values.size() * sizeof(T)));
    CUDA_CHECK(cudaMemcpy(out, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice));
    return static_cast<T*>(out);
}

static std::vector<float> host(const float* from, size_t count) {
    std::vector<float> out(count);
    CUDA_CHECK(cudaMemcpy(out.data(), from, count * sizeof(float), cudaMemcpyDeviceToHost));
    return out;
}

static std::vector<float> drawn(size_t count) {
    std::vector<float> out(count);
    for (float& x : out) x = rand() / float(RAND_MAX) * 2 - 1;
    return out;
}

static std::vector<char> quantized(ggml_type type, const std::vector<float>& values, int64_t columns) {
    std::vector<char> out(ggml_row_size(type, values.size()));
    ggml_quantize_chunk(type, values.data(), out.data(), 0, values.size() / columns, columns, nullptr);
    return out;
}

static int compared(const char* name, const std::vector<float>& got, const std::vector<float>& wanted, double allowed) {
    double error = 0, size = 0;
    size_t same = 0;
    for (size_t i = 0; i < got.size(); i++) {
        error += double(got[i] - wanted[i]) * (got[i] - wanted[i]), size += double(wanted[i]) * wanted[i];
        same += got[i] == wanted[i];
    }
    std::printf("%s: error %g, allowed %g, %zu of %zu equal\n", name, error / size, allowed, same, got.size());
    return !(error / size <= allowed);
}

static int dequantize(ggml_type type) {
    const int64_t columns = 1024, rows = 3;
    auto words = quantized(type, drawn(columns * rows), columns);
    std::vector<float> wanted(columns * rows);
    ggml_get_type_traits(type)->to_float(words.data(), wanted.data(), columns * rows);
    float* out = device(std::vector<float>(columns * rows));
    ggml_get_to_fp32_cuda(type)(device(words), out, columns * rows, nullptr);
    return compared(ggml_type_name(type), host(out, columns * rows), wanted, 1e-7);
}

template <ggml_type type, int J, bool fallback>
static int product(int64_t rows, int64_t columns) {  // rows x inner of `type` times columns x inner of float
    const int64_t inner = 512;
    auto words = quantized(type, drawn(rows * inner), inner);
    auto right = drawn(columns * inner);
    std::vector<float> left(rows * inner), wanted(rows * columns);
    ggml_get_type_traits(type)->to_float(words.data(), left.data(), rows * inner);
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++) {
            double sum = 0;
            for (int64_t k = 0; k < inner; k++) sum += double(left[r * inner + k]) * right[c * inner + k];
            wanted[c * rows + r] = float(sum);
        }
    ggml_backend_cuda_context context(0);
    const size_t blocks = columns * inner / QK8_1_MMQ + 128;  // ggml's padding: tiles are read in whole steps of a block
    char* y = device(std::vector<char>(blocks * sizeof(block_q8_1_mmq)));
    quantize_mmq_q8_1_cuda(device(right), nullptr, y, type, inner, inner, columns * inner, columns * inner, inner,
                           columns, 1, 1, nullptr);
    float* out = device(std::vector<float>(rows * columns));
    const int64_t stride = inner / ggml_blck_size(type), channel = columns * inner * sizeof(block_q8_1) / (QK8_1 * 4);
    const mmq_args args = {device(words), type, (const int*)y, nullptr, nullptr, out, nullptr,
                           inner, rows, columns, stride, columns, rows,
                           1, 1, rows * stride, channel, rows * columns,
                           1, 1, rows * stride, channel, rows * columns, columns, columns};
    launch_mul_mat_q<type, J, fallback>(context, args, nullptr);
    CUDA_CHECK(cudaDeviceSynchronize());
    return compared(ggml_type_name(type), host(out, rows * columns), wanted, 5e-4);
}

// Whole tiles of 128 rows, each shared by many blocks; or rows that fill no tile, on so few processors that none is shared.
template <ggml_type type>
static int product_of(int64_t columns) {
    if (columns > 8) return product<type, 32, false>(256, columns);
    processors = 2;
    return product<type, 8, true>(192, columns);
}

int operation(const char* name);  // ggml_operations.cu

int main(int, char** words) {
    if (!std::strcmp(words[1], "operation")) return operation(words[2]);
    int number = 0;
    while (number < GGML_TYPE_COUNT && (!ggml_get_type_traits(ggml_type(number))->type_name ||
                                        std::strcmp(ggml_type_name(ggml_type(number)), words[2])))
        number++;
    if (!std::strcmp(words[1], "dequantize")) return dequantize(ggml_type(number));
    const int64_t columns = std::atoi(words[3]);
    switch (number) {
        case GGML_TYPE_Q4_0: return product_of<GGML_TYPE_Q4_0>(columns);
        case GGML_TYPE_Q8_0: return product_of<GGML_TYPE_Q8_0>(columns);
        case GGML_TYPE_Q4_K: return product_of<GGML_TYPE_Q4_K>(columns);
        case GGML_TYPE_Q6_K: return product_of<GGML_TYPE_Q6_K>(columns);
    }
    return 1;
}
