"""The fast products of the examples on a GPU, beside torch.matmul: `python scripts/kernels_gpu.py [SIZES]`.

First the bits of a small product against nbtc on the CPU, then TFLOP/s of square ones (4096 and 8192 by default), f16
with float32 sums, the median of several launches, torch in the same run.  Needs torch and a Hopper GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
import torch

import nbtc
from nbtc.examples.kernels import hopper, multistage

SMALL = 512, 1024, 448  # m, n, k: several tiles of each, and more than the stages
ROUNDS, WARM = 30, 3
BUSY, AHEAD = 8192, 10  # of what comes before, some 15 ms: thirty launches of Python's take 6


def on_hopper(a: Any, b: Any, d: Any) -> None:
    """wgmma, tensor maps."""
    hopper.launch(a, b, d)


def with_mma(a: Any, b: Any, d: Any) -> None:
    """mma.sync, asynchronous copies."""
    multistage.launch(a, b, d.view(torch.int32))


PRODUCTS: dict[str, tuple[Callable[[Any, Any, Any], None], str]] = {
    "wgmma, TMA": (on_hopper, "wgmma"),
    "mma.sync": (with_mma, multistage.FORM),
}


@cache
def _busy() -> Any:
    return torch.zeros(BUSY, BUSY, dtype=torch.float16, device="cuda")


def milliseconds(run: Callable[[], Any]) -> float:
    """The median of some runs by events of the GPU, which has other work until all are in line.

    A product of 4096^3 takes as long as Python takes to launch it: an idle GPU would measure that.
    """
    for _ in range(WARM):
        run()
    events: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(ROUNDS + 1)]
    for _ in range(AHEAD):
        torch.matmul(_busy(), _busy())
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return sorted(x.elapsed_time(y) for x, y in pairwise(events))[ROUNDS // 2]


def compare() -> int:
    """How many elements of a small product differ from nbtc's on the CPU."""
    m, n, k = SMALL
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((m, k)).astype(np.float16), rng.standard_normal((n, k)).astype(np.float16)
    wrong = 0
    for name, (run, instruction) in PRODUCTS.items():
        d = torch.full((m, n), float("nan"), dtype=torch.float16, device="cuda")
        run(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda(), d)
        want = nbtc.matmul(a, b.T, instruction=instruction).astype(np.float16)
        differing = int((d.cpu().numpy().view(np.uint16) != want.view(np.uint16)).sum())
        print(f"{name:12} {m}x{n}x{k}: {differing} of {want.size} elements differ from nbtc on the CPU", flush=True)
        wrong += differing
    return wrong


def measure(size: int) -> None:
    """Print a line for each product of square matrices."""
    torch.manual_seed(0)
    a, b = (torch.randn(size, size, device="cuda").half() for _ in range(2))
    d, other = torch.empty_like(a), torch.empty_like(a)
    operations = 2e-9 * size**3
    print(f"{size}^3, TFLOP/s: torch.matmul {operations / milliseconds(lambda: torch.matmul(a, b.T, out=other)):.0f}")
    for name, (run, _) in PRODUCTS.items():
        rate = operations / milliseconds(lambda run=run: run(a, b, d))  # type: ignore[misc]
        print(f"  {name:12} {rate:.0f}, {int((d != other).sum())} elements differ from torch.matmul", flush=True)


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    failed = compare()
    for size in map(int, sys.argv[1:] or ("4096", "8192")):
        measure(size)
    sys.exit(failed > 0)
