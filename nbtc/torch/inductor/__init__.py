"""Whole models: TorchInductor's kernels for a GPU, compiled and run without one."""
