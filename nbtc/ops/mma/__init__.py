"""Warp-level products: mma.sync, mma.sp, wmma.mma."""
