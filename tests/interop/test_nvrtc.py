"""CUDA C++ through NVRTC, where its wheels are installed; what is said where they are not."""

import importlib.util

import numpy as np
import pytest

import nbtc
from nbtc import errors

SOURCE = """
extern "C" __global__ void twice(float *x) { x[threadIdx.x] *= 2; }
template <class T> __global__ void axpy(T a, const T *x, T *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
installed = importlib.util.find_spec("nvidia") is not None
needs = pytest.mark.skipif(not installed, reason="NVRTC's wheels are not installed")


@needs
def test_kernels_and_templates():
    module = nbtc.cuda.compile(SOURCE, names=["axpy<float>"])
    x, y = np.arange(40, dtype=np.float32), np.ones(40, np.float32)
    module["twice"][1, 32](x)
    assert x[31] == 62 and x[32] == 32
    module["axpy<float>"][2, 32](0.5, x, y, 40)
    assert (y == 1 + np.float32(0.5) * x).all()


@needs
def test_messages_name_the_line():
    with pytest.raises(errors.ProgramError, match=r"twice\.cu\(1\).*undefined"):
        nbtc.cuda.compile("__global__ void f(int *x) { x[0] = y; }", filename="twice.cu")


@pytest.mark.skipif(installed, reason="NVRTC's wheels are installed")
def test_what_to_install():
    with pytest.raises(errors.MissingExtraError, match="nvrtc"):
        nbtc.cuda.compile(SOURCE)


def test_bad_architecture():
    with pytest.raises((errors.OptionError, errors.MissingExtraError)):
        nbtc.cuda.compile(SOURCE, arch="hopper")
