"""Every private name of PyTorch that compiled models touch, and why; but for `tracing` nothing else names one.

Tested with the versions of `TESTED`.  While a thread is inside `believing`, PyTorch tells *that thread* of a GPU; all
other threads see what is there, and when the last one leaves nothing is exchanged any more.

| name | why |
|---|---|
| `torch.cuda.*` of `interop.torch_device.cuda_names`, `_DeviceGuard`, `_lazy_init` | what inductor asks of a device |
| `torch._dynamo.device_interface.device_interfaces["cuda"]` | the same questions by another way |
| `torch._subclasses.fake_tensor`: `init_gpu_context`, `FakeTensorMode.avoid_device_init` | they start no driver |
| c10's `device_guard_impl_registry` | an autograd node of a CUDA tensor needs a guard, which a CPU build lacks |
| `fake_tensor.run_fallback_kernel` | it asks the device for the shapes of results: `without_rule.on_cpu` asks the CPU |
| `torch.autograd.grad` | the engine asks for streams: `engine.grad` walks instead |
| `triton_helpers.set_driver_to_gpu` | Triton's driver is nbtc's |
| `triton_key` of Triton's `runtime.cache` and `triton_compat` | it reads all of Triton's files in every process |
| `torch._C._cuda_getCurrentRawStream`, `torch._C._dynamo.guards._empty_strided_cuda` | what wrappers import |
| `torch._C._select_conv_backend`, `_conv_determine_backend_memory_format` | they decide strides of results |
| `ConstantFolder`, `UniformValueConstantFolder` | they run operations on the device: here on the CPU |
| caches of `_triton`, `_inductor.utils`, `fake_tensor`, `DeviceProperties`, `CacheBase` | they remember the GPU |
| `torch.utils._device._device_constructors` | which functions make tensors on the default device |
| `PyCodeCache.load_by_key_path` | wrappers are taken where they are loaded |
| `CachingAutotuner.compile_results`, `.launchers`, `CompiledKernel._init_handles` | launches without a driver |
| `convert_frame.compile_lock` | one compilation at a time, as Dynamo has it |
| `flex_attention._validate_device`, `._apply_kernel_options` | CPU tensors get no gradients |
| `_get_foreach_kernels_supported_devices` of optimizers and norms | a GPU's default is one step of all tensors |
| `torch.amp.autocast_mode._enter_autocast` | in a graph, the CPU's is the GPU's |
| `torch.utils._python_dispatch._get_current_dispatch_mode_stack` | whether `emulated` is entered |
| `torch.cuda._lazy_seed_tracker` | seeds that wait for a GPU (`torch.manual_seed`) |
| `torch._C._dispatch_has_kernel_for_dispatch_key` | which operations lack a rule for their shapes (`shapes`) |
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack
from torch.utils._pytree import tree_map

from nbtc import __version__
from nbtc.errors import UntestedVersionWarning, warn
from nbtc.interop.torch_device import Guard, cuda_names, nothing, properties
from nbtc.isa.gpus import GPU
from nbtc.torch.inductor import engine, without_rule
from nbtc.torch.inductor.remembered import remembered

TESTED = {"torch": ("2.10", "2.11", "2.14"), "triton": ("3.6", "3.8")}
CPU = torch.device("cpu")
_CUDA_SLOT, _META_SLOT, _SLOTS = 1, 14, 22  # of c10::DeviceType


class _Here(threading.local):
    """What this thread believes in."""

    properties: Any = None


_here = _Here()


def has_rule(name: str) -> bool:
    """Whether PyTorch knows what shapes an operation gives, without running it."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"))


def check_versions() -> None:
    """Warn once where the versions installed were never tested."""
    import triton

    for name, found in (("torch", torch.__version__), ("triton", triton.__version__)):
        if ".".join(found.split(".")[:2]) not in TESTED[name]:
            tested = ", ".join(TESTED[name])
            warn(
                f"{name} {found} was not tested with nbtc.torch.compile (tested: {tested}); private names that it "
                "uses may have moved, and kernels are those of this version",
                UntestedVersionWarning,
            )


def compile_lock() -> Any:
    """Dynamo's own lock: whoever compiles has it."""
    from torch._dynamo import convert_frame

    return convert_frame.compile_lock


def _interface() -> Any:
    """Dynamo's and inductor's view of a device type, without a driver."""
    from torch._dynamo.device_interface import DeviceInterface

    cuda = cuda_names(lambda: _here.properties)

    class Worker:
        set_device = staticmethod(nothing)
        current_device = staticmethod(lambda: 0)
        get_device_properties = staticmethod(cuda["get_device_properties"])

    names: dict[str, Any] = {
        "device": Guard,
        "Event": torch.cuda.Event,
        "Stream": torch.cuda.Stream,
        "Worker": Worker,
        "exchange_device": staticmethod(lambda device: 0),
        "maybe_exchange_device": staticmethod(lambda device: 0),
        "get_raw_stream": staticmethod(lambda device: 0),
        "get_compute_capability": staticmethod(
            lambda device=None: 10 * _here.properties.major + _here.properties.minor
        ),
        "is_triton_capable": staticmethod(lambda device=None: _here.properties.major >= 7),
        "raise_if_triton_unavailable": staticmethod(nothing),
    }
    same = ("current_device", "set_device", "device_count", "synchronize", "is_available", "get_device_properties")
    names |= {name: staticmethod(cuda[name]) for name in (*same, "is_bf16_supported", "memory_allocated")}
    return type("Interface", (DeviceInterface,), names)


def _caches() -> list[Any]:
    """functools caches that remember what device there is."""
    import torch._inductor.utils as inductor_utils
    from torch._inductor.codecache import CacheBase
    from torch._inductor.runtime.hints import DeviceProperties
    from torch._subclasses import fake_tensor
    from torch.utils import _triton

    found = [
        value
        for owner in (_triton, inductor_utils, fake_tensor)
        for value in list(vars(owner).values())
        if hasattr(value, "cache_clear") and getattr(value, "__module__", "") == owner.__name__
    ]
    return [*found, DeviceProperties.create, CacheBase.get_system]


@contextmanager
def _guard() -> Iterator[None]:
    """A C++ device guard of CUDA that does nothing.

    A CUDA build without a GPU makes one itself.  A CPU build has none: that of "meta" takes its place, in the registry
    that libc10 exports.
    """
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    registry = (ctypes.c_void_p * _SLOTS).in_dll(library, "_ZN3c104impl26device_guard_impl_registryE")
    before = registry[_CUDA_SLOT]
    if before:
        torch._C._ensureCUDADeviceGuardSet()
        yield
        return
    registry[_CUDA_SLOT] = registry[_META_SLOT]
    try:
        yield
    finally:
        registry[_CUDA_SLOT] = before


class _CudaMeansCpu(TorchDispatchMode):
    """Operations on "cuda" run on the CPU."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = CPU
        return func(*tree_map(lambda x: CPU if isinstance(x, torch.device) else x, args), **kwargs)


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        if _here.properties is None:
            return function(*args, **kwargs)
        with _CudaMeansCpu():
            return function(*args, **kwargs)

    return wrapped


def memory_format(*tensors: torch.Tensor) -> torch.memory_format:
    """cuDNN's layout of a convolution's results: channels last where an operand has it (`ConvUtils.h`)."""
    from torch._prims_common import suggest_memory_format

    found = {suggest_memory_format(x) for x in tensors} - {torch.contiguous_format}
    return found.pop() if found and tensors[0].dtype != torch.float64 else torch.contiguous_format


def _takes_cudnn(x: Any, weight: Any, dilation: Any, transposed: bool, output_padding: Any, stride: Any) -> bool:
    """`use_cudnn` of PyTorch's `Convolution.cpp`, which here would ask the driver."""
    if x.device.type != "cuda" or 0 in (*x.shape, *weight.shape) or not torch.backends.cudnn.enabled:
        return False
    if torch.bfloat16 in (x.dtype, weight.dtype) and _here.properties.major < 8:
        return False
    dilated = any(d != 1 for d in dilation)
    if dilated and torch.backends.cudnn.deterministic and memory_format(x, weight) == torch.contiguous_format:
        return False
    return all(p < s for p, s in zip(output_padding, stride, strict=False))


def _convolver(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_select_conv_backend` as a GPU with cuDNN answers it."""

    def chosen(
        input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
        output_padding: Any, groups: int, bias_sizes: Any = None,
    ) -> Any:  # fmt: skip
        kinds = torch._C._ConvBackend
        if not _takes_cudnn(input, weight, dilation, transposed, output_padding, stride):
            return original(
                input, weight, bias, stride, padding, dilation, transposed, output_padding, groups, bias_sizes
            )
        depthwise = not transposed and input.shape[1] == groups > 1 and weight.shape[0] % groups == 0
        if depthwise and memory_format(input, weight) == torch.contiguous_format:
            return kinds.CudaDepthwise3d if input.ndim == 5 else kinds.CudaDepthwise2d
        return kinds.CudnnTranspose if transposed else kinds.Cudnn

    return chosen


def _convolved_layout(original: Callable[..., Any]) -> Callable[..., Any]:
    """`_conv_determine_backend_memory_format`, which a build without cuDNN answers otherwise."""

    def layout(input: Any, weight: Any, backend: Any) -> Any:
        cudnn = backend in (torch._C._ConvBackend.Cudnn, torch._C._ConvBackend.CudnnTranspose)
        return memory_format(input, weight) if cudnn else original(input, weight, backend)

    return layout


def _triton_key(original: Callable[[], str]) -> Callable[[], str]:
    """`triton_key`, which reads all of Triton's files in every process."""
    import triton

    return lambda: remembered(original, Path(triton.__file__).parent)


def _of_this_thread(owner: Any, name: str, fake: Any) -> Any:
    """A function that is the fake one for threads that believe in a GPU, and the original for all others."""
    original: Any = getattr(owner, name, None)
    if original is None:
        return fake

    @functools.wraps(original, updated=())
    def chosen(*args: Any, **kwargs: Any) -> Any:
        return (original if _here.properties is None else fake)(*args, **kwargs)

    return chosen


def _exchanged() -> Iterator[tuple[Any, str, Any]]:
    """(owner, name, replacement) of everything that is exchanged."""
    from torch._inductor import constant_folding
    from torch._inductor.fx_passes import joint_graph
    from torch._inductor.runtime import triton_compat, triton_helpers
    from torch._subclasses import fake_tensor
    from triton.runtime import cache

    fakes = [(torch.cuda, name, fake) for name, fake in cuda_names(lambda: _here.properties).items()]
    fakes += [
        (fake_tensor, "init_gpu_context", nothing),
        (fake_tensor, "run_fallback_kernel", without_rule.on_cpu),
        (torch.autograd, "grad", engine.grad),
        (triton_helpers, "set_driver_to_gpu", nothing),
        *((owner, "triton_key", _triton_key(triton_compat.triton_key)) for owner in (triton_compat, cache)),
        (torch._C, "_cuda_getCurrentRawStream", lambda device: 0),
        (torch._C._dynamo.guards, "_empty_strided_cuda", torch._C._dynamo.guards._empty_strided_cpu),
    ]
    for name, made in (
        ("_select_conv_backend", _convolver),
        ("_conv_determine_backend_memory_format", _convolved_layout),
    ):
        fakes.append((torch._C, name, made(getattr(torch._C, name))))
    for owner, name, fake in fakes:
        yield owner, name, _of_this_thread(owner, name, fake)
    yield fake_tensor.FakeTensorMode, "avoid_device_init", True
    for folder in (joint_graph.UniformValueConstantFolder, constant_folding.ConstantFolder):
        for name in ("__init__", "run"):
            if name in vars(folder):
                yield folder, name, _on_cpu(vars(folder)[name])


@contextmanager
def believing(gpu: GPU, loaded: Callable[[Any], Any]) -> Iterator[None]:
    """This thread believes in one GPU, with nbtc's driver of Triton; nothing reaches a real driver.

    loaded: gives what stands for a module of generated code.  Nothing happens where the thread believes already.
    """
    if _here.properties is not None:
        yield
        return
    from torch._dynamo import device_interface
    from torch._inductor.codecache import PyCodeCache

    device_interface.get_interface_for_device("cuda")  # the registry fills itself on first use
    load = PyCodeCache.load_by_key_path

    def loading(*args: Any, **kwargs: Any) -> Any:
        module = load(*args, **kwargs)
        return module if _here.properties is None else loaded(module)

    with compile_lock(), ExitStack() as stack:
        for owner, name, replacement in list(_exchanged()):
            stack.enter_context(patch.object(owner, name, replacement, create=not hasattr(owner, name)))
        stack.enter_context(patch.object(PyCodeCache, "load_by_key_path", staticmethod(loading)))
        interface = _interface()
        stack.enter_context(patch.dict(device_interface.device_interfaces, {"cuda": interface, "cuda:0": interface}))
        stack.enter_context(_guard())
        _here.properties = properties(gpu)
        caches = _caches()
        _clear(caches)
        try:
            yield
        finally:
            _here.properties = None
            _clear(caches)


def keyed(lines: str = "") -> Any:
    """A context in which what inductor and AOTAutograd keep on disk has keys of nbtc's own.

    What nbtc keeps there is not what a GPU's run keeps.  lines: of the model, where what is kept names them.  Settings
    that decide what is traced, and that PyTorch's own keys lack, are in them too.
    """
    einsum, cudnn = torch.backends.opt_einsum, torch.backends.cudnn
    path = einsum.is_available() and einsum.enabled and einsum.strategy
    autocast = torch.is_autocast_enabled("cuda") and str(torch.get_autocast_dtype("cuda"))
    settings = path, cudnn.enabled, cudnn.deterministic, torch.get_default_dtype(), autocast
    tag = f"nbtc {__version__} for {_here.properties.name} {settings} {lines}"
    return torch.compiler.config.patch(cache_key_tag=tag)


def _clear(caches: list[Any]) -> None:
    for cache in caches:
        cache.cache_clear()


def factories() -> set[Any]:
    """Functions that make tensors, on the default device where none is named."""
    from torch.utils._device import _device_constructors

    return set(_device_constructors())


def ready(tuner: Any) -> None:
    """Have a kernel of inductor loaded for good: launching it asks no driver any more."""
    for result in tuner.compile_results:
        result.kernel._init_handles()
        result.kernel._init_handles = nothing


def pending_seed() -> tuple[Any, int] | None:
    """(what stands for the call, seed) of the last `torch.manual_seed` that waits for a GPU, if one was called."""
    tracker = torch.cuda._lazy_seed_tracker
    found = tracker.manual_seed_all_cb
    if not found:
        return None
    call = found[0]
    seeds = dict(zip(call.__code__.co_freevars, (c.cell_contents for c in call.__closure__ or ()), strict=True))
    return call, int(seeds["seed"])


def gpu_generator() -> Any:
    """The default generator of PyTorch's own GPU; None before PyTorch uses one, which no seed reaches until then."""
    generators = torch.cuda.default_generators
    found = generators[torch.cuda.current_device()] if generators else None
    return found if found is not None and found.device.type == "cuda" else None  # an emulated GPU's is the CPU's


def known_options(options: dict[str, Any]) -> dict[str, Any]:
    """Those options of inductor that this version has."""
    import torch._inductor.config as config

    known = config.get_config_copy()
    return {name: value for name, value in options.items() if name in known}


def dispatch_modes() -> list[Any]:
    """The dispatch modes that this thread has entered."""
    return list(_get_current_dispatch_mode_stack())


def enter_autocast() -> Any:
    """The function of a graph in which `torch.autocast` begins."""
    return torch.amp.autocast_mode._enter_autocast
