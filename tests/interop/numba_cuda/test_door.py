"""`emulate` itself: kernels one by one, devices of several architectures, and what it puts back."""

import gc
import pickle
import sys
import threading

import numpy as np
import pytest
from cuda.core._utils.cuda_utils import CUDAError
from numba import cuda
from numba.core import types
from numba.cuda import codegen
from numba.cuda.cudadrv import devices, driver

import nbtc
from nbtc import errors
from nbtc.interop.numba_cuda import active


@cuda.jit
def twice(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] *= 2


def test_one_kernel():
    kernel = nbtc.cuda.emulate(twice)
    x = np.arange(100, dtype=np.float32)
    kernel[1, 128](x)
    kernel.on("sm_80")[1, 128, 0, 0](x)
    kernel.forall(100)(x)
    assert (x == 8 * np.arange(100)).all()
    with pytest.raises(errors.FormatError, match=r"@cuda\.jit"):
        nbtc.cuda.emulate(len)


def test_each_architecture_is_a_device_that_lasts():
    for arch, capability in (("sm_80", (8, 0)), ("sm_90", (9, 0)), ("sm_90a", (9, 0))):
        with nbtc.cuda.emulated(arch):
            assert cuda.is_available() and len(cuda.gpus) == 1
            assert tuple(cuda.get_current_device().compute_capability) == capability
            x = cuda.to_device(np.ones(4))
            twice[1, 32](x)
        with nbtc.cuda.emulated(arch):
            assert (x.copy_to_host() == 2).all()


def test_everything_is_put_back():
    with nbtc.cuda.emulated():
        pass  # the first one leaves functions that destroy things, for those that outlive a context
    before = [driver.ExperimentalDevice, codegen.CUDACodeLibrary.get_cufunc, devices._runtime._tls]
    state = dict(vars(driver.driver))
    with pytest.raises(ZeroDivisionError), nbtc.cuda.emulated("sm_80"), nbtc.cuda.emulated("sm_90"):
        x, stream, event = cuda.device_array(4), cuda.stream(), cuda.event()
        assert tuple(cuda.get_current_device().compute_capability) == (9, 0)
        raise ZeroDivisionError
    after = [driver.ExperimentalDevice, codegen.CUDACodeLibrary.get_cufunc, devices._runtime._tls]
    assert before == after and state == vars(driver.driver)
    del x, stream, event
    gc.collect()  # what outlives the context goes without a word


def test_a_configured_launch_travels():
    with nbtc.cuda.emulated():
        stream = cuda.stream()
        launch = pickle.loads(pickle.dumps(twice[2, 32, stream]))
        x = np.arange(64.0)
        launch(x)
    assert (x == 2 * np.arange(64)).all() and launch.griddim == (2, 1, 1)


def test_functions_of_c_that_return_nothing():
    source = cuda.CUSource('extern "C" __device__ void put(int *x, int n) { *x = n; }')
    ffi = pytest.importorskip("cffi").FFI()
    put = cuda.declare_device("put", types.void(types.CPointer(types.int32), types.int32), link=source, abi="c")

    @cuda.jit
    def kernel(x):
        put(ffi.from_buffer(x), 7)

    x = np.zeros(2, np.int32)
    with nbtc.cuda.emulated():
        kernel[1, 1](x)
    assert x.tolist() == [7, 0]


def in_use(device):
    """Bytes that live arrays hold: launches leave cycles behind, and numba-cuda gives memory back in batches."""
    gc.collect()
    cuda.current_context().deallocations.clear()
    cuda.current_context().memory_manager.deallocations.clear()
    return device.memory.used


def test_memory_is_given_back():
    with nbtc.cuda.emulated("sm_80") as device:
        used = in_use(device)
        for _ in range(50):
            twice[1, 32](x := cuda.to_device(np.ones(1000)))
            twice[1, 32](np.ones(1000))
        assert in_use(device) == used + x.nbytes
        del x
        assert in_use(device) == used and not device.memory.mapped


def test_bad_architecture():
    with pytest.raises(errors.ArchError, match="sm_70"), nbtc.cuda.emulated("sm_70"):
        pass


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba_cuda", None)
    with pytest.raises(errors.MissingExtraError, match=r"nbtc\[cuda\]"):
        nbtc.cuda.emulated()


def test_a_launch_beyond_its_bounds_is_an_error_of_both():
    with nbtc.cuda.emulated():
        bounded = cuda.jit("void()", launch_bounds=64)(lambda: None)
        bounded[1, 64]()
        with pytest.raises(CUDAError, match="CUDA_ERROR_INVALID_VALUE") as refused:
            bounded[1, 128]()
    assert isinstance(refused.value, errors.OptionError)


@pytest.mark.parametrize("other", ["sm_90", "sm_80"])
def test_contexts_of_two_threads_may_end_in_any_order(other):
    before = driver.ExperimentalDevice, dict(driver.driver.__dict__)
    inside, left = threading.Event(), threading.Event()

    def first():
        with nbtc.cuda.emulated("sm_90"):
            inside.set()
            left.wait()

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait()
    with nbtc.cuda.emulated(other):
        left.set()
        thread.join()
        x = np.ones(64)
        twice[2, 32](x)
        assert (x == 2).all()
    assert driver.ExperimentalDevice is before[0]
    assert set(driver.driver.__dict__) - set(before[1]) <= set(active.DESTROYERS)
