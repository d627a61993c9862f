"""The fast products of the examples on a GPU, beside PyTorch's: `python scripts/kernels_gpu.py [SIZES]`.

First the bits of small products against nbtc on the CPU, then TFLOP/s of square ones (4096 and 8192 by default) of f16,
bf16 and e4m3 with float32 sums, the median of launches that take turns with PyTorch's.  Needs torch and a Hopper GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise, product
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

import nbtc
from nbtc.examples.kernels import hopper, multistage

SMALL = 512, 1024, 640  # m, n, k: several tiles of each, and more than the stages
ROUNDS, LAUNCHES, WARM = 12, 5, 3  # turns of all products, launches of each in a turn, before the first
BUSY, AHEAD = 8192, 4  # of what comes before a turn, some 6 ms: six launches of Python's take 2


def on_hopper(a: Any, b: Any, d: Any) -> None:
    """wgmma, tensor maps."""
    hopper.launch(a, b, d)


def with_mma(a: Any, b: Any, d: Any) -> None:
    """mma.sync, asynchronous copies."""
    multistage.launch(a, b, d.view(torch.int32))


class ComparedProducts(NamedTuple):
    """Elements of a and b, and of d; products by name, each with its instruction; what PyTorch multiplies them with."""

    name: str
    operands: Any
    result: Any
    products: dict[str, tuple[Callable[[Any, Any, Any], None], str]]
    torch: Callable[[Any, Any, Any], Any]


def matmul(a: Any, b: Any, d: Any) -> Any:
    """PyTorch's product, cuBLAS'."""
    return torch.matmul(a, b.T, out=d)


def scaled_mm(a: Any, b: Any, d: Any) -> Any:
    """That of e4m3, all scales 1; sums stay in the fp8 unit's accumulators, as they do in nbtc's."""
    one = _one()
    return torch._scaled_mm(a, b.T, scale_a=one, scale_b=one, out_dtype=d.dtype, use_fast_accum=True, out=d)


WGMMA = {"wgmma, TMA": (on_hopper, "wgmma")}
ELEMENTS = (
    ComparedProducts("f16", torch.float16, torch.float16, WGMMA | {"mma.sync": (with_mma, multistage.FORM)}, matmul),
    ComparedProducts("bf16", torch.bfloat16, torch.bfloat16, WGMMA, matmul),
    ComparedProducts("e4m3", torch.float8_e4m3fn, torch.float16, WGMMA, scaled_mm),
)


@cache
def _one() -> Any:
    return torch.ones((), device="cuda")


@cache
def _busy() -> Any:
    return torch.zeros(BUSY, BUSY, dtype=torch.float16, device="cuda")


def launches(run: Callable[[], Any]) -> list[float]:
    """Milliseconds of a turn's launches by events of the GPU, which has other work until all are in line.

    A product of 4096^3 takes as long as Python takes to launch it: an idle GPU would measure that.
    """
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
    for _ in range(AHEAD):
        torch.matmul(_busy(), _busy())
    run()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [x.elapsed_time(y) for x, y in pairwise(events)]


def milliseconds(runs: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """The median of each, measured in turns, of which another one is first each time.

    Products of 8192^3 draw all the power that a GPU may have, and its clock falls: of products that are measured one
    after the other, the first has the best clock.
    """
    for run in runs.values():
        for _ in range(WARM):
            run()
    names, found = list(runs), {name: list[float]() for name in runs}
    for i in range(ROUNDS):
        first = i % len(names)
        for name in names[first:] + names[:first]:
            found[name] += launches(runs[name])
    return {name: median(times) for name, times in found.items()}


def in_numpy(x: Any) -> NDArray[Any]:
    """A tensor of the GPU in the CPU's memory, its bits in unsigned integers."""
    bits = {1: (torch.uint8, np.uint8), 2: (torch.int16, np.uint16)}[x.element_size()]
    return x.cpu().view(bits[0]).numpy().view(bits[1])


def compare(elements: ComparedProducts) -> int:
    """How many elements of small products differ from nbtc's on the CPU."""
    m, n, k = SMALL
    torch.manual_seed(1)
    a, b = (torch.randn(rows, k, device="cuda").to(elements.operands) for rows in (m, n))
    fmt, to, wrong = nbtc.as_format(elements.name), nbtc.as_format(elements.result), 0
    x, y = (in_numpy(tensor).view(fmt.dtype) for tensor in (a, b))
    for name, (run, instruction) in elements.products.items():
        d = torch.full((m, n), float("nan"), dtype=elements.result, device="cuda")
        run(a, b, d)
        want = nbtc.matmul(x, y.T, instruction=instruction).astype(to.dtype)
        differing = int((in_numpy(d) != want.view(np.uint16)).sum())
        print(
            f"{elements.name:5}{name:12} {m}x{n}x{k}: {differing} of {want.size} elements differ from nbtc on the CPU"
        )
        wrong += differing
    return wrong


def measure(elements: ComparedProducts, size: int) -> None:
    """Print a line for each product of square matrices."""
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device="cuda").to(elements.operands) for _ in range(2))
    d, other = (torch.empty(size, size, dtype=elements.result, device="cuda") for _ in range(2))
    operations = 2e-9 * size**3
    runs: dict[str, Callable[[], Any]] = {name: partial(run, a, b, d) for name, (run, _) in elements.products.items()}
    times = milliseconds({"PyTorch": partial(elements.torch, a, b, other), **runs})
    best = times.pop("PyTorch")
    print(f"{elements.name}, {size}^3, TFLOP/s: PyTorch {operations / best:.0f}")
    for name, time in times.items():
        runs[name]()
        differing = int((d != other).sum())
        print(
            f"  {name:12} {operations / time:.0f}, {best / time:.2f} of it, {differing} elements differ from it",
            flush=True,
        )


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    failed = sum(map(compare, ELEMENTS))
    for elements, size in product(ELEMENTS, map(int, sys.argv[1:] or ("4096", "8192"))):
        measure(elements, size)
    sys.exit(failed > 0)
