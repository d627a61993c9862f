"""The fast products of the examples on a GPU, beside torch.matmul: `python scripts/kernels_gpu.py [SIZES]`.

First the bits of a small product against nbtc on the CPU, then TFLOP/s of square ones (4096 and 8192 by default), f16
with float32 sums, the median of launches that take turns with torch's.  Needs torch and a Hopper GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np
import torch

import nbtc
from nbtc.examples.kernels import hopper, multistage

SMALL = 512, 1024, 448  # m, n, k: several tiles of each, and more than the stages
ROUNDS, LAUNCHES, WARM = 12, 5, 3  # turns of all products, launches of each in a turn, before the first
BUSY, AHEAD = 8192, 4  # of what comes before a turn, some 6 ms: six launches of Python's take 2


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
    runs: dict[str, Callable[[], Any]] = {name: partial(run, a, b, d) for name, (run, _) in PRODUCTS.items()}
    times = milliseconds({"torch.matmul": lambda: torch.matmul(a, b.T, out=other), **runs})
    best = times.pop("torch.matmul")
    print(f"{size}^3, TFLOP/s: torch.matmul {operations / best:.0f}")
    for name, time in times.items():
        runs[name]()
        differing = int((d != other).sum())
        print(
            f"  {name:12} {operations / time:.0f}, {best / time:.2f} of it, {differing} elements differ from it",
            flush=True,
        )


if __name__ == "__main__":
    print(torch.cuda.get_device_name())
    failed = compare()
    for size in map(int, sys.argv[1:] or ("4096", "8192")):
        measure(size)
    sys.exit(failed > 0)
