"""Texture and surface objects: one row of 64-bit words each, in a table that compiled programs read.

(CUDA Driver API, "Texture Object Management", "Surface Object Management".)  An object's handle is the number of its
row: nothing that a program passes as a handle is followed as an address.  NVIDIA's own descriptors are secret.
"""

from __future__ import annotations

import threading
from collections import deque
from enum import IntEnum, IntFlag
from typing import NamedTuple

import numpy as np

MOST = 1 << 16  # objects at once: 12 MiB of addresses, of which rows in use take memory
(
    KIND, BASE, WIDTH, HEIGHT, DEPTH, LAYERS, PITCH, PLANE, FORMAT, CHANNELS, FLAGS, MODE, BORDER,
) = (*range(12), 14)  # fmt: skip
WORDS = 24  # of a row; MODE has three, BORDER four


class ObjectKind(IntEnum):
    """What a row is."""

    NONE = 0
    TEXTURE = 1
    SURFACE = 2


class Flag(IntFlag):
    """How a texture is read."""

    LINEAR = 1  # filtered
    NORMALIZED = 2  # coordinates from 0 to 1
    INTEGER = 4  # elements as they are, not as fractions of 1
    CUBE = 16
    MEMORY = 8  # linear memory: one coordinate, a whole number


class Mode(IntEnum):
    """What coordinates outside the texture mean (CUaddress_mode)."""

    WRAP = 0
    CLAMP = 1
    MIRROR = 2
    BORDER = 3


class TexelFormat(IntEnum):
    """The formats of channels (CUarray_format)."""

    U8 = 1
    U16 = 2
    U32 = 3
    S8 = 8
    S16 = 9
    S32 = 10
    F16 = 16
    F32 = 32

    @property
    def bytes(self) -> int:
        """Of a channel."""
        return (
            1
            if self in (TexelFormat.U8, TexelFormat.S8)
            else 2
            if self in (TexelFormat.U16, TexelFormat.S16, TexelFormat.F16)
            else 4
        )


class TexelImage(NamedTuple):
    """Texels in memory: the address of the first, extents, distances in bytes, what a texel is.

    height and depth are 0 where there is no such dimension; layers is 0 but of layered images and cubes.
    """

    base: int
    width: int
    height: int
    depth: int
    layers: int
    pitch: int
    plane: int
    format: TexelFormat
    channels: int

    @property
    def texel(self) -> int:
        """Bytes of a texel."""
        return self.channels * self.format.bytes


class Sampler(NamedTuple):
    """How a texture is read; border: the colour around it."""

    flags: Flag = Flag(0)
    modes: tuple[Mode, Mode, Mode] = (Mode.CLAMP,) * 3
    border: tuple[float, float, float, float] = (0.0,) * 4


class Objects:
    """All objects of the process."""

    def __init__(self, count: int) -> None:
        self.rows = np.zeros((count, WORDS), np.int64)
        self._lock = threading.Lock()
        self._free = deque(range(1, count))  # 0 is no handle; what is freed is given out again last

    @property
    def address(self) -> int:
        """Where the table lies."""
        return int(self.rows.ctypes.data)

    def add(self, kind: ObjectKind, image: TexelImage, sampler: Sampler = Sampler()) -> int:  # noqa: B008
        """The handle of a new object, 0 where the table is full."""
        with self._lock:
            if not self._free:
                return 0
            handle = self._free.popleft()
        row = self.rows[handle]
        row[BASE:FLAGS] = image
        row[FLAGS] = sampler.flags
        row[MODE : MODE + 3] = sampler.modes
        row[BORDER : BORDER + 4] = np.array(sampler.border, np.float32).view(np.uint32)
        row[KIND] = kind
        return handle

    def remove(self, handle: int, kind: ObjectKind) -> bool:
        """End an object; whether there was one of this kind."""
        with self._lock:
            if not 0 < handle < len(self.rows) or self.rows[handle, KIND] != kind:
                return False
            self.rows[handle] = 0
            self._free.append(handle)
        return True


objects = Objects(MOST)
