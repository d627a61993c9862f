"""What a launch is given: kernel arguments as the bytes of its parameters, and the memory a program may touch."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nbtc.errors import FormatError, OptionError, ProgramError, RangeError, shown
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.text.data import WIDTHS, Function, Variable
from nbtc.executor.text.names import full_name
from nbtc.executor.transfer.tensor_map import TensorMap

_KINDS = {
    **{f"{k}{n}": f"<{'i' if k == 's' else 'u'}{n // 8}" for k in "bus" for n in (8, 16, 32, 64)},
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
}


# C's numbers that a pointer's elements may be, as NumPy calls those of the same size on Linux (LP64, as nvcc has it).
NUMBERS = {
    "float": "float32", "double": "float64", "short": "int16", "unsigned short": "uint16", "int": "int32",
    "unsigned": "uint32", "unsigned int": "uint32", "long": "int64", "unsigned long": "uint64", "long long": "int64",
    "unsigned long long": "uint64", "int16_t": "int16", "uint16_t": "uint16", "int32_t": "int32", "uint32_t": "uint32",
    "int64_t": "int64", "uint64_t": "uint64",
}  # fmt: skip


class Parameter(NamedTuple):
    """A kernel parameter: name, PTX type, bytes, alignment."""

    name: str
    type: str
    bytes: int
    alignment: int


def parameters_of(function: Function) -> tuple[Parameter, ...]:
    """The parameters of a kernel."""
    return tuple(Parameter(v.name, v.type, v.bytes, v.align) for v in function.prototype.arguments)


def memory_of(x: Any, name: str) -> Memory | None:
    """The memory of an array: NumPy's or torch's, anything with `__array_interface__` or DLPack; None for others."""
    if isinstance(x, np.ndarray):
        if type(x) is not np.ndarray and isinstance(x, np.ma.MaskedArray):
            raise FormatError(f"{name} is a masked array, whose mask no program knows: pass its elements, {name}.data")
        if x.dtype.hasobject:
            raise FormatError(f"{name} is an array of {x.dtype}: pass one of numbers, whose memory a program can read")
        about = x.__array_interface__
        start, read_only = about["data"]
        if x.flags.forc and x.size:
            return Memory(name, start, x.nbytes, not read_only, x)
        low, high = np.lib.array_utils.byte_bounds(x) if x.size else (start, start)
        return Memory(name, low, high - low, not read_only, x)
    if hasattr(x, "data_ptr") and hasattr(x, "element_size"):  # torch; its narrow types have no NumPy dtype
        if getattr(x, "device", None) is not None and x.device.type != "cpu":
            raise FormatError(f"{name} is on {x.device}: programs run on the CPU, pass {name}.cpu()")
        steps = sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else -1
        return Memory(name, x.data_ptr(), (steps + 1) * x.element_size(), True, x)
    if hasattr(x, "__array_interface__"):
        found = memory_of(np.asarray(x), name)  # its span: strided elements reach further than their number of bytes
        return None if found is None else found._replace(keeps=x)
    if hasattr(x, "__dlpack__"):
        return memory_of(np.from_dlpack(x), name)
    return None


def memory_of_map(x: TensorMap, name: str) -> Memory:
    """The memory of a tensor map's array."""
    if x.on_device:
        raise FormatError(f"{name} is the map of an array in a GPU's memory: make one of an array in the host's")
    return Memory(f"the array of {name}", x.address, x.span, True, x)


def start_of(x: Any, memory: Memory) -> int:
    """The address of an array's first element."""
    return int(x.__array_interface__["data"][0]) if hasattr(x, "__array_interface__") else memory.first


class Arguments(NamedTuple):
    """Parameter bytes and the memory that arguments bring along."""

    bytes: bytearray
    memory: list[Memory]


def marshal(
    kernel: Function, args: Sequence[Any], names: Sequence[str] = (), pointees: Sequence[str] = ()
) -> Arguments:
    """Arguments in the order of the parameters.

    names: what the source calls these, if it is known.  pointees: the numbers that its pointers point to.
    """
    own = kernel.prototype.arguments
    names = names if len(names) == len(own) else [""] * len(own)
    parameters = [_called(v, n, kernel.name, called) for n, (v, called) in enumerate(zip(own, names, strict=True))]
    if not isinstance(args, list | tuple):
        raise FormatError(f"args={shown(args)} of {kernel.name}: pass a tuple or list, one item a parameter")
    if len(args) != len(parameters):
        wanted = ", ".join(f".{v.type} {v.name}" for v in parameters)
        raise ProgramError(f"{full_name(kernel.name)} takes {len(parameters)} arguments ({wanted}), not {len(args)}")
    for variable, x, number in zip(parameters, args, pointees if len(pointees) == len(own) else (), strict=False):
        _check_elements(variable.name, x, number)
    data = bytearray()
    memory: list[Memory] = []
    for variable, x in zip(parameters, args, strict=True):
        data.extend(bytes(-len(data) % variable.align))
        data.extend(_bytes(variable, x, memory))
    return Arguments(data, memory)


def _check_elements(name: str, x: Any, number: str) -> None:
    """Refuse an array of numbers of another size than the source's; of bytes, complex numbers and records any goes."""
    have = getattr(x, "dtype", None)
    if not number or not isinstance(have, np.dtype) or not np.ndim(x) or have.kind not in "fiu" or have.itemsize == 1:
        return
    wanted = np.dtype(NUMBERS[number])
    if have.itemsize != wanted.itemsize:
        raise FormatError(
            f"{name} is an array of {have}, and the kernel's is {number} *: pass {name}.astype(np.{wanted}), or "
            f"{name}.view(np.{wanted}) if its bytes are meant"
        )


def _called(variable: Variable, place: int, kernel: str, called: str) -> Variable:
    """A parameter as messages call it: names made of a mangled name and a number say less than the place alone."""
    if variable.name != f"{kernel}_param_{place}":
        return variable
    return variable._replace(name=called or f"args[{place}]")


def _bytes(variable: Variable, x: Any, memory: list[Memory]) -> bytes:
    size = variable.bytes
    if variable.length == 1 and WIDTHS[variable.type] == 64 and variable.type[0] in "ub":
        if x is None:
            return bytes(size)
        found = None if isinstance(x, int | np.generic) else memory_of(x, variable.name)
        if found is not None:
            memory.append(found)
            return start_of(x, found).to_bytes(8, "little")
    if isinstance(x, TensorMap):
        memory.append(memory_of_map(x, variable.name))
    return value_bytes(Parameter(variable.name, variable.type, size, variable.align), x)


def value_bytes(parameter: Parameter, x: Any) -> bytes:
    """The bytes of what is passed by value: a number for a scalar, or the bytes of a struct."""
    scalar = 8 * parameter.bytes == WIDTHS[parameter.type]
    if not scalar or isinstance(x, bytes | bytearray | memoryview | np.void) or hasattr(x, "__bytes__"):
        if isinstance(x, int | float):  # bytes(8) would be eight zeros
            raise FormatError(
                f"{parameter.name} is a struct of {parameter.bytes} bytes: pass its bytes, not {shown(x)}"
            )
        raw = bytes(x) if not isinstance(x, np.void) else x.tobytes()
        if len(raw) != parameter.bytes:
            raise ProgramError(
                f"{parameter.name} takes {parameter.bytes} bytes, not {len(raw)}: pass as many as it has"
            )
        return raw
    return _number(parameter, x)


def _number(variable: Parameter, x: Any) -> bytes:
    kind = np.dtype(_KINDS.get(variable.type, f"<u{variable.bytes}"))
    if isinstance(x, np.generic | np.ndarray) and np.ndim(x) == 0:
        x = np.asarray(x)[()]
    if isinstance(x, np.generic) and x.dtype.kind in "Vf" and x.dtype.itemsize == kind.itemsize and kind.kind != "f":
        return x.tobytes()  # a float where PTX says .b32: its bits
    if not isinstance(x, int | float | bool | np.generic):
        array = "an array, such as np.array(x)" if isinstance(x, list | tuple) else "an array or a number"
        instead = array if variable.type in ("u64", "b64") else "a number"
        raise FormatError(f"{variable.name} is .{variable.type}: pass {instead}, not a {type(x).__name__}")
    if kind.kind == "f":
        try:
            with np.errstate(over="ignore"):
                return np.array(x, kind).tobytes()
        except OverflowError:
            raise RangeError(f"{variable.name} is .{variable.type}: {shown(x)} is beyond every float") from None
    if isinstance(x, float) or int(x) != x:
        if kind.itemsize in (4, 8) and variable.type[0] == "b":
            return np.array(x, f"<f{kind.itemsize}").tobytes()
        raise FormatError(f"{variable.name} is .{variable.type}: pass a whole number, not {shown(x)}")
    low, high = -(1 << (8 * kind.itemsize - 1)), 1 << (8 * kind.itemsize)
    if not low <= int(x) < high:
        raise RangeError(
            f"{variable.name} is .{variable.type}: {shown(int(x))} does not fit, pass one of {low} to {high - 1}"
        )
    return (int(x) % high).to_bytes(kind.itemsize, "little")


def own_memory(variables: Any, constant: int) -> tuple[Memory, Memory]:
    """The memory of a module's variables, of which the first `constant` bytes are only read."""
    start: int = variables.ctypes.data
    return (
        Memory("constant variables", start, constant, False, variables),
        Memory("module variables", start + constant, len(variables) - constant, True, variables),
    )


def memory_list(arrays: Sequence[Any]) -> list[Memory]:
    """The memory of arrays that pointers reach, by their places in the list where they have no names yet."""
    if not isinstance(arrays, list | tuple):  # an array alone would be taken for a list of its rows
        raise FormatError(f"memory={shown(arrays)}: pass a list of arrays, such as memory=[x]")
    found = []
    for i, x in enumerate(arrays):
        memory = x if isinstance(x, Memory) else memory_of(x, f"memory[{i}]")
        if memory is None:
            raise FormatError(f"memory[{i}] is {type(x).__name__}: pass arrays whose memory the program may touch")
        found.append(memory)
    return found


def seconds(timeout: object) -> float | None:
    """A time limit, checked."""
    if timeout is None:
        return None
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout > 0:
        raise OptionError(f"timeout={shown(timeout)}: pass seconds, a number above 0, or None for no limit")
    return float(min(timeout, threading.TIMEOUT_MAX))
