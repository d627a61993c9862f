"""Which kernel cuDNN takes for a convolution, and in which order that kernel sums.

`ROWS` are of 180 convolutions and gradients recorded on an H200 (cuDNN 9.19; bfloat16 and float16; 15 sizes, channels
first and last): the profiler named their kernels, and operands that cancel showed the order.  Of a size that was not
recorded the kernel is a guess: `cudnn_choices` was fitted to answers of cuDNN's own heuristic, and `CHOSEN` is how each
kind of kernel sums.

Kernels of tensor cores take channels in tiles, and a tile at every position of the filter before the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import NamedTuple

from nbtc.errors import GuessedOrderWarning, warn
from nbtc.gemm.orders import Order
from nbtc.gemm.orders import order as order_row
from nbtc.torch.cudnn_choices import chosen


class Way(NamedTuple):
    """How a kernel sums.

    kind: "tiles" (tensor cores: `tile` channels, filter positions ascending, or in the order of the output's `window`),
    "end to end" (tensor cores without shared memory: positions with all their channels), "flat" (those in the order of
    the widest loads), "chain" (fused multiply-adds in float32, `over` = "crs" or "rsc": c channels, r and s filter
    positions, the last one fastest; over "taps" each position's sum is added to the total), "lanes" (each of 32 lanes
    one such chain, added as a tree), "warps" (so does each of eight warps for its items, and the warps' sums are a
    tree), "tiled" (`float_chains.tiled`), "images" (a product for each image, added in order).
    alone: each position begins a step of its own even where channels fill half of one.  unknown: the kernel is known by
    name, its order is not.
    """

    kernel: str
    kind: str = "tiles"
    tile: int = 64
    window: bool = False
    over: str = ""
    alone: bool = False
    unknown: bool = False


class Case(NamedTuple):
    """A convolution in one to three dimensions, with one stride, padding and dilation on all axes.

    what: "forward", or "input" and "weight" for gradients; a transposed convolution is the gradient "input" of one.
    last: channels last.  format: "bf16", "f16".  channels, outputs: of all groups.  sizes: of the input's axes.
    """

    what: str
    last: bool
    format: str
    items: int
    channels: int
    outputs: int
    sizes: tuple[int, ...]
    filter: tuple[int, ...]
    stride: int
    padding: int
    dilation: int = 1
    groups: int = 1

    @property
    def size(self) -> int:
        return self.sizes[-1]

    @property
    def kernel(self) -> int:
        return self.filter[-1]

    @property
    def rank(self) -> int:
        return len(self.sizes)

    @property
    def half(self) -> bool:
        return self.format == "f16"

    @property
    def taps(self) -> int:
        """Positions of the filter."""
        return prod(self.filter)

    @property
    def depthwise(self) -> bool:
        return self.groups == self.channels > 1

    @property
    def left(self) -> int:
        """Elements of a filter: of channels of a group, at every position."""
        return self.channels // self.groups * self.taps

    @property
    def right(self) -> int:
        """The same of outputs."""
        return self.outputs // self.groups * self.taps

    @property
    def positions(self) -> int:
        """Positions of the output, in all items."""
        ends = (n + 2 * self.padding - self.dilation * (k - 1) for n, k in zip(self.sizes, self.filter, strict=True))
        return self.items * prod((n - 1) // self.stride + 1 for n in ends)

    @property
    def recorded(self) -> bool:
        """Whether it is one of those of `ROWS`."""
        plain = len(self.sizes) == 2 and len({*self.sizes}) == len({*self.filter}) == self.dilation == self.groups == 1
        numbers = self.items, self.channels, self.outputs, self.size, self.kernel, self.stride, self.padding
        return plain and numbers in SIZES


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
            Way("xmma_fprop_implicit_gemm_indexed_wo_smem", "flat"),
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
            Way("wgrad2d_shmem_tiling", "tiled"),
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


# What the kinds of kernels are that `cudnn_choices` names.  Of 10,018 recorded results 93 % have an engine whose
# kernels have one order each (golden/libraries/convolution_sizes.json.xz has some); "taps" is right for 84 of 97.  Not
# known are divided sums, Winograd's algorithm, and gradients of weights by slices of the positions.
CHOSEN: dict[str, dict[str, Way]] = {
    "forward": {
        "t16": Way("an fprop of tensor cores, 16 channels", tile=16, alone=True),
        "t32": Way("an fprop of tensor cores, 32 channels", tile=32, alone=True),
        "t64": Way("an fprop of tensor cores, 64 channels", alone=True),
        "gemm": Way("a product of matrices", alone=True),
        "flat": Way("xmma_fprop_implicit_gemm_indexed_wo_smem", "flat"),
        "plain": Way("xmma_fprop_implicit_gemm_indexed_wo_smem, narrow loads", "end to end"),
        "crs": Way("implicit_convolve_sgemm", "chain", over="crs"),
        "rsc": Way("convolve_common_engine_float_NHWC", "chain", over="rsc"),
        "winograd": Way("winograd_nonfused", unknown=True),
    },
    "input": {
        "t16": Way("a dgrad of tensor cores, 16 channels", tile=16, alone=True),
        "t32": Way("a dgrad of tensor cores, 32 channels", tile=32, alone=True),
        "t64": Way("a dgrad of tensor cores, 64 channels", alone=True),
        "t32w": Way("sm90_xmma_dgrad_implicit_gemm, 32 channels", tile=32, window=True, alone=True),
        "t64w": Way("sm90_xmma_dgrad_implicit_gemm", window=True, alone=True),
        "gemm": Way("a product of matrices", alone=True),
        "crs": Way("dgrad2d_grouped_direct_kernel", "chain", over="crs"),
        "taps": Way("dgrad2d_alg1_1", "chain", over="taps"),
        "winograd": Way("winograd_nonfused", unknown=True),
    },
    "weight": {
        "tc": OTHER,
        "sliced": Way("a wgrad without shared memory", unknown=True),
        "splitk": Way("a wgrad that divides its sum", "images", unknown=True),
        "lanes": Way("wgrad2d_grouped_direct_kernel", "lanes"),
        "pairs": Way("wgrad2d_shmem_tiling", "tiled"),
        "pairs16": Way("wgrad2d_shmem_tiling", "tiled", unknown=True),
        "lines": Way("wgrad2d_shmem_tiling", "tiled", unknown=True),
        "winograd": Way("winograd_nonfused", unknown=True),
    },
}  # fmt: skip
DEPTHWISE = {  # PyTorch's own kernels
    "forward": Way("conv_depthwise2d", "chain", over="crs"),
    "input": Way("conv_depthwise2d_backward", "chain", over="crs"),
    "weight": Way("conv_depthwise2d_grad_weight", "warps"),
}
IMAGES = Way("cuBLAS and reduce_wgrad_nchw_helper", "images")


def _likely(case: Case) -> Way:
    """Of a size that was not recorded."""
    if case.depthwise:
        return DEPTHWISE[case.what]
    kind = chosen(case.what, case)
    if case.what == "weight" and kind == "gemm":
        return OTHER if case.last else IMAGES
    return CHOSEN[case.what].get(kind) or CHOSEN[case.what].get("t64", OTHER)


def way(case: Case | None, what: str) -> tuple[Way, str]:
    """How a convolution is summed, and the evidence for it; case: None where it is of no kind that was recorded.

    >>> way(Case("forward", False, "bf16", 4, 8, 16, (16, 16), (3, 3), 1, 1), "forward")[0].kernel
    'implicit_convolve_sgemm'
    """
    if case is None:
        return OTHER, _guessed(f"no such {what} convolution was recorded")
    found = next((row for row, fits in ROWS[case.what] if fits(case)), OTHER) if case.recorded else _likely(case)
    if found.unknown:
        return found, _guessed(f"the order of cuDNN's {found.kernel} is not known")
    if case.recorded:
        return found, f"recorded: cuDNN on H200, {found.kernel}"
    return found, _guessed(f"as {found.kernel}, which cuDNN most likely takes")


def _guessed(why: str) -> str:
    warn(f"guess: {why}; a convolution's bits may differ", GuessedOrderWarning)
    return f"guess: {why}"


def chain(evidence: str, name: str = "seq") -> Order:
    """An order of a convolution's products."""
    return replace(order_row(name), evidence=evidence)
