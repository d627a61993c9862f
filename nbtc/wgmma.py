"""Warpgroup matrices: descriptors, tiles in shared memory, and the order in which asynchronous products become visible.

The product itself is `nbtc.ptx.wgmma`.  `Sequence` runs a program of wgmma calls and reports every place where it
breaks the ordering rules.  (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
"""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.check.hazards import Hazard, Registers
from nbtc.check.sequence import Sequence
from nbtc.errors import OptionError, shown, whole_number
from nbtc.fragments import smem_descriptors as _smem
from nbtc.fragments import tiles as _tiles
from nbtc.fragments.tiles import smem_to_tile
from nbtc.show import smem as _drawing
from nbtc.show.smem import SmemDrawing

__all__ = [
    "Descriptor",
    "Hazard",
    "Registers",
    "Sequence",
    "SmemDrawing",
    "commit_group",
    "fence",
    "fence_proxy_async",
    "smem_to_tile",
    "tile_to_smem",
    "wait_group",
]


class Descriptor(_smem.Descriptor):
    __doc__ = _smem.Descriptor.__doc__

    def explain(self, shape: tuple[int, int], format: object, major: str = "k") -> SmemDrawing:
        """A drawing of the tile (MN, K): banks, core matrices, swizzle atoms, strides, the CuTe layout and the fields.

        The result prints as text and shows as SVG in a notebook; `.svg()`, `.layout`, `.fields` and `.notes` hold the
        parts.  Errors as `address`.

        >>> from nbtc.wgmma import Descriptor
        >>> picture = Descriptor(0, 1024, 128).explain((64, 16), "f16")
        >>> picture.layout
        '((8,8),(8,2)):((8,64),(1,512))'
        >>> picture.fields
        (('start', 0, 0), ('LBO', 1024, 64), ('SBO', 128, 8))
        """
        return _drawing.explain(self, shape, format, major)


def tile_to_smem(
    matrix: ArrayLike, format: object, major: str = "k", swizzle: str = "none"
) -> tuple[NDArray[np.uint8], Descriptor]:
    """The documented function of `nbtc.fragments.tiles`, with a descriptor that can explain itself."""
    data, d = _tiles.tile_to_smem(matrix, format, major, swizzle)
    return data, Descriptor(d.start, d.leading, d.stride, d.base_offset, d.swizzle)


tile_to_smem.__doc__ = _tiles.tile_to_smem.__doc__


def _recorded(sequence: object) -> TypeGuard[Sequence]:
    if sequence is not None and not isinstance(sequence, Sequence):
        raise OptionError(
            f"sequence={shown(sequence)} is no wgmma.Sequence: pass the one that the products are issued to"
        )
    return sequence is not None


def fence(sequence: Sequence | None = None) -> None:
    """wgmma.fence.sync.aligned.

    From Python a product is complete when its call returns, so this orders nothing unless a `Sequence` is given, which
    it forwards to; the same holds for the three functions below.

    >>> from nbtc.wgmma import Sequence, fence
    >>> fence(Sequence())
    """
    if _recorded(sequence):
        sequence.fence()


def fence_proxy_async(sequence: Sequence | None = None) -> None:
    """fence.proxy.async: the wgmma after it see the shared-memory writes before it.

    (PTX ISA, "membar, fence": proxies.)

    >>> from nbtc.wgmma import Sequence, fence_proxy_async
    >>> fence_proxy_async(Sequence())
    """
    if _recorded(sequence):
        sequence.fence_proxy_async()


def commit_group(sequence: Sequence | None = None) -> None:
    """wgmma.commit_group.sync.aligned: the products issued so far form a group.

    (PTX ISA, "wgmma.commit_group".)

    >>> from nbtc.wgmma import Sequence, commit_group, wait_group
    >>> products = Sequence()
    >>> commit_group(products)
    >>> wait_group(0, products)
    """
    if _recorded(sequence):
        sequence.commit_group()


def wait_group(n: int, sequence: Sequence | None = None) -> None:
    """wgmma.wait_group.sync.aligned n: at most the n newest groups stay pending.  OptionError for a negative n.

    >>> from nbtc.wgmma import wait_group
    >>> wait_group(0)
    """
    if (whole_number(n) or 0) < 0 or whole_number(n) is None:
        raise OptionError(f"wait_group({shown(n)}): the operand is a number of groups, 0 or more; try wait_group(0)")
    if _recorded(sequence):
        sequence.wait_group(n)
