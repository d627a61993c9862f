"""`nbtc.torch.compile` and the Dynamo backend "nbtc"."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, NamedTuple

import torch

from nbtc.errors import OptionError
from nbtc.gemm.cublas.orders import LIBRARIES, Library
from nbtc.gemm.orders import order as order_row
from nbtc.isa.archs import gpu as gpu_row
from nbtc.isa.gpus import GPU
from nbtc.torch.inductor import private, shapes
from nbtc.torch.inductor.graph import autocast, fake_input, to_cuda
from nbtc.torch.inductor.options import HERE, OPTIONS
from nbtc.torch.inductor.origins import digest
from nbtc.torch.inductor.outside import watched
from nbtc.torch.inductor.refusals import COMPILING, check, refusing
from nbtc.torch.inductor.running import adopt
from nbtc.torch.inductor.session import Compiling, ModelReport, Session, compiling
from nbtc.torch.products import Settings
from nbtc.torch.report import Recorder

CUBLAS = "cublas 13.0"
shapes.register()


class Choices(NamedTuple):
    """How a model is compiled; see `compile`."""

    arch: object = "H200"
    order: object = None
    convolution: str = "cudnn"
    threads: int | None = None


class Compiler:
    """The backend for one GPU: what Dynamo calls with every graph."""

    def __init__(self, choices: Choices, config: dict[str, Any]) -> None:
        gpu = gpu_row(choices.arch)
        way = _library(gpu) if choices.order is None else choices.order
        way = way if way is None or isinstance(way, Library) else order_row(way)
        unrecorded = f"guess: no recording of {CUBLAS} on {gpu.name}" if way is None else ""
        threads = choices.threads
        settings = Settings(gpu.arch, way, None, "rn", choices.convolution, threads, Recorder(), unrecorded)
        self.session = Session(gpu, settings)
        self._config = {**OPTIONS, **config, **HERE}

    def __call__(self, module: Any, example_inputs: Any, **_: Any) -> Callable[..., Any]:
        from torch._inductor.compile_fx import compile_fx

        private.check_versions()
        mode = torch._guards.TracingContext.get().fake_mode
        check(module.graph)
        moved, held = to_cuda(module)
        lines = digest(moved)
        with refusing(COMPILING), autocast(), self._compiling(lines), private.keyed(lines):
            given = zip(moved.graph.find_nodes(op="placeholder"), (*example_inputs, *held), strict=True)
            inputs = [fake_input(node, x, mode) for node, x in given]
            compiled = compile_fx(
                moved,
                inputs,
                inner_compile=partial(self._inner, lines),
                config_patches=private.known_options(self._config),
            )
        return (lambda *args: compiled(*args, *held)) if held else compiled

    @contextmanager
    def _compiling(self, lines: str, graph: Any = None) -> Iterator[None]:
        from torch._functorch import config as functorch_config

        from nbtc.triton.active import emulated

        with (
            private.believing(self.session.gpu, adopt),
            functorch_config.patch(enable_autograd_cache=True),
            emulated(self.session.gpu.arch, threads=self.session.settings.threads),
            decomposed_attention(),
            compiling(Compiling(self.session, lines, graph)),
        ):
            yield

    def _inner(self, lines: str, graph: Any, inputs: Any, **options: Any) -> Any:
        """Inductor's compiler of one graph: forward, or backward, maybe much later."""
        from torch._inductor.compile_fx import compile_fx_inner

        with refusing(COMPILING), self._compiling(lines, graph), private.keyed():
            return compile_fx_inner(graph, inputs, **options)


def _library(gpu: GPU) -> Library | None:
    """The library whose orders a GPU's products take, where one was recorded."""
    for name, product in LIBRARIES:
        if name == CUBLAS and gpu_row(product).arch == gpu.arch:
            return Library(name, product)
    return None


@contextmanager
def decomposed_attention() -> Iterator[None]:
    """Attention as two products and a softmax in half precision: fused kernels are machine code without PTX."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def _split(options: dict[str, Any] | None) -> tuple[Choices, dict[str, Any]]:
    """nbtc's choices and inductor's configuration of one dictionary of options."""
    import torch._inductor.config as config

    given = dict(options or {})
    choices = Choices(**{name: given.pop(name) for name in Choices._fields if name in given})
    known = config.get_config_copy()
    for name, value in given.items():
        if name not in known:
            have = ", ".join(Choices._fields)
            raise OptionError(f"option {name!r} is neither nbtc's ({have}) nor one of torch._inductor.config")
        if name in OPTIONS and value != OPTIONS[name]:
            raise OptionError(
                f"option {name}={value!r}: kernels would be chosen by a clock, which here is not the GPU's; "
                f"leave it at {OPTIONS[name]!r}"
            )
    return choices, given


@cache
def _compiler_of(key: str, choices: Choices) -> Compiler:
    return Compiler(choices, json.loads(key))


def backend(module: Any, example_inputs: Any, *, options: dict[str, Any] | None = None, mode: Any = None) -> Any:
    """The backend "nbtc" of `torch.compile`, which finds it by this name; `options` are those of `nbtc.torch.compile`.

    All graphs with the same options share a session; for a report of one model use `nbtc.torch.compile`.

    >>> import torch
    >>> fast = torch.compile(torch.relu, backend="nbtc", options={"arch": "A100"})     # doctest: +SKIP
    """
    if mode not in (None, "default"):
        raise OptionError(f"mode={mode!r} would choose kernels by a clock, or CUDA graphs: leave it out")
    choices, config = _split(options)
    return _compiler_of(json.dumps(config, sort_keys=True), choices)(module, example_inputs)


def compile(
    model: Any, arch: object = "H200", *, order: object = None, convolution: str = "cudnn",
    threads: int | None = None, dynamic: bool | None = None, fullgraph: bool = False,
    options: dict[str, Any] | None = None,
) -> Any:  # fmt: skip
    """A model (or function) whose forward and backward passes have a GPU's bits, on CPU tensors and without a GPU.

    TorchInductor generates the same kernels as for this GPU, Triton compiles them, and their PTX runs as programs.
    Where inductor calls a library (products, convolutions), nbtc multiplies in the library's order.  The result is that
    of `torch.compile`, with two more attributes: `report()` (kernels with times, products with their order and its
    evidence, what fell back to PyTorch and why) and `kernels`, by name: `.source`, `.ptx`, `.config`, `.program`,
    `.checked`, `.profile`.

    arch: the GPU, "H200", "A100", "RTX 4090" ..., for whose number of multiprocessors kernels are chosen; an
    architecture means the first GPU that has it ("sm_90" an H100 SXM).  order: the order of all products, as
    `nbtc.matmul` takes it (default: cuBLAS's where it was recorded, see `nbtc.library`, otherwise one chain).
    convolution: as `emulated` takes it.  threads: CPU threads.  dynamic, fullgraph: as `torch.compile` takes them.
    options: options of `torch._inductor.config`; those that would choose a kernel by measuring time are refused.

    On the GPU, compile with `options=nbtc.torch.inductor_options()`.  Attention is decomposed into products and a
    softmax.  Random numbers are CUDA's for the seed of `torch.manual_seed`.  Raises ArchError and OptionError.

    >>> import torch, nbtc
    >>> fast = nbtc.torch.compile(torch.nn.ReLU(), arch="A100")          # doctest: +SKIP
    >>> fast(torch.tensor([-1.0, 2.0])).tolist(), len(fast.kernels)      # doctest: +SKIP
    ([0.0, 2.0], 1)
    """
    mine = {"arch": arch, "order": order, "convolution": convolution, "threads": threads}
    choices, config = _split({**(options or {}), **mine})
    compiler = Compiler(choices, config)
    made = torch.compile(model, backend=compiler, dynamic=dynamic, fullgraph=fullgraph)
    if isinstance(made, torch.nn.Module):
        object.__setattr__(made, "forward", watched(made.forward, compiler.session))
    else:
        made = watched(made, compiler.session)
    object.__setattr__(made, "report", compiler.session.report)
    object.__setattr__(made, "kernels", compiler.session.kernels)
    object.__setattr__(made, "session", compiler.session)
    return made


__all__ = ["Compiler", "ModelReport", "backend", "compile"]
