// What FlashAttention's kernels use of PyTorch: the state of random numbers, which only dropout reads.
#pragma once
#include <cstdint>
namespace at {
struct PhiloxCudaState {
    uint64_t seed = 0, offset = 0;
};
}  // namespace at
