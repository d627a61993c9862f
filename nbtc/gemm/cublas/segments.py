"""Which tiles cuBLAS' tf32 kernels for Hopper divide over K, which they decide when they start (segment-K).

Of a result with fewer tiles than there may be blocks of threads every tile is divided, of others the tiles of the last
wave.  Found by 5,507 products on H100s at the shapes of real models, whose operands (a large number, minus it, and ones
elsewhere) show the order of every tile's sum; 4,300 products that an H200 had computed before agree.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from nbtc.gemm.tails import visits

UNIT = 32  # elements of K that parts are whole numbers of

# Blocks of threads at once, by the size of clusters
BLOCKS = {1: 132, 2: 132, 3: 117, 4: 120, 5: 110, 6: 102, 7: 105, 8: 120, 15: 105, 16: 112}


class Units(NamedTuple):
    """Units of K: up to `no` a number of parts was never seen, from `yes` on always; between them it is not known."""

    no: int
    yes: int


# How many parts a tile may have, by its elements: 2, 3, 4, up to 8, more (then at least four units each)
NEVER = Units(0, 1 << 30)
LAST_WAVE = {
    4096: (Units(0, 112), NEVER, NEVER, NEVER, NEVER),
    8192: (Units(21, 24), Units(41, 48), Units(44, 46), Units(64, 96), Units(64, 96)),
    16384: (Units(19, 20), Units(40, 45), Units(38, 40), Units(58, 60), Units(80, 88)),
    32768: (Units(19, 20), Units(36, 38), Units(32, 36), Units(48, 56), Units(65, 73)),
}
ONE_WAVE = {
    4096: (Units(36, 112), Units(176, 224), NEVER, NEVER, NEVER),
    8192: (Units(44, 48), Units(120, 144), Units(0, 200), Units(280, 1004), Units(280, 1004)),
    16384: (Units(0, 188), Units(0, 180), Units(0, 224), Units(0, 512), Units(0, 1004)),
    32768: (Units(0, 120), Units(0, 160), Units(0, 224), Units(0, 512), Units(0, 1572)),
}
EIGHT = 8  # tiles down a result up to which bands are rows of clusters
WIDEST = 16  # tiles across a band


class DividingKernel(NamedTuple):
    """Rows of a tile and of a cluster are along N for layout nn, else along M.  swizzle: bands of several clusters."""

    tile: tuple[int, int]
    cluster: tuple[int, int]
    swizzle: bool

    @classmethod
    def of(cls, chain: str) -> DividingKernel | None:
        """
        >>> DividingKernel.of("auto:128x256:2x1:1")
        DividingKernel(tile=(128, 256), cluster=(2, 1), swizzle=True)
        """
        found = re.fullmatch(r"auto:(\d+)x(\d+):(\d+)x(\d+):(\d)", chain)
        if found is None:
            return None
        a, b, c, d, swizzle = map(int, found.groups())
        return cls((a, b), (c, d), bool(swizzle))


def segments(chain: str, layout: str, size: tuple[int, int, int, int]) -> tuple[str, bool]:
    """The order of a product (batch, M, N, K) and whether it is sure.

    >>> segments("auto:128x256:2x1:0", "nn", (0, 384, 4096, 32000))
    ('segment2x32', True)
    >>> segments("auto:64x128:4x1:0", "nt", (0, 768, 3072, 3072))
    ('segment2x32:last48of64x128by4x1rows1', True)
    """
    kernel = DividingKernel.of(chain)
    if kernel is None or kernel.cluster[0] * kernel.cluster[1] not in BLOCKS:
        return "seq", False
    _, m, n, k = size
    along, across = (n, m) if layout == "nn" else (m, n)  # the tile's rows and columns
    extents = [tile * many for tile, many in zip(kernel.tile, kernel.cluster, strict=True)]
    clusters = [-(-along // extents[0]), -(-across // extents[1])]
    together = kernel.cluster[0] * kernel.cluster[1]
    blocks = BLOCKS[together]
    waves, left = divmod(clusters[0] * clusters[1] * together, blocks)
    most = blocks // left if left else 1
    if most < 2:
        return "seq", True
    parts, sure = _parts(most, -(-k // UNIT), (LAST_WAVE if waves else ONE_WAVE)[kernel.tile[0] * kernel.tile[1]])
    if parts < 2 or not waves:
        return (f"segment{parts}x{UNIT}" if parts > 1 else "seq"), sure
    axis, band = _path(kernel, layout, clusters)
    (tall, broad), (high, wide) = kernel.tile, kernel.cluster
    if layout == "nn":
        tall, broad, high, wide = broad, tall, wide, high
        axis = {"rows": "columns", "columns": "rows"}[axis]
    where = f"last{left}of{tall}x{broad}by{high}x{wide}{axis}{band}"
    return f"segment{parts}x{UNIT}:{where}", sure and not kernel.swizzle


def _parts(most: int, units: int, ranges: tuple[Units, ...]) -> tuple[int, bool]:
    """Into how many parts a tile is divided, at most `most`, and whether that is sure."""
    two, three, four, eight, more = ranges
    limits = [(2, two)] if most == 2 else [(3, three), (2, two)] if most == 3 else [(4, four), (2, two)]
    if most > 4:
        limits = [(min(most, 8), eight), *limits]
    if most > 8:
        limits = [(min(most, units // 4), more), *limits]
    sure = True
    for parts, limit in limits:
        if units >= limit.yes:
            return -(-units // -(-units // parts)), sure  # no more parts than make the longest one shorter
        sure = sure and units <= limit.no
    return 1, sure


def _path(kernel: DividingKernel, layout: str, clusters: list[int]) -> tuple[str, int]:
    """Along which axis of tiles the bands are in which a kernel takes them, and of how many clusters: those by which
    its waves read least.
    """
    (high, wide), axes = kernel.cluster, ["rows", "columns"]
    if high > wide or clusters[0] * high <= EIGHT or (layout == "nn" and not kernel.swizzle):
        axes = axes[:1]
    elif wide > high:
        axes = axes[1:]
    across = {"rows": high, "columns": wide}
    widths = (16, 8, 4, 2, 1) if kernel.swizzle else (1,)
    ways = [(axis, band) for axis in axes for band in widths if band == 1 or band * across[axis] <= WIDEST]
    return min(ways, key=lambda way: _read(kernel, clusters, *way)) if len(ways) > 1 else ways[0]


def _read(kernel: DividingKernel, clusters: list[int], axis: str, band: int) -> int:
    """Rows and columns of operands that all waves read."""
    minor, major = clusters if axis == "rows" else clusters[::-1]
    order = visits(minor, major, band, False)
    order = order if axis == "rows" else order[:, ::-1]
    wave = BLOCKS[kernel.cluster[0] * kernel.cluster[1]] // (kernel.cluster[0] * kernel.cluster[1])
    sizes = [tile * many for tile, many in zip(kernel.tile, kernel.cluster, strict=True)]
    waves, total = np.arange(len(order)) // wave, 0
    for place, (count, size) in enumerate(zip(clusters, sizes, strict=True)):
        seen = np.zeros((len(order) // wave + 1) * count, bool)
        seen[waves * count + order[:, place]] = True
        total += int(seen.sum()) * size
    return total
