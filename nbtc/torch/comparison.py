"""Where two architectures part in a model: every module's outputs, bit by bit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils._pytree import tree_leaves

from nbtc.errors import OptionError
from nbtc.testing import raw_bits, ulp_distance
from nbtc.torch.depth_picture import depth_picture
from nbtc.torch.kernel_comparison import KernelDifference, kernel_rows
from nbtc.torch.mode import emulated
from nbtc.torch.report import Report, table
from nbtc.torch.tensors import array


class LayerDifference(NamedTuple):
    """One call of one module on an architecture against the first one.

    module: its path in the model ("" is the model itself).  call: 0 for its first call.  elements: how many outputs it
    has.  differ: how many of them differ in bits.  ulps: the largest distance in representable values (None if a NaN
    meets a number, or nothing can be compared).  error: |difference| / |outputs|, Euclidean.  inputs_differ: whether
    its inputs differed already.
    """

    module: str
    kind: str
    call: int
    arch: str
    elements: int
    differ: int
    ulps: int | None
    error: float
    inputs_differ: bool


class Comparison(NamedTuple):
    """What `compare` found; prints as a table, `.json()` as text, `.svg()` as error along the model's depth.

    layers: every module's calls in the order in which they end.  reports: the products of each run.  kernels: every
    launch and library call of the compiled model, forward and then backward, where they were asked for.
    """

    archs: tuple[str, ...]
    layers: tuple[LayerDifference, ...]
    reports: tuple[Report, ...]
    kernels: tuple[KernelDifference, ...] = ()

    @property
    def first_kernel(self) -> KernelDifference | None:
        """The first launch or library call of the compiled model that leaves other bits."""
        return next((row for row in self.kernels if row.differ or row.name == "other kernels"), None)

    @property
    def first(self) -> LayerDifference | None:
        """The first layer whose outputs differ although its inputs do not: where the architectures diverge."""
        return next((row for row in self.layers if row.differ and not row.inputs_differ), None)

    def json(self) -> str:
        """The rows and the first one as JSON text."""
        rows = [row._asdict() for row in self.layers]
        first = None if self.first is None else self.first._asdict()
        return json.dumps({"archs": self.archs, "first": first, "layers": rows}, indent=1)

    def svg(self) -> str:
        """A picture of each layer's error along the depth of the model, as SVG text."""
        lines: dict[str, list[tuple[str, float]]] = {name: [] for name in self.archs[1:]}
        for row in self.layers:
            lines[row.arch].append((_name(row), row.error))
        return depth_picture(f"difference from {self.archs[0]}", lines)

    def _repr_svg_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        head = ("layer", "kind", "arch", "differ", "of", "ulps", "error", "inputs")
        rows = [
            (
                *(_name(row), row.kind, row.arch, str(row.differ), str(row.elements)),
                *("-" if row.ulps is None else str(row.ulps), f"{row.error:.1e}"),
                "differ" if row.inputs_differ else "same",
            )
            for row in self.layers
        ]
        found = "no layer" if self.first is None else f"{_name(self.first)} on {self.first.arch}"
        text = f"against {self.archs[0]}; the first to part: {found}\n{table([head, *rows])}"
        if (kernel := self.first_kernel) is not None:
            way = "backward" if kernel.backward else "forward"
            text += f"\nthe first kernel to part ({way}, {kernel.arch}): {kernel.name} {kernel.source}"
        return text


def _name(row: LayerDifference) -> str:
    return f"{row.module or '(model)'}{f' call {row.call}' if row.call else ''}"


class _Call(NamedTuple):
    """What one call of a module gave: its outputs, and a digest of its inputs."""

    kind: str
    outputs: list[NDArray[Any]]
    inputs: bytes


def compare(
    model: torch.nn.Module,
    inputs: Any,
    archs: str | int | emulated | Sequence[str | int | emulated] = ("sm_80", "sm_90"),
    *,
    kernels: bool = False,
    threads: int | None = None,
) -> Comparison:
    """Run a model on several architectures and say, layer by layer, how its outputs differ from the first one's.

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments.  archs: names, or `emulated(...)` objects
    for other choices of one architecture (an order of summation, say); a single one is compared with the model as torch
    computes it here.  kernels: whether to compile the model too, for the first GPU of each architecture or the GPUs
    that are named, and compare every kernel and library call of its forward and backward pass.

    Nothing is trained: there are no gradients, random numbers are the same in every run, and buffers that a run changes
    are restored.  The outputs of every module are kept in memory once.  Raises OptionError if there is no module or
    architecture, and whatever the model raises.

    >>> import torch, nbtc
    >>> model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(256, 8)).bfloat16()
    >>> found = nbtc.torch.compare(model, torch.randn(64, 256).bfloat16(), ("sm_80", "sm_90"))
    >>> [row.module for row in found.layers], found.layers[0].differ
    (['0', '1', ''], 0)
    """
    if not isinstance(model, torch.nn.Module):
        raise OptionError(f"model is a {type(model).__name__}: pass a torch.nn.Module, whose layers are compared")
    alone = isinstance(archs, str | int | emulated)
    given = [archs] if isinstance(archs, str | int | emulated) else list(archs)
    modes: list[Any] = [a if isinstance(a, emulated) else emulated(a, threads=threads) for a in given]
    if alone:
        modes.insert(0, _Here())
    if len(modes) < 2:
        raise OptionError(f'archs={archs!r}: a comparison needs two or more, such as ("sm_80", "sm_90")')
    names = _names(modes)
    layers: list[LayerDifference] = []
    base: dict[tuple[str, int], _Call] = {}
    for mode, name in zip(modes, names, strict=True):
        made = _run(model, inputs, mode)
        if mode is modes[0]:
            base = made
            continue
        layers += [_difference(base.get(key), call, key, name) for key, call in made.items()]
    rows: tuple[KernelDifference, ...] = ()
    if kernels:
        rows = _kernels(model, inputs, given, names, threads)
    return Comparison(names, tuple(layers), tuple(mode.report() for mode in modes), rows)


def _kernels(
    model: torch.nn.Module, inputs: Any, given: Sequence[Any], names: tuple[str, ...], threads: int | None
) -> tuple[KernelDifference, ...]:
    """Rows of the compiled model; GPUs by name alone."""
    if len(given) < 2 or any(isinstance(arch, emulated) for arch in given):
        raise OptionError('kernels=True compiles for GPUs: name two or more, such as ("A100", "H100")')
    with torch.random.fork_rng(devices=[]), _unchanged(model):
        state = torch.random.get_rng_state()

        def call(fast: Any) -> Any:
            torch.random.set_rng_state(state)
            return _called(fast, inputs)

        return kernel_rows(model, call, given, names, threads)


def _called(model: Any, inputs: Any) -> Any:
    if isinstance(inputs, dict):
        return model(**inputs)
    return model(*inputs) if isinstance(inputs, tuple) else model(inputs)


class _Here(nullcontext[None]):
    """The model as torch computes it on this machine."""

    arch = "torch"

    def report(self) -> Report:
        """Nothing was emulated."""
        return Report(self.arch, (), ())


def _names(modes: list[Any]) -> tuple[str, ...]:
    """A name for each run, told apart where an architecture comes twice."""
    plain = [mode.arch for mode in modes]
    return tuple(n if plain.count(n) == 1 else f"{n} #{plain[:i].count(n)}" for i, n in enumerate(plain))


def _run(model: torch.nn.Module, inputs: Any, mode: Any) -> dict[tuple[str, int], _Call]:
    """Every call of every module, in the order in which they end."""
    calls: dict[tuple[str, int], _Call] = {}
    handles = []
    for path, module in model.named_modules():

        def note(module: torch.nn.Module, args: Any, kwargs: Any, output: Any, path: str = path) -> None:
            given = blake2b(digest_size=16)
            for x in _tensors((args, kwargs)):
                given.update(np.ascontiguousarray(raw_bits(x)).tobytes())
            number = sum(1 for name, _ in calls if name == path)
            outputs = [x.copy() for x in _tensors(output)]
            calls[path, number] = _Call(type(module).__name__, outputs, given.digest())

        handles.append(module.register_forward_hook(note, with_kwargs=True))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]), _unchanged(model), mode:
            _called(model, inputs)
    finally:
        for handle in handles:
            handle.remove()
    return calls


@contextmanager
def _unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Buffers as they were, afterwards."""
    before = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)


def _tensors(tree: Any) -> list[NDArray[Any]]:
    """The floating-point and integer tensors of nested arguments as arrays."""
    leaves = [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]
    return [x.numpy() if x.dtype == torch.int64 else array(x) for x in leaves]


def _difference(base: _Call | None, call: _Call, key: tuple[str, int], arch: str) -> LayerDifference:
    elements = sum(x.size for x in call.outputs)
    shapes = [x.shape for x in call.outputs]
    if base is None or [x.shape for x in base.outputs] != shapes:  # the runs took different ways through the model
        return LayerDifference(key[0], call.kind, key[1], arch, elements, elements, None, float("nan"), True)
    differ, most, lost, size, comparable = 0, 0, 0.0, 0.0, True
    for x, y in zip(base.outputs, call.outputs, strict=True):
        other = raw_bits(x) != raw_bits(y)
        differ += int(other.sum())
        if x.dtype.kind in "iub" or not x.size:
            continue
        distance = int(ulp_distance(x, y).max())
        comparable = comparable and distance < 2**64 - 1
        most = max(most, distance)
        with np.errstate(all="ignore"):
            wide = x.astype(np.float64)
            lost += float(np.square(np.where(other, y.astype(np.float64) - wide, 0)).sum())
            size += float(np.square(wide).sum())
    error = (lost / size) ** 0.5 if lost else 0.0
    ulps = most if comparable else None
    return LayerDifference(key[0], call.kind, key[1], arch, elements, differ, ulps, error, base.inputs != call.inputs)
