"""The command `ptx`: kernels of a PTX file, or of a file of CUDA C++, listed or launched."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any

from nbtc.cli.drawings import Adder
from nbtc.cli.result import FINE, MISMATCH, Result
from nbtc.errors import OptionError, ProgramError, shown

SOURCES = (".cu", ".cuh", ".cpp")
BEFORE = {"--checked": 1, "--check": 1, "--arch": 2}  # options of `run` that a launch of a source has too: their words
ARGUMENT = (
    "an argument of the kernel: a number, FILE.npy, FILE.npy:FORMAT for raw bytes, zeros:FORMAT:COUNT or "
    "random:FORMAT:COUNT (f32, bf16, s8, a NumPy dtype ...); one --arg for each parameter, in order"
)


def add(command: Adder, size: Callable[[str], int]) -> None:
    """Add it to a parser."""
    sub = command("ptx", _ptx, "list what the kernels of a PTX or CUDA C++ file use and what can't run, or launch one")
    sub.add_argument("file", help="a PTX file, - for PTX on standard input, or FILE.cu (needs nbtc[nvrtc])")
    sub.add_argument("--run", metavar="NAME", dest="kernel", help='launch this kernel ("": the only one)')
    sub.add_argument("--arg", action="append", default=[], help=ARGUMENT)
    what = "write an array after the launch; PARAMETER is its number, from 0, or its name in the text"
    sub.add_argument("--out", action="append", default=[], metavar="PARAMETER=FILE.npy", help=what)
    for name, text in (("grid", "blocks"), ("block", "threads of a block")):
        sub.add_argument(f"--{name}", type=size, nargs="+", default=[1], metavar="N", help=f"{text} along x, y, z (1)")
    sub.add_argument("--shared", type=size, default=0, help="bytes of dynamic shared memory (0)")
    sub.add_argument("--arch", help="the architecture to compute as (default: the text's .target)")
    sub.add_argument("--check", "--checked", action="store_true", help="with --run: report races and other hazards")


def spelled_out(words: Sequence[str]) -> list[str]:
    """`run FILE.cu ...` is `ptx FILE.cu --run ...` with the file's only kernel; options may stand before the file.

    >>> spelled_out(["run", "add.cu", "--arg", "3"])
    ['ptx', 'add.cu', '--run', '', '--arg', '3']
    >>> spelled_out(["run", "--checked", "--arch", "A100", "add.cu"])
    ['ptx', 'add.cu', '--run', '', '--checked', '--arch', 'A100']
    """
    at = 1
    while words[at : at + 1] and words[at] in BEFORE:
        at += BEFORE[words[at]]
    if list(words[:1]) != ["run"] or not words[at : at + 1] or not words[at].endswith(SOURCES):
        return list(words)
    named = [] if any(w == "--run" or w.startswith("--run=") for w in words) else ["--run", ""]
    return ["ptx", words[at], *named, *words[1:at], *words[at + 1 :]]


def _ptx(args: argparse.Namespace) -> Result:
    from nbtc.executor.command import Launch, run, text_of_run
    from nbtc.executor.coverage import coverage

    if args.kernel is None:
        for option, given in (("--check", args.check), ("--out", args.out), ("--arg", args.arg)):
            if given:
                raise OptionError(f"{option} is for a launch: pass --run NAME with its arguments")
        found = coverage(_text(args.file, args.arch))
        return Result(found.as_dict(), str(found), FINE if found.runs else MISMATCH)
    module = _module(args.file, args.arch)
    program = module[args.kernel or _only(module)]
    launch = Launch(tuple(args.grid), tuple(args.block), args.shared, args.check)
    try:
        data = run(program, launch, args.arg, args.out)
    except ProgramError as error:
        if not args.check:
            raise
        return Result({"kernel": program.name, "hazard": str(error)}, str(error), MISMATCH)
    return Result(data, text_of_run(data) + ("\nno hazards" if args.check else ""))


def _module(file: str, arch: str | None) -> Any:
    """The kernels of a file."""
    from nbtc.executor.program import load

    if file.endswith(SOURCES):
        import nbtc

        return nbtc.cuda.compile(file, arch or "sm_90a")
    return load(_text(file, arch), arch)


def _text(file: str, arch: str | None) -> str:
    """PTX text: of a file, of standard input, or compiled."""
    if file == "-":
        return sys.stdin.read()
    return str(_module(file, arch).text) if file.endswith(SOURCES) else file


def _only(module: Any) -> str:
    if len(module.kernels) != 1:
        raise OptionError(f"{shown(module)}: say which kernel, --run NAME")
    return str(module.kernels[0])
