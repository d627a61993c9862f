"""Kernels in Python: a Numba target whose machine code is PTX text, which the executor runs on the CPU.

`target` is what Numba compiles for, `words` the functions that kernels may call (one row a word; `language` has the
public ones), `module` links a kernel and writes its PTX, `kernel` is the decorator with its launches.
"""
