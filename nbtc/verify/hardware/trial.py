"""What is compared (a form's kernel, inputs drawn for it, what nbtc says it gives), and machines that run kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from nbtc.driver.arrays import Buffer
from nbtc.driver.device import device
from nbtc.driver.launching import launch, synchronize
from nbtc.errors import DeviceError
from nbtc.executor.program import load
from nbtc.executor.transfer.tensor_map import PixelBox, TensorMap
from nbtc.isa.archs import ARCHS
from nbtc.verify.text import ENTRY

Array = NDArray[Any]
Threads = int | tuple[int, int, int]  # of a block: along x, or along x, y and z
VERSION = "9.0"  # of the PTX ISA; `nbtc.driver` lowers it where the driver is older


class Map(NamedTuple):
    """A tensor map that a kernel takes after its arrays.

    number: of the array of bytes, among all that are read and written.  shape, strides (bytes), size (bytes of an
    element): the tensor that begins there.  box, options: those of `nbtc.TensorMap`.
    """

    number: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    size: int
    box: tuple[int, ...] | PixelBox
    options: dict[str, Any]

    def of(self, tensor: Any) -> TensorMap:
        """The map of the tensor, in host memory or a GPU's."""
        return TensorMap(tensor, self.box, **self.options)


class _OnDevice:
    """A tensor in a GPU's memory."""

    def __init__(self, address: int, of: Map) -> None:
        self.__cuda_array_interface__ = {
            "shape": of.shape, "typestr": f"<u{of.size}" if of.size > 1 else "|u1", "strides": of.strides,
            "data": (address, False), "version": 3,
        }  # fmt: skip


class Machine(Protocol):
    """What runs a kernel `replay`: a GPU, or nbtc itself in the place of one.  target: as PTX names it ("sm_90a")."""

    name: str
    arch: str
    target: str
    driver_version: str

    def run(self, body: str, blocks: int, threads: Threads, shared: int, inputs: Sequence[Array],
            outputs: Sequence[Array], maps: Sequence[Map] = ()) -> None:  # fmt: skip
        """Launch on copies of inputs and outputs, and bring the outputs back."""


def whole_text(body: str, target: str) -> str:
    """A PTX module of a kernel."""
    return f".version {VERSION}\n.target {target}\n.address_size 64\n{body}\n"


class Gpu:
    """The first GPU of the machine; DeviceError where there is none, or one nbtc has no row for."""

    def __init__(self, ordinal: int = 0) -> None:
        self._device = device(ordinal)
        self.name, self.arch, self.target = self._device.name, self._device.arch, self._device.target
        self.driver_version = self._device.driver_version
        if self.arch not in ARCHS:
            raise DeviceError(f"this GPU is {self.arch}, which nbtc has no row for; it knows {', '.join(ARCHS)}")

    def run(self, body: str, blocks: int, threads: Threads, shared: int, inputs: Sequence[Array],
            outputs: Sequence[Array], maps: Sequence[Map] = ()) -> None:  # fmt: skip
        """Launch on the GPU."""
        buffers = [Buffer.of(x) for x in (*inputs, *outputs)]
        tensors = [m.of(_OnDevice(buffers[m.number].address, m)) for m in maps]
        launch(whole_text(body, self.target), ENTRY, blocks, threads, shared, None, [*buffers, *tensors])
        synchronize()
        for buffer, out in zip(buffers[len(inputs) :], outputs, strict=True):
            buffer.read(out)

    def forget(self, body: str) -> None:
        """Unload a kernel."""
        self._device.forget(whole_text(body, self.target))


class Emulated:
    """nbtc's executor where a GPU would be: the same text, run on the CPU."""

    def __init__(self, target: str = "sm_90a") -> None:
        self.name, self.target, self.arch = "nbtc's executor", target, target.rstrip("af")
        self.driver_version = "none"
        self._kernels: dict[str, Any] = {}

    def run(self, body: str, blocks: int, threads: Threads, shared: int, inputs: Sequence[Array],
            outputs: Sequence[Array], maps: Sequence[Map] = ()) -> None:  # fmt: skip
        """Launch on the CPU."""
        if body not in self._kernels:
            self._kernels[body] = load(whole_text(body, self.target), self.arch)[ENTRY]
        arrays = [np.ascontiguousarray(x) for x in (*inputs, *outputs)]
        tensors = [m.of(np.ndarray(m.shape, f"u{m.size}", arrays[m.number], 0, m.strides)) for m in maps]
        self._kernels[body].launch(blocks, threads, (*arrays, *tensors), shared=shared)
        for x, out in zip(arrays[len(inputs) :], outputs, strict=True):
            if x is not out:
                out[...] = x

    def forget(self, body: str) -> None:
        """Drop a kernel."""
        self._kernels.pop(body, None)


class Trial(NamedTuple):
    """One form to compare.

    form: what reports call it.  body: the kernel.  threads: of a block.  outputs: results that a block gives.
    draw: arrays that `blocks` blocks read, and those they write, as they are before.  expect: the arrays written, as
    nbtc computes them.  shared: bytes of dynamic shared memory.  most: blocks that make sense; 0: any number.
    maps: tensor maps that the kernel takes.
    """

    form: str
    body: str
    threads: Threads
    outputs: int
    draw: Callable[[np.random.Generator, int], tuple[list[Array], list[Array]]]
    expect: Callable[[list[Array], list[Array]], list[Array]]
    shared: int = 0
    most: int = 0
    maps: tuple[Map, ...] = ()

    @property
    def block_threads(self) -> int:
        """How many a block has."""
        return self.threads if isinstance(self.threads, int) else math.prod(self.threads)


class Outcome(NamedTuple):
    """What a comparison found; first: a sentence on the first difference."""

    outputs: int
    mismatches: int
    first: str = ""


def compare(trial: Trial, machine: Machine, rng: np.random.Generator, blocks: int) -> Outcome:
    """Run a trial on fresh inputs and compare every bit."""
    inputs, before = trial.draw(rng, blocks)
    found = [x.copy() for x in before]
    machine.run(trial.body, blocks, trial.threads, trial.shared, inputs, found, trial.maps)
    wanted = trial.expect(inputs, before)
    outputs = mismatches = 0
    first = ""
    for number, (got, want) in enumerate(zip(found, wanted, strict=True)):
        word = np.dtype(f"u{got.dtype.itemsize}")
        x, y = got.view(word), np.ascontiguousarray(want).view(word).reshape(got.shape)
        outputs += x.size
        bad = x != y
        count = int(np.count_nonzero(bad))
        if count and not first:
            at = tuple(int(i) for i in np.argwhere(bad)[0])
            first = f"array {number} at {at}: {machine.name} gives {int(x[at]):#x}, nbtc {int(y[at]):#x}"
        mismatches += count
    return Outcome(outputs, mismatches, first)
