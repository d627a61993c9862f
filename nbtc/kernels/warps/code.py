"""What vector code of a warp-level product is compiled for."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import astuple
from typing import Any, ClassVar, Self


class ProductCode(ABC):
    """Base of frozen dataclasses of numbers, one a kind of product.

    kind: a name that tells it from all others.  registers: of sixteen rows of A.
    """

    kind: ClassVar[str]
    registers: int

    @property
    def mode(self) -> str | None:
        """The rounding that has to be set while it runs, or None for that of the caller."""
        return None

    @property
    @abstractmethod
    def images(self) -> tuple[int, ...]:
        """Registers of A, B, C, metadata if any, and D."""

    @property
    def key(self) -> tuple[int, ...]:
        """All of it as numbers."""
        fields: Any = self
        return astuple(fields)

    @classmethod
    def of(cls, *key: int) -> Self:
        """The code of a key."""
        return cls(*key)
