"""`emulated`: a dispatch mode in which matrix products on CPU tensors have a GPU's bits."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.module_tracker import ModuleTracker

from nbtc.errors import OptionError
from nbtc.gemm.cublas.orders import Library
from nbtc.gemm.orders import order as order_row
from nbtc.isa.archs import arch as arch_row
from nbtc.torch.convolution import WINDOWS
from nbtc.torch.ops import LEFT, ROWS
from nbtc.torch.products import NoEmulation, Settings
from nbtc.torch.report import Recorder, Report

TF32_ROUNDINGS = ("rn", "rna", "rz", "none")
COMPOSITE = "CompositeImplicitAutograd"


class emulated(TorchDispatchMode):  # noqa: N801  a context manager's name
    """Inside `with emulated(arch):` every matrix product of CPU tensors has the bits of that architecture.

    arch: "sm_70" ... "sm_120".  order: how K is summed, as `nbtc.matmul` takes it, or an `nbtc.library`; None is one
    chain in ascending k, and for fp8 without `use_fast_accum` on sums of 13 bits a promotion every 128 elements.
    instruction: a family or mnemonic, as `nbtc.matmul` takes it.  tf32_rounding: how float32 operands become tf32,
    "rn" (as cuBLAS rounds them), "rna", "rz", or "none" (the hardware ignores the low 13 bits).  convolution:
    "unfold" or "channels_last", orders of a window's elements, or "cudnn", its kernel's.  threads: as `nbtc.matmul`
    takes it.

    Emulated: mm, addmm, bmm, baddbmm, addbmm, matmul, linear, einsum, `_int_mm`, `_scaled_mm` (numbers, or rows and
    columns of scales), scaled_dot_product_attention (decomposed into its products), convolutions and transposed ones,
    and the products of their gradients, as long as `backward()` runs inside.  float16 and bfloat16 results are rounded
    once from the accumulator (alpha, beta and bias before that; a convolution's bias after it).  float32 products are
    tf32 if PyTorch's own settings allow it on a GPU (`torch.backends.cuda.matmul`, `torch.backends.cudnn`), otherwise
    PyTorch computes them.  Matrix products without emulation are computed by PyTorch and listed in `report()`; PyTorch
    also computes everything that is not a matrix product.  Compiled functions run uncompiled inside.

    Raises OptionError and ArchError for bad arguments.

    >>> import torch, nbtc
    >>> x = torch.full((2, 32), 0.1, dtype=torch.bfloat16)
    >>> with nbtc.torch.emulated("sm_90") as mode:
    ...     y = x @ x.T
    >>> y[0, 0].item(), mode.report().products[0].shape
    (0.3203125, (2, 2, 32))
    """

    def __init__(
        self, arch: object = "sm_90", *, order: object = None, instruction: object = None, tf32_rounding: str = "rn",
        convolution: str = "unfold", threads: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        for name, value, legal in (
            ("tf32_rounding", tf32_rounding, TF32_ROUNDINGS),
            ("convolution", convolution, WINDOWS),
        ):
            if value not in legal:
                raise OptionError(f"{name}={value!r} is none of {', '.join(map(repr, legal))}")
        self.arch = arch_row(arch).name
        way = order if order is None or isinstance(order, Library) else order_row(order)
        self._recorder = Recorder()
        self._settings = Settings(self.arch, way, instruction, tf32_rounding, convolution, threads, self._recorder)
        self._depth = 0
        self._stack = ExitStack()
        self._tracker: Any = None

    def report(self) -> Report:
        """What was computed so far: products by module, op, shape and instruction, and what was left to PyTorch."""
        return self._recorder.report(self.arch)

    def __enter__(self) -> emulated:
        if not self._depth:
            with ExitStack() as stack:
                stack.enter_context(torch.compiler.set_stance("force_eager"))
                stack.enter_context(sdpa_kernel(SDPBackend.MATH))
                self._set(stack, torch.backends.cuda, "fp16_bf16_reduction_math_sdp", True)
                stack.callback(torch.backends.mha.set_fastpath_enabled, torch.backends.mha.get_fastpath_enabled())
                torch.backends.mha.set_fastpath_enabled(False)
                self._tracker = stack.enter_context(ModuleTracker())
                self._stack = stack.pop_all()
        self._depth += 1
        super().__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        super().__exit__(*failure)
        self._depth -= 1
        if not self._depth:
            self._stack.close()

    @staticmethod
    def _set(stack: ExitStack, where: Any, name: str, value: bool) -> None:
        """Switch one of PyTorch's settings until the stack is closed."""
        stack.callback(getattr(where, f"allow_{name}"), getattr(where, f"{name}_allowed")())
        getattr(where, f"allow_{name}")(value)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name
        target = name[:-1] if name.endswith("_") and not name.endswith("__") else name
        if target in ROWS:
            return self._product(func, ROWS[target], target != name, args, kwargs)
        if name in LEFT:
            self._locate(name)
            self._recorder.leave(LEFT[name])
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), COMPOSITE):
            with self:  # in inference mode, composite operations arrive whole
                parts = func.decompose(*args, **kwargs)
            if parts is not NotImplemented:
                return parts
        return func(*args, **kwargs)

    def _locate(self, name: str) -> None:
        """Tell the recorder where the model is."""
        inside = [path for path in self._tracker.parents if path != "Global"]
        self._recorder.module = max(inside, key=lambda path: path.count("."), default="")
        self._recorder.op = name.removeprefix("aten::")
        self._recorder.backward = torch._C._current_graph_task_id() != -1

    def _product(self, func: Any, handler: Any, in_place: bool, args: Any, kwargs: Any) -> Any:
        """One operation of ROWS; in-place and out= forms are the plain form and a copy."""
        self._locate(func._schema.name)
        plain = {k: v for k, v in kwargs.items() if k != "out"}
        try:
            if func._overloadname not in ("default", "out"):
                raise NoEmulation(f"the form {func}")
            result = handler(self._settings, *args, **plain)
        except NoEmulation as why:
            self._recorder.leave(str(why))
            return func(*args, **kwargs)
        if in_place:
            return args[0].copy_(result)
        if "out" in kwargs:
            out = kwargs["out"]
            if out.dtype != result.dtype:
                return func(*args, **kwargs)  # which refuses it
            return out.resize_(result.shape).copy_(result)
        return result
