"""Of all tests.  `--hw`: what runs on nbtc's executor elsewhere runs on this machine's GPU."""

import collections
import ctypes
import gc
import itertools
import os
import signal

import numpy as np
import pytest

os.environ.setdefault("NBTC_QUIET", "1")  # for processes that tests start, whose output they read


def pytest_addoption(parser):
    parser.addoption("--hw", action="store_true", help="run the comparisons with hardware on this machine's GPU")


def pytest_collection_modifyitems(items):
    """Tests marked `long` first: no worker is still at one when the others have nothing left."""
    items.sort(key=lambda item: item.get_closest_marker("long") is None)


def pytest_collection_finish():
    """Thousands of collected tests are no garbage: they are not looked through again whenever a compiler allocates.

    And what a compiler allocates lives as long as its function or dies with its references: to look for cycles in it
    every few hundred objects took 3.4 of the 54 seconds of processor time in which recorded products are compiled.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


def pytest_terminal_summary(terminalreporter, config):
    """With --durations also the seconds of each folder: what a change has added, which no single test shows."""
    if config.option.durations is None:
        return
    seconds = collections.Counter()
    for report in itertools.chain.from_iterable(terminalreporter.stats.values()):
        if isinstance(report, pytest.TestReport):
            seconds["/".join(report.nodeid.split("::")[0].split("/")[:2])] += report.duration
    terminalreporter.section("seconds by folder")
    for folder, sum_of_all in seconds.most_common(20):
        terminalreporter.line(f"{sum_of_all:8.1f}  {folder}")


@pytest.fixture(autouse=True, scope="session")
def interrupts_reach_children():
    """A shell's background job ignores SIGINT, and so would every process that a test starts and interrupts."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def kernels_on_the_gpu(request, monkeypatch):
    """With --hw, tests marked `hw` launch their kernels on the GPU: arrays are copied there and back."""
    if not request.config.getoption("--hw") or request.node.get_closest_marker("hw") is None:
        return
    from nbtc.dialect.kernel import Kernel

    monkeypatch.setattr(Kernel, "launch", launch_on_the_gpu)


def launch_on_the_gpu(kernel, grid, block, args, *, shared=0, stream=None, **options):
    """`Kernel.launch` with host arrays, on copies of their memory in the GPU's."""
    from nbtc.dialect import arguments
    from nbtc.driver.arrays import Buffer
    from nbtc.executor.transfer.tensor_map import TensorMap
    from nbtc.formats.device_arrays import DeviceArray

    assert not options, f"no launch of a test on a GPU has {sorted(options)}"
    copies = {}

    def moved(x):
        if isinstance(x, TensorMap):
            options = {"swizzle": x.swizzle, "oob": x.oob, "dtype": x.dtype, "element_strides": x.element_strides}
            return TensorMap(moved(x.array), x.pixel_box or x.box, **options)
        if not isinstance(x, np.ndarray):
            return x
        low, high = np.lib.array_utils.byte_bounds(x)
        if (low, high) not in copies:
            raw = np.ctypeslib.as_array((ctypes.c_uint8 * (high - low)).from_address(low))
            copies[low, high] = raw, Buffer.of(raw), x.flags.writeable
        address = copies[low, high][1].address + x.ctypes.data - low
        return DeviceArray(arguments._Address(address), x.shape, x.strides, x.dtype, x.flags.writeable)

    values = [arguments.given(x) for x in args]
    made = kernel._specialized(values)
    kernel._on_device(made, (grid, block), [moved(v.value) for v in values], shared, stream)
    for raw, copy, writable in copies.values():
        if writable:
            copy.read(raw)
