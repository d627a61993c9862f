"""Which kernel cuDNN takes for a convolution, and in which order that kernel sums.

Rows are of 180 convolutions and gradients recorded on an H200 (cuDNN 9.19; bfloat16 and float16; 15 sizes, channels
first and last): the profiler named their kernels, and operands that cancel showed the order.  Of a size that was not
recorded the kernel is a guess: cuDNN's own choice goes by a model of costs.

Kernels of tensor cores take channels in tiles, and a tile at every position of the filter before the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from nbtc.errors import GuessedOrderWarning, warn
from nbtc.gemm.orders import Order
from nbtc.gemm.orders import order as order_row


class Way(NamedTuple):
    """How a kernel sums.

    kind: "tiles" (tensor cores: `tile` channels, filter positions ascending, or in the order of the output's `window`),
    "chain" (fused multiply-adds in float32, `over` = "crs" or "rsc": c channels, r and s filter positions, the last one
    fastest), "lanes" (each of 32 lanes one such chain, added as a tree), "images" (a product for each image, added in
    order).  unknown: the kernel is known by name, its order is not.
    """

    kernel: str
    kind: str = "tiles"
    tile: int = 64
    window: bool = False
    over: str = ""
    unknown: bool = False


class Case(NamedTuple):
    """A convolution in two dimensions with one size on both axes.

    what: "forward", or "input" and "weight" for gradients.  last: channels last.  format: "bf16", "f16".
    """

    what: str
    last: bool
    format: str
    items: int
    channels: int
    outputs: int
    size: int
    kernel: int
    stride: int
    padding: int


SIZES = {  # items, channels, outputs, size, kernel, stride, padding
    (4, 8, 16, 16, 3, 1, 1), (4, 16, 32, 16, 3, 2, 1), (2, 16, 32, 12, 3, 2, 1), (2, 32, 32, 6, 3, 1, 1),
    (2, 16, 32, 12, 1, 2, 0), (2, 32, 32, 8, 3, 1, 1), (2, 32, 96, 4, 1, 1, 0), (2, 32, 32, 4, 1, 1, 0),
    (2, 32, 32, 8, 3, 2, 1), (8, 64, 64, 14, 3, 1, 1), (8, 64, 128, 14, 1, 1, 0), (4, 128, 128, 8, 3, 1, 1),
    (4, 4, 64, 32, 7, 2, 3), (2, 256, 256, 7, 3, 1, 1), (16, 32, 64, 28, 5, 1, 2),
}  # fmt: skip


def _small(c: Case) -> bool:
    return max(c.channels, c.outputs) <= 32


ROWS: dict[str, tuple[tuple[Way, Callable[[Case], bool]], ...]] = {
    "forward": (
        (
            Way("implicit_convolve_sgemm", "chain", over="crs"),
            lambda c: not c.last and (c.channels, c.kernel, c.stride) == (8, 3, 1),
        ),
        (
            Way("convolve_common_engine_float_NHWC", "chain", over="rsc"),
            lambda c: c.last and (c.channels, c.kernel, c.stride) == (8, 3, 1) and c.format == "bf16",
        ),
        (
            Way("xmma_fprop_implicit_gemm_indexed_wo_smem", unknown=True),
            lambda c: c.format == "f16" and _small(c) and (c.channels == 8 or (c.kernel, c.stride) == (1, 2)),
        ),
        (
            Way("winograd_nonfused", unknown=True),
            lambda c: not c.last and _small(c) and (c.kernel, c.stride) == (3, 1) and c.size < 8,
        ),
    ),
    "input": (
        (
            Way("dgrad2d_grouped_direct_kernel", "chain", over="crs"),
            lambda c: not c.last and _small(c) and (c.kernel, c.stride) == (3, 2) and c.format == "bf16",
        ),
        (
            Way("dgrad2d_alg1_1", unknown=True),
            lambda c: not c.last and _small(c) and (c.kernel, c.stride) == (3, 2) and c.format == "f16",
        ),
        (
            Way("sm90_xmma_dgrad_implicit_gemm", window=True),
            lambda c: c.stride == 1 and min(c.channels, c.outputs) >= 64 and (c.channels, c.outputs) != (128, 128),
        ),
        (Way("cutlass_tensorop dgrad 64x64_64x5"), lambda c: c.kernel == 7),
        (Way("a dgrad of 64 channels"), lambda c: (c.kernel, c.stride) == (3, 2) and c.outputs >= 64 and not c.last),
        (Way("sm80 dgrad of 32 channels", tile=32), lambda c: True),
    ),
    "weight": (
        (
            Way("wgrad2d_grouped_direct_kernel", "lanes"),
            lambda c: c.channels <= 8 and not (c.format == "f16" and c.last and c.kernel == 7),
        ),
        (
            Way("wgrad2d_grouped_direct_kernel", "lanes"),
            lambda c: c.kernel == 1 and _small(c) and (c.channels == c.outputs if c.last else c.stride == 2),
        ),
        (
            Way("cuBLAS and reduce_wgrad_nchw_helper", "images"),
            lambda c: not c.last and (c.kernel, c.stride) == (1, 1) and c.channels != c.outputs,
        ),
        (
            # not quite so: recorded operands that cancel differ; those of three convolutional nets do not
            Way("wgrad2d_shmem_tiling", "lanes", unknown=True),
            lambda c: (
                c.kernel == 3
                and max(c.channels, c.outputs) <= (64 if c.stride == 2 else 32)
                and (c.size >= 12 if c.stride == 2 else not c.last and c.size == 8)
            ),
        ),
        (Way("ImplicitGemmMultistage and ReduceSplitK", unknown=True), lambda c: c.kernel == 5),
    ),
}
OTHER = Way("a kernel of tensor cores")


def way(case: Case | None, what: str) -> tuple[Way, str]:
    """How a convolution is summed, and the evidence for it; case: None where it is of no kind that was recorded.

    >>> way(Case("forward", False, "bf16", 4, 8, 16, 16, 3, 1, 1), "forward")[0].kernel
    'implicit_convolve_sgemm'
    """
    if case is None:
        return OTHER, _guessed(f"no such {what} convolution was recorded")
    found = next((row for row, fits in ROWS[what] if fits(case)), OTHER)
    if found.unknown:
        return found, _guessed(f"the order of cuDNN's {found.kernel} is not known")
    if case[3:] in SIZES:
        return found, f"recorded: cuDNN on H200, {found.kernel}"
    return found, _guessed(f"as {found.kernel}, recorded for other sizes")


def _guessed(why: str) -> str:
    warn(f"guess: {why}; a convolution's bits may differ", GuessedOrderWarning)
    return f"guess: {why}"


def chain(evidence: str, name: str = "seq") -> Order:
    """An order of a convolution's products."""
    return replace(order_row(name), evidence=evidence)
