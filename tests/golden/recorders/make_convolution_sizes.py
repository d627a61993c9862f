"""Records convolution_sizes.json.xz on a GPU: convolutions of many sizes, which kernels ran, and hashes of the results.

    python tests/golden/recorders/make_convolution_sizes.py OUT.json.xz [COUNT]

The file here holds some of 16,734 results of an H200 and 10,800 of an H100 (PyTorch 2.11, cuDNN 9.19), those of few
multiply-adds.
"""

import hashlib
import json
import lzma
import random
import sys
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

DTYPES = {"f16": torch.float16, "bf16": torch.bfloat16}
CHANNELS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)


def sizes(count: int) -> list[dict[str, Any]]:
    """Arguments of aten.convolution, random ones."""
    rng, found = random.Random(0), []
    while len(found) < count:
        channels, outputs, kernel = rng.choice(CHANNELS), rng.choice(CHANNELS), rng.choice((1, 2, 3, 3, 3, 4, 5, 7))
        rank = rng.choice((1, 2, 2, 2, 2, 3))
        depthwise = rank < 3 and rng.random() < 0.15
        stride, dilation = rng.choice((1, 1, 2)), rng.choice((1, 1, 1, 2))
        found.append(
            {
                "N": rng.choice((1, 2, 3, 4, 8)), "C": channels, "K": channels if depthwise else outputs,
                "spatial": [rng.choice((8, 10, 12, 14, 16, 20, 24, 28, 32))] * rank, "kernel": [kernel] * rank,
                "stride": [stride] * rank, "padding": [dilation * (kernel // 2)] * rank, "dilation": [dilation] * rank,
                "groups": channels if depthwise else 1, "transposed": False,
                "last": rank == 2 and rng.random() < 0.2,
            }
        )  # fmt: skip
    return found


def operands(seed: int, c: dict[str, Any], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Generator]:
    """x, the weight, and what the result's gradient is drawn from next."""
    g = torch.Generator().manual_seed(1000 + seed)
    x = torch.randn(c["N"], c["C"], *c["spatial"], generator=g)
    lead = (c["C"], c["K"] // c["groups"]) if c["transposed"] else (c["K"], c["C"] // c["groups"])
    w = torch.randn(*lead, *c["kernel"], generator=g)
    x, w = x.to(dtype), w.to(dtype)
    if c["last"]:
        x, w = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    return x, w, g


def digest(result: torch.Tensor) -> str:
    """Of a result's bits, channels first."""
    return hashlib.sha256(result.contiguous().view(torch.int16).numpy().tobytes()).hexdigest()[:16]


def recorded(seed: int, c: dict[str, Any], name: str) -> list[list[Any]]:
    """Rows of a convolution and its gradients: seed, size, what, format, kernels, digest."""
    x, w, g = operands(seed, c, DTYPES[name])
    how = c["stride"], c["padding"], c["dilation"], c["transposed"], [0] * len(c["spatial"]), c["groups"]
    a, b = x.cuda(), w.cuda()
    d = torch.randn(torch.ops.aten.convolution(a, b, None, *how).shape, generator=g).to(DTYPES[name])
    d = (d.to(memory_format=torch.channels_last) if c["last"] else d).cuda()
    jobs = {
        "forward": lambda: torch.ops.aten.convolution(a, b, None, *how),
        "input": lambda: torch.ops.aten.convolution_backward(d, a, b, [0], *how, [True, False, False])[0],
        "weight": lambda: torch.ops.aten.convolution_backward(d, a, b, [0], *how, [False, True, False])[1],
    }
    rows = []
    for what, job in jobs.items():
        job()
        torch.cuda.synchronize()
        with profile(activities=[ProfilerActivity.CUDA]) as seen:
            result = job()
            torch.cuda.synchronize()
        kernels = [e.key for e in seen.key_averages() if not e.key.startswith(("cuda", "Mem"))]
        rows.append([seed, c, what, name, kernels, digest(result.detach().cpu())])
    return rows


def main() -> None:
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    rows = [row for seed, c in enumerate(sizes(count)) for name in DTYPES for row in recorded(seed, c, name)]
    with lzma.open(sys.argv[1], "wt", encoding="utf-8") as file:
        json.dump(rows, file)


if __name__ == "__main__":
    main()
