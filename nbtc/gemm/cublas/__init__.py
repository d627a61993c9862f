"""Which kernel cuBLAS takes for a product, and the order in which that sums."""
