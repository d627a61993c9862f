"""`nbtc run` and `nbtc libcuda`: any process on nbtc's CUDA driver."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from nbtc.errors import OptionError, SourceError
from nbtc.isa.archs import gpu
from nbtc.libcuda.library import folder
from nbtc.libcuda.rows import SONAMES


def environment(
    base: Mapping[str, str],
    arch: str | None = None,
    checked: bool = False,
    profile: str | None = None,
    threads: int | None = None,
) -> dict[str, str]:
    """The environment of a process whose CUDA libraries are nbtc's.

    They are loaded before all others, since a program may name the folder of its own CUDA runtime, which is searched
    before LD_LIBRARY_PATH.
    """
    if arch is not None:
        gpu(arch)
    made, place = dict(base), folder()
    ours = [str(place / soname) for soname in SONAMES.values()]
    for name, first in (("LD_LIBRARY_PATH", [str(place)]), ("LD_PRELOAD", ours), ("PATH", [str(place / "bin")])):
        rest = [p for p in made.get(name, "").split(":") if p and p not in first]
        made[name] = ":".join([*first, *rest])
    given = {
        **tools(place),
        "NBTC_ARCH": arch, "NBTC_CHECKED": "1" if checked else None,
        "NBTC_PROFILE": os.path.abspath(profile) if profile else None,
        "NBTC_THREADS": str(threads) if threads else None,
    }  # fmt: skip
    return made | {name: value for name, value in given.items() if value is not None}


def tools(place: Path) -> dict[str, str]:
    """What tells Triton where its assembler and the driver are."""
    ptxas = str(place / "bin" / "ptxas")
    return {"TRITON_PTXAS_PATH": ptxas, "TRITON_PTXAS_BLACKWELL_PATH": ptxas, "TRITON_LIBCUDA_PATH": str(place)}


def run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Become the command; only returns by an error."""
    if not command:
        raise OptionError("nbtc run: name a command, for example nbtc run ./vectorAdd")
    path = shutil.which(command[0], path=env.get("PATH"))
    if path is None:
        raise SourceError(f"nbtc run: {command[0]!r} is no command that can be run")
    os.execve(path, list(command), dict(env))
