"""The command `warmup`: the cache of machine code, filled ahead."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from nbtc.cli.drawings import Adder
from nbtc.cli.result import Result

KINDS = "formats (f16, e4m3, s8 ...), block formats (mxfp4, nvfp4 ...), programs, checked; default: the usual ones"

ENOUGH = 1 << 18  # bytes: more than the largest file that a first use makes has (153,135, by hand)


def add(command: Adder) -> None:
    """Add it to a parser."""
    sub = command("warmup", _warmup, "compile ahead what first calls need, for container images and CI")
    sub.add_argument("what", nargs="*", help=KINDS)
    sub.add_argument("--arch", default="sm_90", help="default sm_90, an H100 or H200")


def _warmup(args: argparse.Namespace) -> Result:
    from nbtc.compiler.machine_code.native import cache_folder
    from nbtc.warmup import warm

    done = []
    for found in warm(args.what, args.arch):
        done.append(found)
        if not args.json:
            print(f"{found.what:<10}{found.seconds:8.2f} s", file=sys.stderr, flush=True)
    folder = cache_folder()
    if folder is None:
        where = "nothing is kept: NBTC_CACHE_DIR is empty"
    elif _takes_files(folder):
        where = f"machine code is kept in {folder}"
    else:
        where = f"nothing is kept: {folder} can't be written to; set NBTC_CACHE_DIR to a folder that can"
        folder = None
    return Result({"warmed": [found._asdict() for found in done], "folder": str(folder) if folder else None}, where)


def _takes_files(folder: Path) -> bool:
    """Whether machine code can be kept there: not in a folder that is read-only, nor on a full disk."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ENOUGH))
    except OSError:
        return False
    return True
