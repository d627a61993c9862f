"""CUDA's driver and runtime libraries on nbtc's executor, from their public headers and documentation alone.

`libcuda.so.1` and `libcudart.so.13` are written into the cache on first use (`library`): they hold trampolines, which
at a function's first call ask Python for what it shall do (`attach`).  `tables/` has a row a function, `driver` and
`runtime` the implementations.  No private table of NVIDIA's is answered and nothing of theirs is modified.
"""
