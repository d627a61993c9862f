"""What nbtc's functions in kernels of numba.cuda refuse, and what they need of numba-cuda."""

import subprocess
import sys
from importlib import import_module

import pytest
from numba import cuda
from numba.core import types

import nbtc
from nbtc import errors, ptx
from nbtc.interop.numba_cuda import stubs

nbtc.cuda.register()
WORDS = types.uint32[:, ::1]


def test_what_a_wrong_call_says():
    def unknown(a, d):
        ptx.mma_sync("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16", a[0], a[1], a[2])

    with pytest.raises(Exception, match=r"mma_sync.*m16n8k16"):
        cuda.compile_ptx(unknown, types.void(WORDS, WORDS), cc=(9, 0))


def test_versions_that_an_older_driver_knows():
    text = b"//\n.version 9.5\n.target sm_90a\n.version 9.5\n"
    versions = {(14, 0): b"9.5", (13, 0): b"9.0", (12, 9): b"8.8", (12, 6): b"8.5", (12, 2): b"8.2"}
    for driver, version in versions.items():
        assert stubs.lowered(text, driver) == text.replace(b"9.5", version, 1)


def test_numba_cuda_finds_them_itself():
    points = import_module("importlib.metadata").entry_points(group="numba_cuda_extensions", name="init")
    ours = [p for p in points if p.value.startswith("nbtc.")]
    if not ours:
        pytest.skip("nbtc is not installed, its source is on the path")
    assert ours[0].load() is stubs.register


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(errors.MissingExtraError, match=r"nbtc\[cuda\]"):
        nbtc.cuda.register()


def test_names_of_numpy_that_numba_cuda_asks_for():
    code = """
import numpy as np, sys
np.__dict__.pop("row_stack", None)
import nbtc.interop.numba_cuda
from numba import cuda
from numba.core import types
cuda.compile_ptx(lambda x: None, types.void(types.int32), cc=(9, 0))
"""
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
