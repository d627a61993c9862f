"""Warpgroup matrices: descriptors, tiles in shared memory, and the order in which asynchronous products become visible.

The product itself is `nbtc.ptx.wgmma`.  `Sequence` runs a program of wgmma calls and reports every place where it
breaks the ordering rules.  (PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc import show_smem
from nbtc.fragments import smem as _smem
from nbtc.fragments.smem import smem_to_tile
from nbtc.show_smem import SmemDrawing


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
        return show_smem.explain(self, shape, format, major)


def tile_to_smem(matrix: ArrayLike, format: object, major: str = "k", swizzle: str = "none") -> tuple[NDArray[np.uint8], Descriptor]:
    data, d = _smem.tile_to_smem(matrix, format, major, swizzle)
    return data, Descriptor(d.start, d.leading, d.stride, d.base_offset, d.swizzle)


tile_to_smem.__doc__ = _smem.tile_to_smem.__doc__
