"""What copies of rows go between."""

from __future__ import annotations

from typing import NamedTuple


class Side(NamedTuple):
    """One side of a copy of rows: where the first begins, bytes from row to row and from plane to plane."""

    first: int
    pitch: int
    plane: int
    device: bool

    def row(self, y: int, z: int) -> int:
        """Where a row begins."""
        return self.first + y * self.pitch + z * self.plane


class Extent(NamedTuple):
    """Bytes of a row, rows of a plane, planes."""

    width: int
    height: int
    depth: int
