"""Arguments of a launch: the Numba type of each, found fast, and the arrays that hold tensors of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numba.core import types
from numba.np import numpy_support

from nbtc.dialect import folding
from nbtc.dialect.parameters import TENSOR_MAP, ParameterPlace
from nbtc.errors import FormatError, RangeError, shown
from nbtc.executor.launch.arguments import memory_of, memory_of_map
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.transfer.tensor_map import TensorMap
from nbtc.formats.arrays import as_array
from nbtc.formats.device_arrays import DeviceArray, dense, device_array, is_device_array

_PLAIN = {
    int: types.int64,
    "uint": types.uint64,
    float: types.float64,
    bool: types.boolean,
    complex: types.complex128,
}
element_types: list[Callable[[Any], Any]] = []  # each gives the Numba type of a dtype that it knows, or None


class Given(NamedTuple):
    """An argument as it is passed: a key that tells its Numba type, and its value or, of an array, the array."""

    key: Any
    value: Any


class _Address(int):
    """An address in a GPU's memory: the driver finds out in which GPU's."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {"data": (int(self), False), "shape": (1,), "typestr": "|u1", "version": 3}


def given(x: Any) -> Given:
    """What a launch makes of an argument."""
    kind = type(x)
    if kind is np.ndarray:
        f = x.flags
        layout = "C" if f.c_contiguous else "F" if f.f_contiguous else "A"
        return Given((x.dtype, x.ndim, layout, f.writeable), x)
    if kind in (int, float, bool, complex):
        return Given("uint" if kind is int and x >> 63 > 0 else kind, x)
    if isinstance(x, np.generic):
        return Given(x.dtype, x)
    if isinstance(x, tuple):
        items = [given(item) for item in x]
        values, keys = [i.value for i in items], tuple(i.key for i in items)
        # fields have names: the class tells them apart from another's
        return Given((kind, keys), kind(*values)) if hasattr(x, "_fields") else Given((tuple, keys), tuple(values))
    if kind is TensorMap:
        return Given(kind, x)
    if is_device_array(x):
        found = device_array(x)
        layout = "C" if found.strides == dense(found.shape, found.dtype) else "A"
        known = found._replace(address=_Address(found.address))
        return Given((found.dtype, len(found.shape), layout, found.writable), known)
    if hasattr(x, "__array_interface__") or hasattr(x, "__dlpack__") or isinstance(x, np.ndarray):
        return given(as_array(x))
    if folding.is_record(x):
        return given(folding.as_named_tuple(x))
    if isinstance(x, list):
        raise FormatError("a kernel takes arrays and tuples, not a list: pass an array, such as np.array(x)")
    raise FormatError(f"a kernel takes arrays, numbers, tuples of them and frozen dataclasses, not {shown(x)}")


def kind_of(name: str, key: Any, value: Any) -> Any:
    """The Numba type that a key stands for."""
    if isinstance(value, np.ndarray | DeviceArray):
        if not value.dtype.isnative:
            raise FormatError(f"{name} has elements in foreign byte order, {value.dtype}: pass a copy in native order")
        dtype, ndim, layout, writeable = key
        return types.Array(_element(name, dtype), ndim, layout, readonly=not writeable)
    if isinstance(value, tuple):
        group, keys = key
        kinds = [kind_of(name, k, v) for k, v in zip(keys, value, strict=True)]
        return types.BaseTuple.from_types(kinds, group) if group is not tuple else types.BaseTuple.from_types(kinds)
    if isinstance(key, np.dtype):
        return _element(name, key)
    if isinstance(value, TensorMap):
        return TENSOR_MAP
    if isinstance(value, int) and not isinstance(value, bool) and not -(1 << 63) <= value < 1 << 64:
        raise RangeError(f"{name}={shown(value)} has more than 64 bits")
    return _PLAIN[key]


def _element(name: str, dtype: Any) -> Any:
    for find in element_types:
        found = find(dtype)
        if found is not None:
            return found
    try:
        known = None if dtype.hasobject else numpy_support.from_dtype(dtype)
    except Exception:  # Numba's own class of errors has changed its name between versions
        known = None
    if known is None:
        raise FormatError(f"{name} has elements of {dtype}, which kernels do not know: pass an array of numbers")
    return known


def on_device(values: Sequence[Any]) -> bool:
    """Whether a launch is one for a GPU: its arrays lie there."""
    flat = [item for x in values for item in (x if isinstance(x, tuple) and not isinstance(x, DeviceArray) else (x,))]
    arrays = [x.array if isinstance(x, TensorMap) else x for x in flat]
    found = any(isinstance(x, DeviceArray) for x in arrays)
    if found and any(isinstance(x, np.ndarray) for x in arrays):
        raise FormatError("arrays in a GPU's memory and in the host's in one launch: move all of them to one side")
    return found


def placed(values: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], list[Memory]]:
    """Arrays as places, and the memory that a program may touch through them."""
    memory: list[Memory] = []
    return [_placed(x, name, memory) for x, name in zip(values, names, strict=True)], memory


def _placed(x: Any, name: str, memory: list[Memory]) -> Any:
    if isinstance(x, np.ndarray):
        found = memory_of(x, name)
        if found is not None:
            memory.append(found)
        return ParameterPlace(x.__array_interface__["data"][0], x.shape, x.strides)
    if isinstance(x, TensorMap):
        memory.append(memory_of_map(x, name))
        return bytes(x)
    if isinstance(x, tuple) and not isinstance(x, DeviceArray):
        fields = getattr(x, "_fields", None)
        names = [f"{name}.{field}" for field in fields] if fields else [f"{name}[{n}]" for n in range(len(x))]
        return tuple(_placed(item, label, memory) for item, label in zip(x, names, strict=True))
    return x
