"""Doors to other tools: PyTorch, dask.  Each is imported only when it is used, and each is an extra of the package."""
