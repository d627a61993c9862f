/* What calls, launches and copies of nbtc's CUDA driver cost, measured from C: see driver_speed.py. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef uint64_t u64;
int cuInit(unsigned), cuDriverGetVersion(int *), cuCtxGetCurrent(void **), cuCtxSetCurrent(void *);
int cuDevicePrimaryCtxRetain(void **, int), cuStreamSynchronize(void *), cuStreamQuery(void *), cuCtxSynchronize(void);
int cuModuleLoadData(void **, const void *), cuModuleGetFunction(void **, void *, const char *);
int cuMemAlloc_v2(u64 *, size_t), cuMemFree_v2(u64), cuMemAllocHost_v2(void **, size_t);
int cuMemcpyHtoD_v2(u64, const void *, size_t), cuMemcpyDtoH_v2(void *, u64, size_t), cuMemsetD8_v2(u64, int, size_t);
int cuMemcpyDtoD_v2(u64, u64, size_t);
int cuStreamCreate(void **, unsigned), cuEventCreate(void **, unsigned), cuEventRecord(void *, void *);
int cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                   void **);
typedef struct { unsigned x, y, z; } dim3;
int cudaLaunchKernel(void *, dim3, dim3, void **, size_t, void *), cudaGetLastError(void), cudaGetDevice(int *);
int cudaMemcpy(void *, const void *, size_t, int), cudaDeviceSynchronize(void);

static const char *TEXT =
    ".version 8.0 .target sm_80 .address_size 64\n"
    ".visible .entry empty() { ret; }\n"
    ".visible .entry four(.param .u64 x, .param .u64 y, .param .u64 z, .param .u32 n) { ret; }\n"
    ".visible .entry add(.param .u64 x, .param .u32 n) { .reg .b32 v; .reg .b64 a;\n"
    "ld.param.u64 a, [x]; ld.param.u32 v, [n]; red.global.add.u32 [a], v; ret; }\n";

static void ok(int code, const char *what) {
    if (code) {
        fprintf(stderr, "%s: %d\n", what, code);
        exit(1);
    }
}
#define OK(call) ok(call, #call)

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static long resident(void) { /* KiB */
    long pages = 0, all = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%ld %ld", &all, &pages) != 2) pages = 0;
    if (file) fclose(file);
    return 4 * pages;
}

/* The best of seven rounds, in microseconds for one. */
#define MEASURE(name, count, call)                                  \
    do {                                                            \
        double best = 1e9;                                          \
        for (int round = 0; round < 7; round++) {                   \
            double start = now();                                   \
            for (int i = 0; i < (count); i++) OK(call);             \
            double took = 1e6 * (now() - start) / (count);          \
            if (took < best) best = took;                           \
        }                                                           \
        printf("%s %.3f\n", name, best);                            \
    } while (0)

static void *context, *empty, *four, *add;

static int launch(void *f, unsigned grid, unsigned block, void *stream, void **args) {
    return cuLaunchKernel(f, grid, 1, 1, block, 1, 1, 0, stream, args, NULL);
}

static void *work(void *data) {
    u64 sum = 0;
    unsigned one = 1, found = 0;
    OK(cuCtxSetCurrent(context));
    OK(cuMemAlloc_v2(&sum, 4));
    OK(cuMemcpyHtoD_v2(sum, &found, 4));
    void *args[] = {&sum, &one}, *stream = NULL;
    OK(cuStreamCreate(&stream, 0));
    for (int i = 0; i < 2000; i++) {
        one = i & 3;
        OK(launch(add, 1, 32, stream, args));
    }
    OK(cuMemcpyDtoH_v2(&found, sum, 4));
    if (found != 32 * 3000) exit(2);
    return data;
}

static void calls(void) {
    int version = 0, number = 0;
    void *found = NULL, *stream = NULL, *event = NULL;
    MEASURE("cuDriverGetVersion", 5000, cuDriverGetVersion(&version));
    MEASURE("cuCtxGetCurrent", 5000, cuCtxGetCurrent(&found));
    MEASURE("cuCtxSetCurrent", 5000, cuCtxSetCurrent(context));
    OK(cuStreamCreate(&stream, 0));
    OK(cuEventCreate(&event, 0));
    MEASURE("cuStreamSynchronize", 5000, cuStreamSynchronize(stream));
    MEASURE("cuStreamQuery", 5000, cuStreamQuery(stream));
    MEASURE("cuCtxSynchronize", 5000, cuCtxSynchronize());
    MEASURE("cuEventRecord", 5000, cuEventRecord(event, stream));
    MEASURE("cudaGetLastError", 5000, cudaGetLastError());
    MEASURE("cudaGetDevice", 5000, cudaGetDevice(&number));
    MEASURE("cudaDeviceSynchronize", 5000, cudaDeviceSynchronize());
    u64 p = 0;
    MEASURE("cuMemAlloc+cuMemFree", 2000, (cuMemAlloc_v2(&p, 4096) || cuMemFree_v2(p)));
}

static void copies(void) {
    const size_t most = (size_t)256 << 20;
    u64 d = 0, e = 0;
    OK(cuMemAlloc_v2(&d, most));
    OK(cuMemAlloc_v2(&e, most));
    char *x = malloc(most), *y = malloc(most);
    memset(x, 1, most), memset(y, 2, most);
    OK(cuMemsetD8_v2(d, 3, most)), OK(cuMemsetD8_v2(e, 3, most));
    char name[99];
    for (size_t size = 4; size <= most; size *= 16) {
        int count = size < 1 << 20 ? 2000 : size < 64 << 20 ? 20 : 2;
        snprintf(name, 99, "memcpy/%zu", size);
        MEASURE(name, count, !memcpy(y, x, size));
        snprintf(name, 99, "cuMemcpyHtoD/%zu", size);
        MEASURE(name, count, cuMemcpyHtoD_v2(d, x, size));
        snprintf(name, 99, "cuMemcpyDtoH/%zu", size);
        MEASURE(name, count, cuMemcpyDtoH_v2(y, d, size));
        snprintf(name, 99, "cuMemcpyDtoD/%zu", size);
        MEASURE(name, count, cuMemcpyDtoD_v2(e, d, size));
        snprintf(name, 99, "cudaMemcpy/%zu", size);
        MEASURE(name, count, cudaMemcpy((void *)d, x, size, 4));
        if (size == 1 << 18) size = 1 << 20;
    }
    if (memcmp(x, y, most)) exit(3);
    free(x), free(y);
    OK(cuMemFree_v2(d)), OK(cuMemFree_v2(e));
}

static void launches(void) {
    u64 p = 0;
    unsigned n = 5;
    void *args[] = {&p, &p, &p, &n}, *stream = NULL;
    dim3 one = {1, 1, 1}, warp = {32, 1, 1};
    OK(cuStreamCreate(&stream, 0));
    OK(launch(empty, 1, 32, NULL, NULL));
    OK(launch(four, 1, 32, NULL, args));
    MEASURE("launch of an empty kernel", 2000, launch(empty, 1, 32, NULL, NULL));
    MEASURE("launch of an empty kernel, a stream", 2000, launch(empty, 1, 32, stream, NULL));
    MEASURE("launch of an empty kernel, four arguments", 2000, launch(four, 1, 32, NULL, args));
    MEASURE("launch of an empty kernel, 256 threads", 2000, launch(empty, 1, 256, NULL, NULL));
    MEASURE("launch of an empty kernel, 4 blocks", 1000, launch(empty, 4, 256, NULL, NULL));
    MEASURE("launch of an empty kernel, 256 blocks", 200, launch(empty, 256, 256, NULL, NULL));
    MEASURE("launch of an empty kernel, cudaLaunchKernel", 2000, cudaLaunchKernel(empty, one, warp, NULL, 0, NULL));
}

int main(int count, char **options) {
    double start = now();
    void *module = NULL;
    OK(cuInit(0));
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    OK(cuModuleLoadData(&module, TEXT));
    OK(cuModuleGetFunction(&empty, module, "empty"));
    OK(cuModuleGetFunction(&four, module, "four"));
    OK(cuModuleGetFunction(&add, module, "add"));
    OK(launch(empty, 1, 32, NULL, NULL));
    printf("start to first launch, s %.3f\n", now() - start);
    if (count > 1 && !strcmp(options[1], "loop")) {
        for (int i = 0; i < 300000; i++) OK(launch(empty, 1, 32, NULL, NULL));
        return 0;
    }
    calls();
    copies();
    launches();
    for (int i = 0; i < 1000; i++) OK(launch(empty, 1, 32, NULL, NULL));
    long before = resident();
    for (int i = 0; i < 100000; i++) OK(launch(empty, 1, 32, NULL, NULL));
    printf("growth over 100,000 launches, KiB %ld\n", resident() - before);
    pthread_t threads[8];
    start = now();
    for (int i = 0; i < 8; i++) pthread_create(&threads[i], NULL, work, NULL);
    for (int i = 0; i < 8; i++) pthread_join(threads[i], NULL);
    printf("eight threads at once, us a launch %.3f\n", 1e6 * (now() - start) / 16000);
    return 0;
}
