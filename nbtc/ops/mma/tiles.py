"""wmma products of several m16n8 tiles: the registers of each tile out of the fragments, and those of D back."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.kernels.warps.warp import WarpLoop
from nbtc.ops.images import Words

Tile = tuple[slice, slice, slice]  # registers of A, B and C (D)


@cache
def _mover(count: int) -> Callable[..., None]:
    """Compiled copy of `count` registers a lane: so many a lane on either side, and where those begin."""

    @jit
    def move(source, size, first, target, to_size, to, lanes):
        read, write = np.uint64(first), np.uint64(to)  # an unsigned index needs no look at its sign
        for _ in range(lanes):
            for n in range(np.uint64(count)):
                target[write + n] = source[read + n]
            read += np.uint64(size)
            write += np.uint64(to_size)

    return move  # type: ignore[no-any-return]


def _part(image: Words, way: slice) -> Words:
    """Some registers of (warps, 32, registers), flat."""
    warps, lanes, size = image.shape
    count = way.stop - way.start
    if count == size:
        return image.reshape(-1)
    out = np.empty(warps * lanes * count, np.uint32)
    _mover(count)(image.reshape(-1), size, way.start, out, count, 0, warps * lanes)
    return out


def run(
    loop: WarpLoop,
    numbers: tuple[int, int],
    tiles: tuple[Tile, ...],
    images: list[Words],
    out: Words,
    needs_fallback: NDArray[np.uint8],
) -> bool:
    """D of len(out) warps; images: (warps, or 1 that all share, 32, registers) of A, B and C.

    needs_fallback: which warps are not to be used; returns whether there are any.
    """
    warps, _, size = out.shape
    found, own = np.zeros(warps, np.uint8), np.empty(warps, np.uint8)
    d = np.empty(0, np.uint32)
    for tile in tiles:
        parts = [_part(x, way) for x, way in zip(images, tile, strict=True)]
        steps = [p.size // len(x) if len(x) == warps else 0 for p, x in zip(parts, images, strict=True)]
        way, count = tile[2], tile[2].stop - tile[2].start
        if d.size != 32 * warps * count:
            d = np.empty(32 * warps * count, np.uint32)
        loop((*parts, d), (*steps, 32 * count), 0, warps, numbers, own)
        _mover(count)(d, count, 0, out.reshape(-1), size, way.start, 32 * warps)
        found |= own
    needs_fallback[:] = found
    return bool(found.any())
