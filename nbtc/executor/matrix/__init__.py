"""Rows of matrices: fragments to and from memory, mma, wgmma, tcgen05."""
