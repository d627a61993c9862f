"""What one compiled model compiled and ran: kernels, products, and what was left to PyTorch."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from nbtc.errors import did_you_mean, shown
from nbtc.isa.gpus import GPU
from nbtc.torch.products import Settings
from nbtc.torch.report import LeftRow, ProductRow, table


class KernelRow(NamedTuple):
    """One kernel of a report.

    source: file and line of the model; "" of PyTorch's own modules alone, such as nn.Sequential.  seconds: of all
    launches, `first` of the first.
    """

    name: str
    source: str
    launches: int
    seconds: float
    first: float


class ModelReport(NamedTuple):
    """What a compiled model ran so far; prints as tables.

    kernels: TorchInductor's, run as programs.  products: library calls, each with its order of summation and the
    evidence for it ("recorded", "rule", "guess").  left: what PyTorch computed on the CPU, and why; `module` is the
    file and line of the model, where it ran outside of the compiled graphs.
    """

    gpu: str
    kernels: tuple[KernelRow, ...]
    products: tuple[ProductRow, ...]
    left: tuple[LeftRow, ...]

    def __str__(self) -> str:
        kernels = [
            (k.name, k.source or "-", str(k.launches), f"{1e3 * k.seconds:.1f}", f"{1e3 * k.first:.1f}")
            for k in self.kernels
        ]
        products = [
            (p.op, "x".join(map(str, p.shape)), p.order, str(p.calls), f"{1e3 * p.seconds:.1f}", p.evidence)
            for p in self.products
        ]
        parts = [
            f"kernels for {self.gpu}",
            table([("kernel", "from", "launches", "ms", "first"), *kernels]),
            "library products",
            table([("op", "shape", "order", "calls", "ms", "evidence"), *products]),
        ]
        if self.left:
            parts += ["left to PyTorch on the CPU", table([("op", "from", "calls", "why"), *_left(self.left)])]
        return "\n".join(parts)


def _left(rows: Iterable[LeftRow]) -> Iterator[tuple[str, str, str, str]]:
    for row in rows:
        yield row.op, row.module or "-", str(row.calls), row.reason


class Kernel:
    """A generated kernel.

    name: inductor's.  source: its Triton source.  ptx: what ran.  config: of Triton.  origin: file and line of the
    model.  program: the `nbtc.Program`; `checked` and `profile` are its own, to be launched by hand.
    """

    def __init__(self, name: str, tuner: Any, origin: str) -> None:
        (result,) = tuner.compile_results
        self._tuner = tuner
        self.name, self.origin, self.source = name, origin, str(tuner.fn.src)
        self.ptx = str(result.kernel.asm["ptx"])
        chosen = result.config
        self.config = {**chosen.kwargs, "num_warps": chosen.num_warps, "num_stages": chosen.num_stages}
        self.program = result.kernel.function.program
        self.launches, self.seconds, self.first = 0, 0.0, 0.0

    @property
    def checked(self) -> Any:
        """The program in checked mode."""
        return self.program.checked

    @property
    def profile(self) -> Any:
        """The program with counters."""
        return self.program.profile

    def launch(self, *args: Any) -> None:
        """Launch it as the generated code does: CPU tensors, and the numbers of elements; tensors change in place."""
        (launcher,) = self._tuner.launchers
        launcher(*args, stream=0)

    def __repr__(self) -> str:
        return f"Kernel({self.name!r}, launches={self.launches})"


class Kernels(Mapping[str, Kernel]):
    """Kernels by name; another kernel of the same name has a number appended."""

    def __init__(self) -> None:
        self._rows: dict[str, Kernel] = {}
        self._of: dict[int, tuple[Any, Kernel]] = {}  # by tuner, which is kept alive

    def of(self, name: str, tuner: Any, origin: str) -> Kernel:
        """The row of a tuner."""
        found = self._of.get(id(tuner))
        if found is None:
            number = sum(1 for k in self._rows if k == name or k.startswith(f"{name} "))
            kernel = Kernel(f"{name} {number + 1}" if number else name, tuner, origin)
            self._rows[kernel.name] = kernel
            found = self._of[id(tuner)] = (tuner, kernel)
        return found[1]

    def __getitem__(self, name: str) -> Kernel:
        found = self._rows.get(name)
        if found is None:
            known = ", ".join(self._rows) or "none before the model's first call"
            hint = did_you_mean(str(name), self._rows)
            raise KeyError(f"{shown(name)} is not a kernel of this model, which has {known}{hint}")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __repr__(self) -> str:
        return f"<kernels: {', '.join(self._rows) or 'none before the first call'}>"


class Session:
    """One compiled model (or everything that the backend compiled by its name with the same options)."""

    def __init__(self, gpu: GPU, settings: Settings) -> None:
        self.gpu, self.settings = gpu, settings
        self.kernels = Kernels()
        self.recorder = settings.recorder
        self.warned: set[tuple[str, str]] = set()  # (place, reason) of what runs outside of the graphs
        self.wrappers: list[str] = []  # paths of generated code
        self.watchers: list[Any] = []  # called with (name, outputs) of every launch and library call

    def report(self) -> ModelReport:
        """Everything so far."""
        rows = tuple(KernelRow(k.name, k.origin, k.launches, k.seconds, k.first) for k in self.kernels.values())
        made = self.recorder.report(self.gpu.arch)
        return ModelReport(self.gpu.name, rows, made.products, made.left)


class Compiling(NamedTuple):
    """What a thread compiles: for which session, where the model's lines are (`origins.digest`), and the graph."""

    session: Session
    lines: str
    graph: Any


class _Here(threading.local):
    """What this thread runs, and what it compiles."""

    session: Session | None = None
    compiling: Compiling | None = None


here = _Here()


@contextmanager
def compiling(what: Compiling) -> Iterator[None]:
    """This thread compiles it."""
    before, here.compiling = here.compiling, what
    try:
        yield
    finally:
        here.compiling = before
