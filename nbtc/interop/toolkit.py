"""Where NVIDIA's run-time compiler (NVRTC) and the CUDA headers that belong to it are installed.

Wheels come first, then a toolkit that CUDA_PATH or CUDA_HOME names, then what the system's loader finds; of several the
newest is taken. (CUDA, "NVRTC": a library and its builtins have the same version, and are loaded together.)
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nbtc.errors import MissingExtraError

WHEELS = "nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-crt nvidia-cuda-cccl"
WINDOWS = sys.platform == "win32"
LIBRARIES = "nvrtc64_*.dll" if WINDOWS else "libnvrtc.so.*"
BUILTINS = "nvrtc-builtins64_*.dll" if WINDOWS else "libnvrtc-builtins.so.*"
# Folders of libraries below a wheel's or a toolkit's root: those of CUDA 13's wheels, of 12's, and of the toolkit.
FOLDERS = ("cu*/lib", "cu*/bin", "cu*/bin/x86_64", "cuda_nvrtc/lib", "cuda_nvrtc/bin", "lib64", "lib", "bin", "bin/x64")
# Headers, seen from the folder that has a library's folder: beside it, or in the other wheels of CUDA 12.
HEADERS = ("include", "include/cccl", "../cuda_runtime/include", "../cuda_cccl/include", "../cuda_nvcc/include")


class Compiler(NamedTuple):
    """The library, its version, where it was found, and folders of CUDA's headers."""

    library: Any
    version: tuple[int, int]
    path: Path
    include: tuple[Path, ...]


class Candidate(NamedTuple):
    """A library that may be loaded: the newest is tried first."""

    version: tuple[int, ...]
    path: Path


@cache
def compiler() -> Compiler:
    """The newest installed compiler that loads; MissingExtraError says what to install, or why none of them loads."""
    failed = []
    for candidate in candidates():
        try:
            return _loaded(candidate.path)
        except OSError as error:
            failed.append(f"{candidate.path} ({error})")
    if found := ctypes.util.find_library("nvrtc"):
        try:
            return _loaded(Path(found))
        except OSError as error:
            failed.append(f"{found} ({error})")
    why = f"; of what is installed nothing loads: {', '.join(failed)}" if failed else ", which is not installed"
    raise MissingExtraError(
        f"nbtc.cuda.compile needs NVIDIA's run-time compiler{why}: pip install 'nbtc[nvrtc]' (or {WHEELS})",
        name="nvidia",
    )


def candidates() -> list[Candidate]:
    """Libraries in wheels and in the toolkit that the environment names, the newest first."""
    found = {Candidate(_version_of(p), p) for root in _roots() for folder in FOLDERS for p in _libraries(root, folder)}
    return sorted(found, reverse=True)


def _roots() -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")  # one name for the wheels of all of NVIDIA's libraries
    yield from (Path(p) for p in (spec.submodule_search_locations or ())) if spec is not None else ()
    yield from (Path(os.environ[name]) for name in ("CUDA_PATH", "CUDA_HOME") if os.environ.get(name))


def _libraries(root: Path, folder: str) -> Iterator[Path]:
    return (p for p in root.glob(f"{folder}/{LIBRARIES}") if not re.search(r"builtins|\.alt\b", p.name))


def _version_of(library: Path) -> tuple[int, ...]:
    """By the name of the builtins beside it, whose minor version the library's own name lacks: (13, 0); without them
    by its own."""
    names = [p.name for p in library.parent.glob(BUILTINS) if ".alt." not in p.name] or [library.name]
    return max(tuple(int(x) for x in re.findall(r"\d+", name.replace("64_", "", 1))) for name in names)


def _loaded(path: Path) -> Compiler:
    """The library, after its builtins: it opens them by their name alone, which finds those that are loaded already.

    Without that a wheel's library finds them only where something else (torch, when it is imported) has loaded its own.
    """
    for builtins in sorted(path.parent.glob(BUILTINS)) if path.is_absolute() else ():
        if ".alt." not in builtins.name:
            ctypes.CDLL(str(builtins))
    library = ctypes.CDLL(str(path))
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return Compiler(library, (major.value, minor.value), path, headers(path))


def headers(library: Path) -> tuple[Path, ...]:
    """Folders of headers that belong to a library; where it has none, those of other wheels of its major version."""
    home = library.parent.parent
    own = [home / name for name in HEADERS]
    other = [c.path.parent.parent / name for c in candidates() if c.path != library for name in HEADERS]
    have = [p.resolve() for p in own if p.is_dir()]
    if not any((p / "cuda_fp16.h").is_file() for p in have):
        have += [p.resolve() for p in other if p.is_dir()]
    return tuple(dict.fromkeys(have))
