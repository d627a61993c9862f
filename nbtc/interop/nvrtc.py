"""CUDA C++ to PTX by NVIDIA's run-time compiler, a library in a wheel that needs no GPU (NVRTC, "User's Guide").

Only its C interface is used, by ctypes: no bindings, no toolkit.
"""

from __future__ import annotations

import ctypes
import importlib.util
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nbtc.errors import MissingExtraError, OptionError, ProgramError

WHEELS = "nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
LIBRARY = {"win32": "nvrtc64_*.dll"}.get(sys.platform, "libnvrtc.so.*")


class Compiler(NamedTuple):
    """The library, and the folders of CUDA's headers."""

    library: Any
    include: tuple[Path, ...]


class Ptx(NamedTuple):
    """What the compiler made: the text, and the mangled name of each name that was asked for."""

    text: str
    names: dict[str, str]


@cache
def compiler() -> Compiler:
    """The installed compiler; MissingExtraError says what to install."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(p) for p in (spec.submodule_search_locations or ())] if spec is not None else []
    libraries = sorted(p for root in roots for p in root.glob(f"*/*/{LIBRARY}") if "builtins" not in p.name)
    if not libraries:
        raise MissingExtraError(
            "nbtc.cuda.compile needs NVIDIA's run-time compiler, which is not installed: pip install 'nbtc[nvrtc]' "
            f"(or {WHEELS})",
            name="nvidia",
        )
    include = [p for root in roots for p in (*root.glob("*/include"), *root.glob("*/include/cccl")) if p.is_dir()]
    return Compiler(ctypes.CDLL(str(libraries[-1])), tuple(include))


class _Program:
    """A program of the compiler."""

    def __init__(self, source: str, name: str) -> None:
        self.library = compiler().library
        self.handle = ctypes.c_void_p()
        self._call("nvrtcCreateProgram", ctypes.byref(self.handle), source.encode(), name.encode(), 0, None, None)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self.library, name)(*arguments)
        if code:
            self.library.nvrtcGetErrorString.restype = ctypes.c_char_p
            raise ProgramError(f"{name}: {self.library.nvrtcGetErrorString(code).decode()}")

    def add_name(self, name: str) -> None:
        """Ask for the mangled name of an expression such as `axpy<float>`."""
        self._call("nvrtcAddNameExpression", self.handle, name.encode())

    def compile(self, options: Sequence[str]) -> None:
        """Compile; ProgramError carries the compiler's messages with their source lines."""
        words = (ctypes.c_char_p * len(options))(*(o.encode() for o in options))
        if self.library.nvrtcCompileProgram(self.handle, len(options), words):
            raise ProgramError(f"CUDA C++ does not compile:\n{self._text('ProgramLog').strip()}")

    def _text(self, what: str) -> str:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", self.handle, ctypes.byref(size))
        room = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", self.handle, room)
        return room.raw.rstrip(b"\0").decode()

    def ptx(self) -> str:
        """The PTX text."""
        return self._text("PTX")

    def lowered(self, name: str) -> str:
        """The mangled name of an expression."""
        found = ctypes.c_char_p()
        self._call("nvrtcGetLoweredName", self.handle, name.encode(), ctypes.byref(found))
        return (found.value or b"").decode()

    def close(self) -> None:
        """Give the program back."""
        self.library.nvrtcDestroyProgram(ctypes.byref(self.handle))


def to_ptx(source: str, arch: str, options: Sequence[str], names: Sequence[str], name: str) -> Ptx:
    """PTX of CUDA C++ for an architecture ("sm_90a")."""
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise OptionError(f"arch={arch!r} is no architecture to compile for: pass one such as 'sm_80' or 'sm_90a'")
    include = [f"--include-path={p}" for p in compiler().include]
    fixed = [
        f"--gpu-architecture=compute_{arch.removeprefix('sm_')}",
        "--device-as-default-execution-space",
        "--generate-line-info",
    ]
    standard = [] if any(o.startswith(("-std", "--std")) for o in options) else ["--std=c++17"]
    program = _Program(source, name)
    try:
        for expression in names:
            program.add_name(expression)
        program.compile([*fixed, *standard, *include, *options])
        return Ptx(program.ptx(), {n: program.lowered(n) for n in names})
    finally:
        program.close()
