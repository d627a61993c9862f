"""A kernel's code: an LLVM module with one function for a warp, and the loop that runs warps."""
