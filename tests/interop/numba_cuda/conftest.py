"""These tests run where numba-cuda is installed."""

import importlib.util

collect_ignore_glob = [] if importlib.util.find_spec("numba_cuda") else ["test_*.py"]
