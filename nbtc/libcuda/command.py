"""`nbtc run` and `nbtc libcuda`: any process on nbtc's CUDA driver."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nbtc.errors import OptionError, SourceError
from nbtc.isa.archs import gpu
from nbtc.libcuda.library.files import LINKS, STUBS, folder
from nbtc.libcuda.report import sarif_and_junit
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
    before LD_LIBRARY_PATH.  Compilers and CMake find `libcuda.so` to link with where no toolkit has one: nvcc's
    wheels have none.
    """
    if arch is not None:
        gpu(arch)
    made, place = dict(base), folder()
    ours = [str(place / soname) for soname in SONAMES.values()]
    stubs, scripts = [str(place / STUBS)], [str(place / "bin")]
    if _lacks_runtime(base.get("PATH", os.defpath), scripts[0]):
        stubs.append(str(place / LINKS))
    for name, first in (
        ("LD_LIBRARY_PATH", [str(place)]), ("LD_PRELOAD", ours), ("PATH", scripts), ("LIBRARY_PATH", stubs),
        ("CMAKE_LIBRARY_PATH", stubs),
    ):  # fmt: skip
        rest = [p for p in made.get(name, "").split(":") if p and p not in first]
        made[name] = ":".join([*first, *rest])
    given = {
        **tools(place),
        "NBTC_ARCH": arch, "NBTC_CHECKED": "1" if checked else None,
        "NBTC_PROFILE": os.path.abspath(profile) if profile else None,
        "NBTC_THREADS": str(threads) if threads else None,
    }  # fmt: skip
    return made | {name: value for name, value in given.items() if value is not None}


def _lacks_runtime(path: str, ours: str) -> bool:
    """Whether there is nvcc (not the script in our folder) without a shared runtime in its toolkit to link with.

    A toolkit that has one is left alone: programs that are linked with it run without nbtc too.
    """
    nvcc = shutil.which("nvcc", path=":".join(p for p in path.split(":") if p != ours))
    if nvcc is None:
        return False
    toolkit = Path(nvcc).resolve().parents[1]
    return not any((toolkit / lib / "libcudart.so").exists() for lib in ("lib64", "lib", "targets/x86_64-linux/lib"))


def tools(place: Path) -> dict[str, str]:
    """What tells Triton where its assembler and the driver are."""
    ptxas = str(place / "bin" / "ptxas")
    return {"TRITON_PTXAS_PATH": ptxas, "TRITON_PTXAS_BLACKWELL_PATH": ptxas, "TRITON_LIBCUDA_PATH": str(place)}


def _path(command: Sequence[str], env: Mapping[str, str]) -> str:
    """Where a command is."""
    if not command:
        raise OptionError("nbtc run: name a command, for example nbtc run ./vectorAdd")
    path = shutil.which(command[0], path=env.get("PATH"))
    if path is None:
        raise SourceError(f"nbtc run: {command[0]!r} is not a command that can be run")
    return path


def run(command: Sequence[str], env: Mapping[str, str]) -> None:
    """Become the command; only returns by an error."""
    os.execve(_path(command, env), list(command), dict(env))


def run_reported(command: Sequence[str], env: Mapping[str, str], sarif: str | None, junit: str | None) -> int:
    """Run the command, tell what all its processes found, and return its exit code; 1 where that is 0 and they did.

    The files are written when the command fails or is interrupted, too.  What was found is told once more at the end,
    since tools such as ctest keep what a test writes to themselves when the test passes.
    """
    path, root = _path(command, env), Path.cwd()
    for file in (sarif, junit):
        if file is not None:
            Path(file).touch()  # what can't be written is known before anything runs
    with tempfile.TemporaryDirectory(prefix="nbtc-") as folder:
        lines = Path(folder, "findings")
        code = _call(command, path, {**env, "NBTC_FINDINGS": str(lines)})
        found = sarif_and_junit.read(lines)
    if sarif is not None:
        Path(sarif).write_text(json.dumps(sarif_and_junit.sarif(found, root), indent=1) + "\n", encoding="utf-8")
    if junit is not None:
        Path(junit).write_text(sarif_and_junit.junit(found), encoding="utf-8")
    told = sarif_and_junit.summary(found)
    if told:
        print(told, file=sys.stderr)
    return code or int(bool(told))


def _call(command: Sequence[str], path: str, env: Mapping[str, str]) -> int:
    """Run a command and return its exit code, 128 and the number for one that a signal ended, as shells have it."""
    process = subprocess.Popen(list(command), executable=path, env=env)
    handlers: dict[signal.Signals, Any] = {signal.SIGINT: lambda *_: None}  # the command gets Ctrl-C from the terminal
    for ends in (signal.SIGTERM, signal.SIGHUP):
        handlers[ends] = lambda number, _: process.send_signal(number)
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 128 - code if code < 0 else code
