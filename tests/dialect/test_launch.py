"""Kernels in Python: launches on the CPU, arguments, places in the grid, barriers."""

import numpy as np
import pytest

import nbtc
from nbtc.dialect import kernel as kernel_module
from nbtc.errors import CompilerError, FormatError, KernelError, OptionError, ProgramError, RangeError


@nbtc.device
def square(x):
    return x * x


@nbtc.kernel
def strided(x, out, n, factor):
    i = nbtc.grid(1)
    if i < n:
        out[i] = square(x[i]) * factor + nbtc.block_idx.x


def test_arrays_of_any_strides_are_read_and_written_in_place():
    x = np.arange(300, dtype=np.float64)[::3]
    out = np.zeros((100, 2), np.float32)
    strided[4, 32](x, out[:, 1], 100, 0.5)
    assert (out[:, 1] == (x * x * 0.5 + np.arange(100) // 32).astype(np.float32)).all() and not out[:, 0].any()
    strided[4, 32](x.astype(np.int32), out[::-1, 0], 100, 2)
    assert (out[::-1, 0] == (x * x * 2 + np.arange(100) // 32).astype(np.float32)).all()


@nbtc.kernel
def places(out):
    x, y, z = nbtc.grid(3)
    out[z, y, x, 0] = nbtc.thread_idx.x + 100 * nbtc.thread_idx.y + 10000 * nbtc.thread_idx.z
    out[z, y, x, 1] = nbtc.block_idx.x + 100 * nbtc.block_idx.y + 10000 * nbtc.block_idx.z
    out[z, y, x, 2] = nbtc.block_dim.x + 100 * nbtc.block_dim.y + 10000 * nbtc.block_dim.z
    out[z, y, x, 3] = nbtc.grid_dim.x + 100 * nbtc.grid_dim.y + 10000 * nbtc.grid_dim.z
    out[z, y, x, 4] = nbtc.warp_idx() + 100 * nbtc.lane_id()


def test_places_in_three_dimensions():
    grid, block = (2, 3, 2), (5, 4, 3)
    extents = tuple(g * b for g, b in zip(grid, block, strict=True))
    out = np.zeros((*extents[::-1], 5), np.int64)
    places[grid, block](out)
    z, y, x = np.indices(extents[::-1])
    tx, ty, tz = x % 5, y % 4, z % 3
    linear = tx + 5 * (ty + 4 * tz)
    assert (out[..., 0] == tx + 100 * ty + 10000 * tz).all()
    assert (out[..., 1] == x // 5 + 100 * (y // 4) + 10000 * (z // 3)).all()
    assert (out[..., 2] == 5 + 100 * 4 + 10000 * 3).all() and (out[..., 3] == 2 + 100 * 3 + 10000 * 2).all()
    assert (out[..., 4] == linear // 32 + 100 * (linear % 32)).all()


@nbtc.kernel
def votes(x, out):
    i = nbtc.thread_idx.x
    out[0, i] = nbtc.syncthreads_count(x[i] > 5)
    out[1, i] = nbtc.syncthreads_and(x[i] > 5)
    out[2, i] = nbtc.syncthreads_or(x[i])
    nbtc.syncwarp()
    nbtc.syncwarp(0xFFFFFFFF)
    out[3, i] = nbtc.where(x[i] > 5, x[i], -1)


def test_barriers_that_count():
    x = np.arange(64, dtype=np.int32)
    out = np.zeros((4, 64), np.int32)
    votes[1, 64](x, out)
    assert (out[0] == 58).all() and not out[1].any() and (out[2] == 1).all()
    assert (out[3] == np.where(x > 5, x, -1)).all()


@nbtc.kernel
def scalars(t, flag, z, small, big, out):
    out[0] = t[0] + t[1][0]
    out[1] = 1.0 if flag else 2.0
    out[2] = z.real * 10 + z.imag
    out[3] = small
    out[4] = big > 9223372036854775807


def test_numbers_and_tuples():
    out = np.zeros(5)
    scalars[1, 1]((7, (0.5,)), True, 3 + 4j, np.int8(-3), (1 << 64) - 1, out)
    assert out.tolist() == [7.5, 1.0, 34.0, -3.0, 1.0]


def test_the_text_and_another_architecture():
    x = np.zeros(4)
    text = strided.ptx(x, x, 4, 1.0)
    assert ".target sm_90" in text and ".visible .entry strided" in text
    assert ".target sm_80" in strided.on("sm_80").ptx(x, x, 4, 1.0) and strided.on(90) is strided


@nbtc.kernel
def checked_kernel(x):
    if x[0] <= 5:
        raise AssertionError("more than five")  # pytest rewrites assert statements, in kernels too
    x[3] = 1


def test_errors_of_a_running_kernel_name_the_line():
    with pytest.raises(ProgramError, match=r"test_launch.py:\d+.*AssertionError: more than five.*thread"):
        checked_kernel[1, 1](np.zeros(3))
    with pytest.raises(ProgramError, match=r"test_launch.py:\d+.*writes outside.*after the end of x"):
        checked_kernel[1, 1](np.full(3, 9.0))


def no_decorator(x):
    return x


@nbtc.kernel
def calls_python(x):
    x[0] = no_decorator(3)


@nbtc.kernel
def returns(x):
    return x[0]


@nbtc.kernel
def allocates(x):
    x[0] = np.zeros(3)[0]


@nbtc.kernel
def wrong_grid(x):
    x[0] = nbtc.grid(5)


@pytest.mark.parametrize(
    "kernel, said",
    [
        (calls_python, "no_decorator"),
        (returns, "returns nothing"),
        (allocates, "np.zeros"),
        (wrong_grid, "1, 2 or 3"),
    ],
)
def test_what_can_not_be_compiled_names_its_line(kernel, said):
    with pytest.raises(KernelError, match=rf"kernel {kernel.__name__} \(.*test_launch.py:\d+\).*{said}"):
        kernel[1, 1](np.zeros(3))


def test_wrong_calls():
    x = np.zeros(3)
    with pytest.raises(KernelError, match="takes 1 arguments"):
        returns[1, 1](x, x)
    with pytest.raises(CompilerError, match="launch it"):
        returns(x)
    with pytest.raises(CompilerError, match="device function"):
        square(3)
    with pytest.raises(CompilerError, match=r"thread_idx\.x exists for the threads"):
        nbtc.thread_idx.x  # noqa: B018
    with pytest.raises(OptionError, match="grid, block"):
        returns[1](x)
    with pytest.raises(FormatError, match="foreign byte order"):
        returns[1, 1](x.astype(">f8"))
    with pytest.raises(FormatError, match="not 'text'"):
        returns[1, 1]("text")
    with pytest.raises(RangeError, match="64 bits"):
        returns[1, 1](1 << 70)


@nbtc.kernel
def races(x):
    s = nbtc.shared(64, np.int32)
    t = nbtc.thread_idx.x
    s[t] = x[t]
    x[t] = s[63 - t]


def test_watched_and_profiled():
    x = np.arange(64, dtype=np.int32)
    with pytest.raises(ProgramError, match=r"test_launch.py:\d+"):
        races.checked[1, 64](x)
    found = places.profile[(1, 1, 1), 32](np.zeros((1, 1, 32, 5), np.int64))
    assert "kernel places" in str(found)
    assert places.on("sm_80").checked[1, 32](np.zeros((1, 1, 32, 5), np.int64)) is None
    assert races.checked.on("sm_80").checked is not None


class OnDevice:
    """What looks like an array in a GPU's memory."""

    def __init__(self, x):
        about = x.__array_interface__
        self.__cuda_array_interface__ = {**about, "version": 3}


def test_arrays_of_a_gpu_go_to_the_driver(monkeypatch):
    calls = []
    monkeypatch.setattr(nbtc.driver, "launch", lambda *a: calls.append(a))
    x, out = np.zeros((6, 4)), np.zeros(12)
    strided[2, 32, 5, 64](OnDevice(x[:, 1]), OnDevice(out), 100, 0.5)
    text, name, grid, block, shared, stream, fields = calls[0]
    assert name == "strided" and text == strided.ptx(x[:, 1], out, 100, 0.5)
    assert (grid, block, shared, stream) == ((2, 1, 1), (32, 1, 1), 64, 5)
    address = x.__array_interface__["data"][0] + 8
    assert fields == [address, 6, 32, out.__array_interface__["data"][0], 12, 100, 0.5]
    with pytest.raises(FormatError, match="in one launch"):
        strided[2, 32](OnDevice(x[:, 1]), out, 100, 0.5)
    with pytest.raises(OptionError, match="runs on the CPU"):
        strided.checked[2, 32](OnDevice(x[:, 1]), OnDevice(out), 100, 0.5)


@pytest.mark.parametrize("option", ["cluster", "cooperative", "checked", "timeout", "contract", "nonsense"])
def test_a_launch_on_a_gpu_drops_no_option(option, monkeypatch):
    launched = []
    monkeypatch.setattr(kernel_module.arguments, "on_device", lambda values: True)
    monkeypatch.setattr(kernel_module.Kernel, "_on_device", lambda self, *given: launched.append(given))

    @nbtc.kernel
    def one(x):
        x[nbtc.grid(1)] = 1

    x = np.zeros(64, np.int32)
    one.launch(2, 32, [x], threads=1, memory=[x])
    with pytest.raises(nbtc.errors.OptionError, match=f"launch.{option}=2"):
        one.launch(2, 32, [x], **{option: 2})
    assert len(launched) == 1
