"""Machine code outside of Numba: LLVM's text compiled, kept and loaded."""
