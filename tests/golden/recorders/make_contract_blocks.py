"""What a GPU's driver makes of products and sums in several blocks: python make_contract_blocks.py, one kernel a text.

It needs NumPy and the driver's library alone.
"""

import ctypes
import runpy
import sys
import types
from pathlib import Path

import numpy as np

HERE = Path(__file__).parents[1]
for missing in ("nbtc", "pytest"):  # only the texts are wanted of the test
    sys.modules[missing] = types.SimpleNamespace(
        fixture=lambda **_: lambda f: f, mark=types.SimpleNamespace(parametrize=lambda *_: lambda f: f)
    )
found = runpy.run_path(str(HERE.parent / "executor" / "kernel" / "test_contract_blocks.py"))
LANES, SLOTS, text = found["LANES"], found["SLOTS"], found["text"]
cuda = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    status = getattr(cuda, name)(*arguments)
    if status:
        raise SystemExit(f"{name}: error {status}")


def kernel_of(name):
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    call("cuModuleLoadData", ctypes.byref(module), text(name).encode())
    call("cuModuleGetFunction", ctypes.byref(kernel), module, b"k")
    return kernel


def run(name, inputs, x, y):
    """What a text's kernel leaves."""
    out = np.zeros((LANES, SLOTS), np.float32)
    call("cuMemcpyHtoD_v2", x, inputs.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(inputs.nbytes))
    call("cuMemcpyHtoD_v2", y, out.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(out.nbytes))
    pointers = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(a), ctypes.c_void_p) for a in (x, y)))
    call("cuLaunchKernel", kernel_of(name), 1, 1, 1, LANES, 1, 1, 0, None, pointers, None)
    call("cuCtxSynchronize")
    call("cuMemcpyDtoH_v2", out.ctypes.data_as(ctypes.c_void_p), y, ctypes.c_size_t(out.nbytes))
    return out.view(np.uint32)


def main(path):
    context, x, y = ctypes.c_void_p(), ctypes.c_uint64(), ctypes.c_uint64()
    call("cuInit", 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    random = np.random.default_rng(11)
    inputs = (random.standard_normal((LANES, 8)) * 3).astype(np.float32)
    for pointer, bytes_ in ((x, inputs.nbytes), (y, LANES * SLOTS * 4)):
        call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(bytes_))
    np.savez_compressed(path, inputs=inputs, **{name: run(name, inputs, x, y) for name in found["TEXTS"]})


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else HERE / "contract_blocks.npz")
