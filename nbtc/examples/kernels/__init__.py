"""Kernels to learn from, in the order of the page "Kernels, step by step"; each runs on the CPU as it would on a GPU."""
