"""Fused sums row by row, in loops that compilers vectorise."""
