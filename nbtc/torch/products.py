"""One matrix product of tensors: which arithmetic stands for it, and what a library does with its result."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.errors import GuessedOrderWarning, UnsupportedInstructionError, warn
from nbtc.formats.arrays import as_format
from nbtc.formats.conversions import convert
from nbtc.gemm.cublas.orders import Library
from nbtc.gemm.fused_lanes import fma32
from nbtc.gemm.orders import Order
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.run import matmul, plan
from nbtc.torch.report import Recorder
from nbtc.torch.tensors import array

PROMOTED = 13  # fraction bits of the sums that libraries promote to float32 every 128 elements of K
DTYPES = {torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2}


class Settings(NamedTuple):
    """How a mode computes; see `emulated`.

    unrecorded: for a GPU whose library's orders nobody recorded, the sentence that says so.
    """

    arch: str
    order: Order | Library | None
    instruction: object
    tf32_rounding: str
    convolution: str
    threads: int | None
    recorder: Recorder
    unrecorded: str = ""


class NoEmulation(Exception):
    """This operation is left to PyTorch, for the reason the exception carries."""


def tf32_allowed(convolution: bool = False) -> bool:
    """Whether PyTorch's own settings let a GPU read float32 operands as tf32."""
    backend = torch.backends.cudnn.conv if convolution else torch.backends.cuda.matmul
    if hasattr(backend, "fp32_precision"):
        return bool(backend.fp32_precision == "tf32")
    return bool(torch.backends.cudnn.allow_tf32 if convolution else torch.backends.cuda.matmul.allow_tf32)


def operand(t: torch.Tensor, s: Settings, convolution: bool = False) -> NDArray[Any]:
    """A tensor as multiplicands; raises NoEmulation for what tensor cores do not multiply."""
    if t.device.type != "cpu":
        raise NoEmulation(f"a tensor on {t.device.type}: only CPU tensors are emulated")
    if t.dtype == torch.float32:
        if not tf32_allowed(convolution) and (convolution or not isinstance(s.order, Library)):
            raise NoEmulation("float32 without tf32 (allow_tf32, float32_matmul_precision): no tensor-core product")
    elif t.dtype not in DTYPES:
        raise NoEmulation(f"no tensor-core product of {t.dtype}")
    return array(t)


def _rounded(x: NDArray[Any], s: Settings, order: Order | str) -> NDArray[Any]:
    """float32 operands as a library rounds them to tf32; fused multiply-adds take them as they are."""
    fused = isinstance(order, Order) and order.fused
    return x if x.dtype != np.float32 or s.tf32_rounding == "none" or fused else convert(x, "tf32", s.tf32_rounding)


def product(
    a: NDArray[Any], b: NDArray[Any], s: Settings, out: torch.dtype, *, fast_accum: bool = True, bias: bool = False
) -> NDArray[Any]:
    """a (..., M, K) @ b (..., K, N) from zero with a mode's bits, in the accumulator's type.

    out: the dtype a library would round to.  fast_accum: False promotes fp8 sums every 128 elements of K.  bias: a
    vector will be added to each row, for which libraries have other kernels.
    """
    more: dict[str, Any] = {"arch": s.arch, "instruction": s.instruction, "threads": s.threads}
    start = perf_counter()
    try:
        order = _order(a, b, s, out, (fast_accum, bias), more)
        a, b = _rounded(a, s, order), _rounded(b, s, order)
        planned = plan(a, b, order=order, **more)
        d = matmul(a, b, order=order, **more)
    except UnsupportedInstructionError as error:
        raise NoEmulation(str(error)) from None
    s.recorder.product(planned.shape, planned.instruction, planned.order, perf_counter() - start)
    return d


def _order(
    a: NDArray[Any], b: NDArray[Any], s: Settings, out: torch.dtype, kind: tuple[bool, bool], more: dict[str, Any]
) -> Order | str:
    """The order of summation of this product; kind: (fast_accum, bias)."""
    fast_accum, bias = kind
    if isinstance(s.order, Library):
        layout = "".join("t" if x.strides[-2] < x.strides[-1] else "n" for x in (a, b))
        (m, k), n = a.shape[-2:], b.shape[-1]
        batch = prod(a.shape[:-2]) if a.ndim > 2 else 0
        library = replace(s.order, fast_accum=fast_accum, tf32=a.dtype != np.float32 or tf32_allowed())
        whole = _line(a, -2), _line(b, -1)
        found = library.order(
            *whole, k, a=a.dtype, b=b.dtype, out=as_format(out), layout=layout, bias=bias, batch=batch
        )
        if whole == (m, n):
            return found
        shape = f"{whole[0]} x {whole[1]} x {k} {layout}"
        text = f"guess: as for {shape}, since lines of operands are padded to whole 16 bytes"
        warn(f"{text}; {found.name!r} is used, its bits may differ", GuessedOrderWarning)
        return replace(found, evidence=text)
    if s.order is not None:
        return s.order
    promoted = not fast_accum and plan(a, b, **more).model.fraction == PROMOTED
    name = "promote128" if promoted else "seq"
    if not s.unrecorded:
        return name
    warn(f"{s.unrecorded}; {name!r} is used, its bits may differ", GuessedOrderWarning)
    return replace(order_row(name), evidence=s.unrecorded)


def _line(x: NDArray[Any], axis: int) -> int:
    """How long an axis of a matrix is; whole 16 bytes where it is an axis of lines that are padded to them.

    TorchInductor pads lines of large tensors, and libraries then take the kernels of aligned operands.
    """
    size, octet, apart = x.shape[axis], 16 // x.itemsize, x.strides[-3 - axis] // x.itemsize
    padded = x.strides[axis] == x.itemsize and apart > size and apart % octet == 0
    return int(-(-size // octet) * octet) if padded else int(size)


@in_default_float_mode
def epilogue(d: NDArray[Any], c: NDArray[Any] | None, alpha: float = 1, beta: float = 1) -> NDArray[Any]:
    """fma(alpha, d, beta * c) in d's type, as recorded cuBLAS results show; beta = 0 does not read c."""
    number = d.dtype.type
    with np.errstate(all="ignore"):
        if c is None or beta == 0:
            return d if alpha == 1 else np.multiply(d, number(alpha))
        addend: NDArray[Any] = c.astype(d.dtype, copy=False)
        addend = addend if beta == 1 else number(beta) * addend
        if alpha == 1:
            total: NDArray[Any] = np.add(d, addend)
            return total
        return fma32(number(alpha), d, addend) if d.dtype == np.float32 else _fma64(number(alpha), d, addend)


def _fma64(x: np.float64, y: NDArray[np.float64], z: NDArray[np.float64]) -> NDArray[np.float64]:
    """x * y + z rounded once: a product of one element of K is an IEEE fma."""
    start = np.broadcast_to(z, y.shape).reshape(1, -1)
    total: NDArray[np.float64] = matmul(np.full((1, 1), x), y.reshape(1, -1), start).reshape(y.shape)
    return total
