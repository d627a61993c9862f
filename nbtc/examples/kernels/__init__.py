"""Kernels to learn from, in the order of the page "Kernels, step by step"."""
