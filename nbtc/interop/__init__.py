"""Interfaces to other tools: PyTorch, dask.  Each is imported when it is used, and each is an extra of the package."""
