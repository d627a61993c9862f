"""Loaded code: PTX of one or several modules, its kernels, and how a launch hands over its arguments."""

from __future__ import annotations

import ctypes
import re
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from nbtc.executor.program import Module, Program, load
from nbtc.interop.devices import THREAD_REGISTERS, THREADS
from nbtc.interop.numba_cuda.memory import Memory

_DECLARED = re.compile(r"^\.extern \.func\s*(?P<result>\([^)]*\))\s*(?P<name>[\w$]+)", re.MULTILINE)
_WITHOUT_RESULT = re.compile(r"^(?P<head>(?:\.visible|\.weak) \.func)\s+(?P<name>[\w$]+)", re.MULTILINE)
_handles = count(1 << 41)  # neither addresses nor handles of a driver


class Attributes(NamedTuple):
    """What a loaded kernel says of itself; registers are unknown, since nobody assembles it."""

    num_regs: int
    const_size_bytes: int
    local_size_bytes: int
    shared_size_bytes: int
    max_threads_per_block: int


class Kernel(NamedTuple):
    """A kernel of an image."""

    program: Program
    handle: int
    attributes: Attributes


def _agreeing(texts: list[str]) -> list[str]:
    """Modules whose functions have the results that others declare them with.

    numba-cuda declares functions of C that return nothing with a result, which it reads and forgets; a linker lets that
    pass.
    """
    declared = {m["name"]: m["result"] for text in texts for m in _DECLARED.finditer(text)}

    def agreeing(found: re.Match[str]) -> str:
        return f"{found['head']} {declared[found['name']]} {found['name']}" if found["name"] in declared else found[0]

    return [_WITHOUT_RESULT.sub(agreeing, text) for text in texts]


class Image:
    """PTX as the driver loads it: `handle`, and kernels by name."""

    def __init__(self, texts: list[str], arch: str) -> None:
        self.module: Module = load("\n".join(_agreeing(texts)), arch)
        self.handle = next(_handles)

    def get_kernel(self, name: str) -> Kernel:
        """A kernel by its name in the text."""
        program = self.module[name]
        function = self.module.ptx.functions[program.name]
        spaces = {space: [v for v in function.variables if v.space == space] for space in ("local", "shared")}
        local, shared = (sum(v.bytes for v in spaces[s]) for s in ("local", "shared"))
        shared += sum(v.bytes for v in self.module.ptx.variables.values() if v.space == "shared")
        constants = sum(v.bytes for v in self.module.ptx.variables.values() if v.space == "const")
        return Kernel(program, next(_handles), Attributes(THREAD_REGISTERS, constants, local, shared, THREADS))

    def variable(self, name: str) -> tuple[int, int]:
        """Address and bytes of a module's variable."""
        found = self.module.globals[name]
        return found.ctypes.data, found.nbytes


class Config(NamedTuple):
    """A launch configuration, with the fields of cuda.core's under both of their names."""

    grid: Any
    block: Any
    shmem_size: int = 0
    is_cooperative: bool = False
    cooperative_launch: bool = False


def launch(kernel: Kernel, config: Config, args: tuple[Any, ...], memory: Memory, threads: int | None) -> None:
    """Run a kernel on arguments as numba-cuda has prepared them."""
    kernel.program.launch(
        config.grid,
        config.block,
        [_value(x) for x in args],
        shared=config.shmem_size,
        cooperative=config.is_cooperative or config.cooperative_launch,
        memory=memory.arrays(),
        threads=threads,
    )


def _value(x: Any) -> Any:
    """A value of ctypes or of CUDA's bindings as a number."""
    if isinstance(x, ctypes._SimpleCData):
        return np.dtype(type(x)).type(x.value)
    if isinstance(x, int | float | np.generic | bytes | np.ndarray):
        return x
    return int(x)
