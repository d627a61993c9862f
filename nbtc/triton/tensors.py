"""What Triton asks of a tensor, for NumPy arrays; and the memory of any argument."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.triton.mappings import Bytes


class Tensor(np.ndarray[Any, Any]):
    """A NumPy array with the methods of a tensor that Triton, its autotuner and launch code call."""

    def data_ptr(self) -> int:
        """The address of the first element."""
        return int(self.ctypes.data)

    def stride(self, axis: int | None = None) -> Any:
        """Elements from one index to the next, of one axis or of all."""
        steps = tuple(s // self.itemsize for s in self.strides)
        return steps if axis is None else steps[axis]

    def element_size(self) -> int:
        """Bytes of an element."""
        return self.itemsize

    def numel(self) -> int:
        """How many elements there are."""
        return self.size

    def zero_(self) -> Tensor:
        """Set everything to zero."""
        self[...] = 0
        return self

    def clone(self) -> Tensor:
        """A copy."""
        return self.copy()

    def copy_(self, other: Any) -> Tensor:
        """Take another array's values."""
        self[...] = other
        return self


class ElementType:
    """An array's dtype with what the checks of descriptors ask of torch's."""

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self._dtype = dtype
        self.is_floating_point = dtype.kind in "fV"  # ml_dtypes' floats are V

    def __str__(self) -> str:
        return str(self._dtype)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dtype, name)


class Described:
    """An array as the checks of descriptors see it."""

    def __init__(self, array: Tensor) -> None:
        self.data_ptr, self.dtype = array.data_ptr, ElementType(array.dtype)


def tensor(x: Any) -> Any:
    """An array as Triton takes one, in (named) tuples too; everything else as it is."""
    if isinstance(x, tuple):
        return getattr(type(x), "_make", type(x))(map(tensor, x))
    return x.view(Tensor) if type(x) is np.ndarray else x


def memory_behind(x: Any) -> NDArray[Any] | None:
    """All the memory that an argument's address may be an address of; None where nothing tells its extent.

    As on a GPU, a kernel that is given a slice may reach the rest of the allocation.
    """
    if isinstance(x, np.ndarray):
        whole: NDArray[Any] = x
        while isinstance(whole.base, np.ndarray):
            whole = whole.base
        return whole.view(np.ndarray)
    if hasattr(x, "untyped_storage"):
        storage = x.untyped_storage()
        return np.asarray(Bytes(storage.data_ptr(), storage.nbytes(), x)) if storage.nbytes() else np.empty(0)
    base = getattr(x, "base", None)  # what triton.reinterpret makes
    return memory_behind(base) if hasattr(base, "data_ptr") else None


def address(x: Any) -> int:
    """The address that a kernel is given for an argument."""
    if x is None:
        return 0
    if isinstance(x, int):
        return x
    return int(x.ctypes.data if isinstance(x, np.ndarray) else x.data_ptr())
