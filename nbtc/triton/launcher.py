"""Launches: Triton's arguments as the parameters of its PTX, and the memory that the program may touch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from nbtc.errors import OptionError
from nbtc.executor.launch.arguments import memory_of
from nbtc.executor.launch.launch import aligned
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.transfer.tensor_map import ELEMENTS, SWIZZLES, TensorMap
from nbtc.triton import capture
from nbtc.triton.mappings import memory_at
from nbtc.triton.tensors import address, memory_behind

LANES = 32
# Integers below it are no addresses: Linux loads a program of fixed address at 4 MiB, its heap comes after it.
LOWEST_ADDRESS = 1 << 22
SCRATCH_ALIGN = 128  # bytes: tensor maps lie there
SCALARS = {
    "fp16": np.float16, "bf16": ml_dtypes.bfloat16, "fp32": np.float32, "f32": np.float32, "fp64": np.float64,
    "i1": np.uint8, "u1": np.uint8, "i8": np.int8, "u8": np.uint8, "i16": np.int16, "u16": np.uint16,
    "i32": np.int32, "u32": np.uint32, "i64": np.int64, "u64": np.uint64,
}  # fmt: skip
_ELEMENT_NAMES = {e.number: name for name, e in ELEMENTS.items()}
_SWIZZLE_NAMES = {number: name for name, number in SWIZZLES.items()}


class Arguments:
    """Kernel arguments in the order of the parameters, and their memory."""

    def __init__(self, maps: Sequence[Any]) -> None:
        self.values: list[Any] = []
        self.memory: list[Memory] = []
        self.known = True  # the extent of all memory that the program may reach; not where the host keeps it secret
        self._maps: Iterator[Any] = iter(maps)

    def add(self, kind: Any, x: Any, name: str) -> None:
        """One argument of Triton's signature."""
        if isinstance(kind, tuple):
            for n, (k, part) in enumerate(zip(kind, x, strict=True)):
                self.add(k, part, f"{name}[{n}]")
        elif kind == "constexpr":
            return
        elif kind.startswith("tensordesc"):
            self._descriptor(x, name)
        elif kind[0] == "*":
            self._pointer(kind, x, name)
        else:
            self._scalar(kind, x)

    def scratch(self, size: int) -> None:
        """A pointer to memory for the kernel's own use."""
        if size:
            buffer = aligned(size, SCRATCH_ALIGN)
            buffer[:] = 0
            self._touch(buffer, "memory for the kernel's own use")
            self.values.append(address(buffer))
        else:
            self.values.append(None)

    def _scalar(self, kind: str, x: Any) -> None:
        if kind not in SCALARS:
            raise OptionError(
                f"{kind} is not a parameter of a Triton kernel that nbtc knows; it knows {', '.join(SCALARS)}"
            )
        self.values.append(np.asarray(x).astype(SCALARS[kind])[()])

    def _touch(self, x: Any, name: str) -> None:
        """Let the program touch an array, which errors call by a name."""
        found = memory_of(x, name)
        if found is not None:
            self.memory.append(found)

    def _pointer(self, kind: str, x: Any, name: str) -> None:
        self.values.append(address(x))
        if x is None:
            return
        found = None if isinstance(x, int) else memory_behind(x)
        if found is None:
            self._reach(np.array([address(x)], np.uint64), name)
            return
        self._touch(found, name)
        if kind[-3:] in ("i64", "u64") and found.nbytes % 8 == 0:
            words = (np.frombuffer(found, np.uint64) if found.flags.c_contiguous else np.array(found)).view(np.uint64)
            self._reach(words[words >= LOWEST_ADDRESS], name)

    def _reach(self, words: NDArray[Any], name: str) -> None:
        """Let the program touch memory that these words are addresses in; those that are none are numbers."""
        found = memory_at(words) if words.size else []
        if found is None:
            self.known = False
        else:
            for x in found:
                self._touch(x, f"what {name} leads to")

    def _descriptor(self, x: Any, name: str) -> None:
        found = memory_behind(x.base)
        if found is None:
            self._reach(np.array([address(x.base)], np.uint64), name)
        else:
            self._touch(found, name)
        about = next(self._maps, None)
        if about is None:
            flags = [x.padding == "nan"]
            if hasattr(x, "round_f32_to_tf32"):
                flags.append(x.round_f32_to_tf32)
            self.values += [address(x.base), *map(np.int64, (*x.shape, *x.strides)), *flags]
        else:
            self.values.append(bytes(tensor_map(x, about)))
        self.values += [*map(np.int32, x.shape), *map(np.int64, x.strides)]


def tensor_map(x: Any, about: dict[str, Any]) -> TensorMap:
    """The tensor map of a descriptor of the host, tiled as the compiler has chosen, or of columns of pixels."""
    size = about["elem_size"]
    element = "tf32" if getattr(x, "round_f32_to_tf32", False) else _ELEMENT_NAMES[about["elem_type"]]
    view = np.asarray(_Strided(x, size))
    options: dict[str, Any] = {
        "swizzle": _SWIZZLE_NAMES[about["swizzle"]],
        "oob": "nan" if x.padding == "nan" else "zero",
        "dtype": element,
    }
    if about.get("is_im2col"):
        pixels, channels = about["block_size"]
        lower, upper = tuple(x.pixel_box_lower_corner)[::-1], tuple(x.pixel_box_upper_corner)[::-1]
        options["element_strides"] = None if x.element_strides is None else tuple(x.element_strides)[::-1]
        return TensorMap.im2col(view, lower, upper, channels=channels, pixels=pixels, **options)
    return TensorMap(view, tuple(about["block_size"][::-1]), **options)


class _Strided:
    """The elements of a descriptor as unsigned integers."""

    def __init__(self, x: Any, size: int) -> None:
        self.owner = x
        self.__array_interface__ = {
            "data": (address(x.base), False),
            "shape": tuple(map(int, x.shape)),
            "strides": tuple(int(s) * size for s in x.strides),
            "typestr": f"<u{size}",
            "version": 3,
        }


class Loaded(NamedTuple):
    """What Triton calls a function: the program of a kernel, and the driver that loaded it."""

    program: Any
    driver: Any


class Launcher:
    """Launches one compiled kernel; Triton makes it from the source and what the compiler says of it."""

    def __init__(self, source: Any, about: Any) -> None:
        # IR has no names, only numbers
        self.kinds = {n if isinstance(n, str) else f"argument {n}": kind for n, kind in source.signature.items()}
        self.about = about

    def __call__(
        self,
        grid_x: int,
        grid_y: int,
        grid_z: int,
        stream: Any,
        function: Loaded,
        packed: Any,
        launch_metadata: Any,
        enter: Any,
        leave: Any,
        *args: Any,
    ) -> None:
        """Run the grid; hooks are called as Triton's own launchers call them."""
        if not grid_x * grid_y * grid_z:
            return
        if enter is not None:
            enter(launch_metadata)
        capture.run(lambda: self._run((grid_x, grid_y, grid_z), function, args))
        if leave is not None:
            leave(launch_metadata)

    def _run(self, grid: tuple[int, int, int], function: Loaded, args: Sequence[Any]) -> None:
        about = self.about
        ctas = getattr(about, "num_ctas", 1)
        if len(args) != len(self.kinds):  # a compiled kernel that is called as `compiled[grid](...)`
            raise OptionError(
                f"{function.program.name} takes {len(self.kinds)} arguments, constants too ({', '.join(self.kinds)}); "
                f"{len(args)} were given"
            )
        arguments = Arguments(getattr(about, "tensordesc_meta", None) or ())
        for (name, kind), x in zip(self.kinds.items(), args, strict=True):
            arguments.add(kind, x, name)
        blocks = grid[0] * grid[1] * grid[2] * ctas
        arguments.scratch(about.global_scratch_size * blocks)
        arguments.scratch(getattr(about, "profile_scratch_size", 0) * blocks)
        function.program.launch(
            (grid[0] * ctas, *grid[1:]),
            LANES * about.num_warps,
            arguments.values,
            shared=about.shared,
            cluster=(ctas, 1, 1) if ctas > 1 else None,
            cooperative=bool(getattr(about, "launch_cooperative_grid", False)),
            memory=arguments.memory,
            threads=function.driver.threads,
            checked=False if arguments.known else "off",
            contract="ptxas" if about.enable_fp_fusion else "off",
        )
