#pragma once
#include <cstdio>
#include <cstdlib>
#define C10_CUDA_CHECK(CALL)                                                  \
    do {                                                                      \
        cudaError_t error = CALL;                                             \
        if (error != cudaSuccess) {                                           \
            std::fprintf(stderr, "%s: %s\n", #CALL, cudaGetErrorString(error)); \
            std::exit(1);                                                     \
        }                                                                     \
    } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
