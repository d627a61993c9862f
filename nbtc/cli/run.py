"""The commands `run` and `libcuda`: processes on nbtc's CUDA driver."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from typing import Any

from nbtc.cli.result import Result
from nbtc.errors import OptionError

SOURCE = (
    "A source, nbtc run FILE.cu, is compiled by NVRTC, and its kernel launched with --grid, --block (one thread each "
    "unless given), --arg (one for each parameter), --out, --shared, --arch and --checked: see nbtc ptx --help. The "
    "other options above are for programs."
)
Adder = Callable[[str, Callable[[argparse.Namespace], Result], str], argparse.ArgumentParser]


def add(command: Adder, size: Callable[[str], int]) -> None:
    """Add both to a parser."""
    sub = command(
        "run",
        _run,
        "run a program on nbtc's CUDA driver (executables of nvcc -cudart shared, Python, ctest), or a FILE.cu",
    )
    sub.epilog = SOURCE
    sub.add_argument("--arch", help='the GPU that is there, such as "H200", or an architecture (default: sm_90)')
    sub.add_argument("--checked", action="store_true", help="find races, bad accesses and hangs in every launch")
    sub.add_argument("--profile", metavar="FILE", help="write the profiles of all launches, when the program ends")
    sub.add_argument("--sarif", metavar="FILE", help="write what launches found as SARIF 2.1.0, for pull requests")
    sub.add_argument("--junit", metavar="FILE", help="write kernels and what was found in them as JUnit's XML")
    sub.add_argument("--threads", type=size, metavar="N", help="threads for the blocks of a grid (default: all)")
    sub.add_argument("program", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    sub = command(
        "libcuda", _libcuda, "print where nbtc's libcuda.so.1 is (made on first use), to set LD_LIBRARY_PATH yourself"
    )
    sub.add_argument("--print", action="store_true", dest="lines", help="as lines that a shell can evaluate")


def _program(args: argparse.Namespace) -> list[str]:
    words: list[str] = args.program[1:] if args.program[:1] == ["--"] else args.program
    if words and words[0].endswith(".cu"):
        raise OptionError(
            f"nbtc run {words[0]}: that is a source, and --sarif, --junit, --profile and --threads are for programs: "
            f"leave them out, or compile it, nvcc -cudart shared -o program {words[0]}, and run ./program"
        )
    return words


def _run(args: argparse.Namespace) -> Result:
    from nbtc.libcuda.command import environment, run, run_reported

    words = _program(args)
    env = environment(os.environ, args.arch, args.checked, args.profile, args.threads)
    told = env.get("NBTC_CHECKED") == "1" and "NBTC_FINDINGS" not in env  # else an outer `nbtc run` tells of it
    if args.sarif or args.junit or told:
        sys.exit(run_reported(words, env, args.sarif, args.junit))
    run(words, env)
    return Result(None, "")  # not reached: the command takes this process over


def _libcuda(args: argparse.Namespace) -> Result:
    from nbtc.libcuda.command import environment
    from nbtc.libcuda.library.files import folder
    from nbtc.libcuda.rows import SONAMES

    place = folder()
    data: dict[str, Any] = {"folder": str(place), "libraries": {name: str(place / s) for name, s in SONAMES.items()}}
    env = environment({})
    lines = "\n".join(f"export {name}={env[name]}" for name in ("LD_LIBRARY_PATH", "LD_PRELOAD"))
    return Result(data, lines if args.lines else str(place))
