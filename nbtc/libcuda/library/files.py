"""The libraries as files in the cache: written on first use, found by everything that they depend on."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
from functools import cache
from pathlib import Path

from nbtc import __version__
from nbtc.errors import DeviceError
from nbtc.libcuda.library import shims
from nbtc.libcuda.rows import SONAMES, TABLES, VERSIONED, rows

STUBS = "stubs"  # the folder with libcuda.so alone, called as the CUDA toolkit's: for programs that are linked with it
LINKS = "links"  # the folder with the other names to link with: for toolkits of wheels, which have files by SONAME only
SOURCES = ("library/elf.py", "library/files.py", "library/boot.py", "rows.py", "library/shims.py", "registry.py")


def _require_platform() -> None:
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise DeviceError(
            f"nbtc's CUDA driver is a shared library for Linux on x86-64; this is {system} on {machine}: "
            "nbtc.load and nbtc.cuda.compile run programs here too"
        )


def _root() -> Path:
    """The cache's folder, or one of this process alone where nothing is to be kept."""
    from nbtc.compiler.machine_code.native import cache_folder

    found = cache_folder()
    return found if found is not None else Path(tempfile.mkdtemp(prefix="nbtc-"))


def _digest() -> str:
    here = Path(__file__).parents[1]
    from nbtc.libcuda.library.boot import python_library, python_path

    facts = (__version__, sys.version, python_path(), str(python_library()), str(here))
    digest = hashlib.sha256(repr(facts).encode())
    for file in sorted([*(here / name for name in SOURCES), *TABLES.iterdir(), *(here / "direct").glob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:20]


@cache
def folder() -> Path:
    """The folder with `libcuda.so.1` and `libcudart.so.13`, made where it isn't there yet.

    Raises DeviceError on other systems than Linux on x86-64.
    """
    _require_platform()
    place = _root() / "libcuda" / _digest()
    for which, soname in SONAMES.items():
        if not (place / soname).is_file():
            _write(place, which, soname)
    shims.write(place)
    return place


def _write(place: Path, which: str, soname: str) -> None:
    """One library, moved into place when it is whole: several processes may do this at once."""
    from nbtc.libcuda.library.boot import IMPORTS, boot_object
    from nbtc.libcuda.library.elf import Library

    names = [row.name for row in rows(which)]
    raw = Library(soname, names, IMPORTS, boot_object(which, names, str(place)), VERSIONED.get(which)).write()
    named = place / (STUBS if which == "driver" else LINKS)
    named.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=place, delete=False) as file:
        file.write(raw)
    os.chmod(file.name, 0o755)
    os.replace(file.name, place / soname)
    alias = soname.rpartition(".")[0]
    for link in (place / alias, named / alias):
        if not link.exists():
            temporary = link.with_name(f"{alias}.{os.getpid()}")
            temporary.symlink_to(os.path.relpath(place / soname, link.parent))
            os.replace(temporary, link)
