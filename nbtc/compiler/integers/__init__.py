"""Functions of 64-bit integers, translated from Python's syntax to LLVM."""
