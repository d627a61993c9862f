"""These tests run where CuTe DSL is installed."""

import importlib.util

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("cutlass") else ["test_*.py"]


@pytest.fixture
def compiled(tmp_path):
    """`cute.compile` without a GPU, for an architecture, with its PTX."""
    from cutlass import cute

    def compile_for(f, *args, arch="sm_90a", ptx=f"--keep-ptx --dump-dir {tmp_path}"):
        return cute.compile(f, *args, options=f"--gpu-arch {arch} {ptx}")

    return compile_for
