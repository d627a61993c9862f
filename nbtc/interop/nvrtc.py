"""CUDA C++ to PTX by NVIDIA's run-time compiler, a library in a wheel that needs no GPU (NVRTC, "User's Guide").

Only its C interface is used, by ctypes: no bindings, no toolkit.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from nbtc.errors import FormatError, ProgramError, SourceError, shown
from nbtc.interop.toolkit import compiler
from nbtc.isa.archs import target

# Headers of the host's library that the compiler lacks although it knows by itself what device code takes from them:
# printf, assert, maths, memcpy. Empty ones are provided, and <cstdint> with its types: files written for nvcc compile.
KNOWN = ("cstdio", "stdio.h", "cassert", "assert.h", "cmath", "math.h", "cstdlib", "stdlib.h", "cstring", "string.h")
# As <cuda/std/cstdint> has them under this compiler, so that both may be included.
WORDS = {"8": "char", "16": "short", "32": "int", "64": "long long", "ptr": "long long"}
INTEGERS = (
    "#pragma once\n"
    + "".join(f"typedef signed {t} int{n}_t; typedef unsigned {t} uint{n}_t;\n" for n, t in WORDS.items())
    + f"namespace std {{{''.join(f' using ::int{n}_t; using ::uint{n}_t;' for n in WORDS)} }}\n"
)
PROVIDED = dict.fromkeys(KNOWN, "\n") | dict.fromkeys(("cstdint", "stdint.h"), INTEGERS)
OWN = re.compile(r"(cuda|cub|thrust|nv)/|(cuda\w*|mma|cooperative_groups\w*)\.h")
HOST = re.compile(r"[a-z_]+|c?[a-z]+\.h")  # <vector>, <stdio.h>
HOST_CODE = re.compile(r"runtime APIs are not declared|cuda(Malloc|Memcpy|Free|DeviceSynchronize)\w*\" is undefined")
MISSING = re.compile(r'(?:could|cannot) (?:not )?open source file "([^"]+)"')


class Ptx(NamedTuple):
    """What the compiler made: the text, and the mangled name of each name that was asked for."""

    text: str
    names: dict[str, str]


class Source(NamedTuple):
    """CUDA C++: the text, what messages call it, and folders that are searched for its headers."""

    text: str
    name: str
    folders: tuple[str, ...] = ()


def source_of(given: str | os.PathLike[str]) -> Source:
    """CUDA C++ itself, or what a file has; SourceError where there is no such file."""
    if isinstance(given, str) and not re.fullmatch(r"[^\n{};#]+\.(cu|cuh|cpp|cc|h|hpp)", given.strip()):
        return Source(given, "source.cu")
    if not isinstance(given, str | os.PathLike):
        raise FormatError(f"{shown(given)} is no CUDA C++: pass its text, or the path of a file of it")
    path = Path(given)
    try:
        return Source(path.read_text(encoding="utf-8", errors="replace"), str(path), (str(path.resolve().parent),))
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise SourceError(
            f"{shown(str(given))} cannot be read ({why}): pass a file of CUDA C++, or its text"
        ) from error


class _Program:
    """A program of the compiler."""

    def __init__(self, source: str, name: str) -> None:
        self.library = compiler().library
        self.handle = ctypes.c_void_p()
        count = len(PROVIDED)
        texts = (ctypes.c_char_p * count)(*(text.encode() for text in PROVIDED.values()))
        names = (ctypes.c_char_p * count)(*(header.encode() for header in PROVIDED))
        given = (ctypes.byref(self.handle), source.encode(), name.encode(), count, texts, names)
        self._call("nvrtcCreateProgram", *given)

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
            log = self._text("ProgramLog").strip()
            major, minor = compiler().version
            raise ProgramError(f"CUDA C++ does not compile (NVRTC {major}.{minor}):\n{log}{hint(log)}")

    def _text(self, what: str) -> str:
        size = ctypes.c_size_t()
        self._call(f"nvrtcGet{what}Size", self.handle, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(size.value)
        self._call(f"nvrtcGet{what}", self.handle, buffer)
        return buffer.raw.rstrip(b"\0").decode()

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


def hint(log: str) -> str:
    """What to do about a header that was not found, as a line after the compiler's message.

    >>> print(hint('a.cu(1): catastrophic error: cannot open source file "vector"'))
    <BLANKLINE>
    "vector" is a header of the host's C++ library, which device code cannot use: leave the #include out, put host code
    into `#ifndef __CUDACC_RTC__`, or take <cuda/std/...>, such as <cuda/std/array>.
    """
    found = MISSING.search(log)
    if found is None and HOST_CODE.search(log):
        return (
            "\nThis source has host code, which launches kernels: compile it whole, nvcc -cudart shared -o program, "
            "and nbtc run ./program;\nor leave the host code out and launch from Python: module[name][grid, block](x)."
        )
    if found is None:
        return ""
    header = found[1]
    if OWN.match(header):
        return f"\n\"{header}\" is one of CUDA's own headers: pip install 'nbtc[nvrtc]' brings all of them."
    if HOST.fullmatch(header):
        return (
            f'\n"{header}" is a header of the host\'s C++ library, which device code cannot use: leave the #include '
            "out, put host code\ninto `#ifndef __CUDACC_RTC__`, or take <cuda/std/...>, such as <cuda/std/array>."
        )
    where = "the folder of a file that is compiled is searched already"
    return f'\nName the folder that has "{header}", options=["-I/path/to/folder"]; {where}.'


def _named_as_given(ptx: str, name: str) -> str:
    """A text whose source is no file without the working directory, in which NVRTC takes it to be.

    Nobody would find it there, and the same source in another directory would be another text, compiled again.
    """
    path = os.path.abspath(name)
    return ptx if os.path.exists(path) else ptx.replace(f'"{path}"', f'"{name}"')


def to_ptx(source: str, arch: str | int, options: Sequence[str], names: Sequence[str], name: str) -> Ptx:
    """PTX of CUDA C++ for an architecture or a GPU ("sm_90a", "A100")."""
    to = str(target(arch))
    include = [f"--include-path={p}" for p in compiler().include]
    fixed = [
        f"--gpu-architecture=compute_{to.removeprefix('sm_')}",
        "--device-as-default-execution-space",
        "--generate-line-info",
    ]
    standard = [] if any(o.startswith(("-std", "--std")) for o in options) else ["--std=c++17"]
    program = _Program(source, name)
    try:
        for expression in names:
            program.add_name(expression)
        program.compile([*fixed, *standard, *include, *options])
        return Ptx(_named_as_given(program.ptx(), name), {n: program.lowered(n) for n in names})
    finally:
        program.close()
