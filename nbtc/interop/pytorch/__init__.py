"""PyTorch's matrix products with the bits of a chosen GPU."""
