"""The context in which Triton's kernels run on the CPU: what of Triton it exchanges, and how it puts it back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from triton import knobs, runtime
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from nbtc.triton.driver import Driver
from nbtc.triton.tensors import Described, Tensor, tensor

PIPELINE = "nbtc: PTX as the binary"  # the key of kernels in Triton's cache on disk
DESCRIPTORS = (TensorDescriptor, GluonDescriptor)
_choices: WeakKeyDictionary[Any, dict[int, dict[Any, Any]]] = WeakKeyDictionary()  # of tuners, by device


def _stages(before: Callable[..., Any] | None) -> Callable[..., Any]:
    """The hook into the compiler's stages: PTX text is the binary, so nothing has to assemble it."""

    def hook(
        backend: Any = None, stages: Any = None, options: Any = None, language: Any = None, capability: Any = None
    ) -> tuple[str, str]:
        keys = ("", "") if before is None else before(backend, stages, options, language, capability)
        if stages is not None:
            stages["cubin"] = lambda text, about: text.encode()
        return tuple(PIPELINE + (key or "") for key in keys or ("", ""))  # type: ignore[return-value]

    return hook


def _taking_arrays(run: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's `run` that takes NumPy arrays too."""

    @wraps(run)
    def taking(self: Any, *args: Any, **options: Any) -> Any:
        return run(self, *map(tensor, args), **{name: tensor(x) for name, x in options.items()})

    return taking


def _choosing(run: Callable[..., Any]) -> Callable[..., Any]:
    """A tuner's `run` that remembers its choices by device: what fits one device may not fit another."""

    @wraps(run)
    def choosing(self: Any, *args: Any, **options: Any) -> Any:
        device = runtime.driver.active.get_current_device()
        cache = _choices.setdefault(self, {}).setdefault(device, {})
        with patch.object(self, "cache", cache):
            return run(self, *args, **options)

    return choosing


def _post_init(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """A descriptor's checks, of NumPy arrays too."""

    @wraps(check)
    def checked(self: Any) -> None:
        base = tensor(self.base)
        self.base = Described(base) if isinstance(base, Tensor) else base
        check(self)
        self.base = base

    return checked


def _from_tensor(make: Callable[..., Any]) -> Any:
    """`TensorDescriptor.from_tensor` of NumPy arrays too."""
    return staticmethod(wraps(make)(lambda x, *args, **options: make(tensor(x), *args, **options)))


@contextmanager
def emulated(arch: str | int = "sm_90", *, threads: int | None = None) -> Iterator[Driver]:
    """See `nbtc.triton.emulated`."""
    driver = Driver(arch, threads)
    before = runtime.driver._active  # `active` would look for a GPU
    exchanged = [
        (JITFunction, "run", _taking_arrays(JITFunction.run)),
        (Heuristics, "run", _taking_arrays(Heuristics.run)),
        (Autotuner, "run", _choosing(_taking_arrays(Autotuner.run))),
        *((d, "__post_init__", _post_init(d.__post_init__)) for d in DESCRIPTORS),
        *((d, "from_tensor", _from_tensor(d.from_tensor)) for d in DESCRIPTORS),
        (knobs.runtime, "add_stages_inspection_hook", _stages(knobs.runtime.add_stages_inspection_hook)),
    ]
    with ExitStack() as stack:
        for owner, name, replacement in exchanged:
            stack.enter_context(patch.object(owner, name, replacement))
        runtime.driver.set_active(driver)
        try:
            yield driver
        finally:
            runtime.driver.set_active(before)
