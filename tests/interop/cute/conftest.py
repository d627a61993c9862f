"""What the tests of CuTe DSL share."""

import pytest


@pytest.fixture
def compiled(tmp_path):
    """`cute.compile` without a GPU, for an architecture, with its PTX."""
    from cutlass import cute

    def compile_for(f, *args, arch="sm_90a", ptx=f"--keep-ptx --dump-dir {tmp_path}"):
        return cute.compile(f, *args, options=f"--gpu-arch {arch} {ptx}")

    return compile_for
