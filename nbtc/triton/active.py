"""The context in which Triton's kernels run on the CPU: what of Triton it exchanges, and how it puts it back.

The driver itself is set by Triton's own `runtime.driver.set_active`.  `nbtc.cuda.install` runs kernels on nbtc's CUDA
driver with nothing exchanged, in a build of PyTorch for CUDA; here tensors stay the CPU's.

| exchanged or private | why |
|---|---|
| `JITFunction.run`, `Heuristics.run`, `Autotuner.run` | NumPy arrays are arguments too |
| `Autotuner.run`, its `cache`, `configs`, `nargs` and `prune_configs` | choices are remembered by device; the first \
configuration where the context asks for it |
| `Autotuner.prune_configs` and `_bench` | the same for tuners of libraries whose `run` is their own (FlagGems') |
| descriptors' `__post_init__` and `from_tensor` | NumPy arrays are described too |
| `knobs.runtime.add_stages_inspection_hook`, public | PTX is the binary; the hook that was there is called as well |
| `runtime.driver._active` | what to put back: its property `active` would look for a GPU |

Tested with Triton 3.6 and 3.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from functools import wraps
from threading import RLock
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

from triton import knobs, runtime
from triton.compiler.errors import CompileTimeAssertionFailure
from triton.experimental.gluon.nvidia import hopper
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from nbtc.interop.extras import need
from nbtc.triton.driver import Driver
from nbtc.triton.tensors import Described, Tensor, tensor

PIPELINE = "nbtc: PTX as the binary"  # the key of kernels in Triton's cache on disk
DESCRIPTORS = (  # Triton 3.6 has none of columns of pixels yet
    TensorDescriptor,
    *(getattr(hopper, name) for name in ("TensorDescriptor", "TensorDescriptorIm2Col") if hasattr(hopper, name)),
)
_LOCK = RLock()  # of what follows
_drivers: list[Driver] = []  # of the contexts that have not ended, in any thread; the last one is Triton's
_restored = ExitStack()  # puts back what the first of them exchanged
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
    """A tuner's `run` that remembers its choices by device: what fits one device may not fit another.

    Where the context says so, the first configuration that is left after pruning and fits the device is taken, and no
    other compiled.
    """

    @wraps(run)
    def choosing(self: Any, *args: Any, **options: Any) -> Any:
        driver = runtime.driver.active
        if driver.autotune == "first":
            return _first_fit(run, self, args, options)
        cache = _choices.setdefault(self, {}).setdefault(driver.get_current_device(), {})
        with patch.object(self, "cache", cache):
            return run(self, *args, **options)

    return choosing


def _first_fit(run: Callable[..., Any], tuner: Any, args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    """Run the first configuration that the device has the resources for, as tuning by time would leave others out."""
    tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))  # what pruning looks at
    prune = type(tuner).prune_configs
    configs = getattr(prune, "__wrapped__", prune)(tuner, options)  # all that are left
    for config in configs[:-1]:
        with suppress(OutOfResources, CompileTimeAssertionFailure), patch.object(tuner, "configs", [config]):
            return run(tuner, *args, **options)
    with patch.object(tuner, "configs", configs[-1:]):
        return run(tuner, *args, **options)


def _first(prune: Callable[..., Any]) -> Callable[..., Any]:
    """A tuner's `prune_configs`, for tuners of libraries whose `run` is their own: one is left where asked for."""

    @wraps(prune)
    def first(self: Any, *args: Any, **options: Any) -> Any:
        found = prune(self, *args, **options)
        return found[:1] if runtime.driver.active.autotune == "first" else found

    return first


def _unmeasured(bench: Callable[..., Any]) -> Callable[..., Any]:
    """A tuner's `_bench`, which has nothing to compare where only one configuration is left."""

    @wraps(bench)
    def measured(self: Any, *args: Any, **options: Any) -> Any:
        return [0.0] * 3 if runtime.driver.active.autotune == "first" else bench(self, *args, **options)

    return measured


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

    @wraps(make)
    def taking(*args: Any, **options: Any) -> Any:  # the array may be given by its name
        return make(*map(tensor, args), **{name: tensor(x) for name, x in options.items()})

    return staticmethod(taking)


def _exchange() -> None:
    """Put nbtc's part into Triton, for as many contexts as there may be: what differs among them is the driver."""
    before = runtime.driver._active  # `active` would look for a GPU
    _restored.callback(runtime.driver.set_active, before)
    exchanged = [
        (JITFunction, "run", _taking_arrays(JITFunction.run)),
        (Heuristics, "run", _taking_arrays(Heuristics.run)),
        (Autotuner, "run", _choosing(_taking_arrays(Autotuner.run))),
        (Autotuner, "prune_configs", _first(Autotuner.prune_configs)),
        (Autotuner, "_bench", _unmeasured(Autotuner._bench)),
        *((d, "__post_init__", _post_init(d.__post_init__)) for d in DESCRIPTORS),
        *((d, "from_tensor", _from_tensor(d.from_tensor)) for d in DESCRIPTORS),
        (knobs.runtime, "add_stages_inspection_hook", _stages(knobs.runtime.add_stages_inspection_hook)),
    ]
    for owner, name, replacement in exchanged:
        _restored.enter_context(patch.object(owner, name, replacement))


def _torch(driver: Driver) -> AbstractContextManager[None]:
    if not driver.torch_cuda:
        return nullcontext()
    need("torch", "torch")
    from nbtc.triton.torch_cuda import on_cpu

    return on_cpu(driver.arch.name)


@contextmanager
def emulated(
    arch: str | int = "sm_90", threads: int | None = None, autotune: str = "time", torch_cuda: bool = False,
    every: AbstractContextManager[None] | None = None,
) -> Iterator[Driver]:  # fmt: skip
    """See `nbtc.triton.emulated`.  every: what launches do besides.

    Contexts of several threads may end in any order.  So Triton's own parts are put back once, by the last that ends:
    each putting back what it had found would leave those of another context behind.
    """
    driver = Driver(arch, threads, autotune, torch_cuda)
    with _LOCK:
        if not _drivers:
            _exchange()
        _drivers.append(driver)
        runtime.driver.set_active(driver)
    try:
        with _torch(driver), every or nullcontext():
            yield driver
    finally:
        with _LOCK:
            _drivers[:] = [d for d in _drivers if d is not driver]
            if _drivers:
                runtime.driver.set_active(_drivers[-1])
            else:
                _restored.close()
