"""The command line: info, list, show, gemm, explain, verify, ptx, run, libcuda, warmup.

Each command is a function from its options to a `Result`: data for `--json`, the same as text, and an exit code.
Exit codes: 0 fine, 1 a mismatch or hazard was found, 2 wrong use (bad options, files that cannot be read or written).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from typing import Any

from nbtc import __version__
from nbtc.cli import drawings, products, programs, warming
from nbtc.cli import run as run_command
from nbtc.cli.drawings import facts, write
from nbtc.cli.result import FINE, MISMATCH, WRONG_USE, Result
from nbtc.errors import NbtcError, OptionError, shown


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself leaves with code 2 on bad options.

    >>> main(["list", "--arch", "sm_70", "--family", "mma", "--json"])  # doctest: +ELLIPSIS
    [...
    0
    """
    words = programs.spelled_out(sys.argv[1:] if argv is None else argv)
    args = _parser().parse_args(words)
    run: Callable[[argparse.Namespace], Result] = args.run
    try:
        result = run(args)
        print(json.dumps(result.data, indent=1) if args.json else result.text)
    except BrokenPipeError:  # the reader, for example `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except (NbtcError, OSError, EOFError, zipfile.BadZipFile, MemoryError) as error:
        return _complain(error, args.json)
    except KeyboardInterrupt:
        return 130
    return result.code


def _complain(error: BaseException, as_json: bool) -> int:
    text = str(error) or type(error).__name__
    if as_json:
        print(json.dumps({"error": type(error).__name__, "message": text}))
    print(f"nbtc: {text}", file=sys.stderr)
    return WRONG_USE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nbtc",
        description="NVIDIA tensor core instructions and matrix products on the CPU, bit for bit.",
        epilog="Options of a command: nbtc COMMAND --help. Exit codes: 0 fine, 1 a mismatch or hazard, 2 wrong use.",
    )
    parser.add_argument("--version", action="version", version=f"nbtc {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    both = argparse.ArgumentParser(add_help=False)
    both.add_argument("--json", action="store_true", help="print JSON instead of text")

    def command(name: str, run: Callable[[argparse.Namespace], Result], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, parents=[both], help=text, description=text)
        sub.set_defaults(run=run)
        return sub

    command("info", _info, "versions, processor, threads, and which architectures are backed by recordings")
    sub = command("list", _list, "list instructions: all, or those of an architecture or family")
    sub.add_argument("--arch", help='only those an architecture has, such as "sm_90"')
    sub.add_argument("--family", help='only one family, or those that start so: "mma", "mma.sp", "wgmma"')
    drawings.add(command, _size)
    products.add(command, _size, _seed)
    sub = command("verify", _verify, "replay recordings of hardware and compare every bit")
    _verify_options(sub)
    programs.add(command, _size)
    run_command.add(command, _size)
    warming.add(command)
    return parser


def _verify_options(sub: argparse.ArgumentParser) -> None:
    sub.add_argument("--golden", metavar="DIR", help="a folder of recordings (default: the set that ships with nbtc)")
    through = 'run each form by nbtc\'s "functions" (default), or as a "ptx" program of a few lines'
    sub.add_argument("--through", choices=("functions", "ptx"), default="functions", help=through)
    sub.add_argument("--programs", metavar="DIR", help="a folder of recorded programs, to run instead")
    sub.add_argument("--only", metavar="TEXT", help="only files (with --hw families) whose name contains this")
    hw = "compare every form with this machine's GPU on fresh inputs; with --golden, on the inputs recorded there"
    sub.add_argument("--hw", action="store_true", help=hw)
    sub.add_argument(
        "--outputs", type=_count, default=10**7, metavar="N", help="with --hw: how many, such as 1e10 (1e7)"
    )
    every = "with --hw: also every input of conversions (cvt) and approximate functions (approx)"
    sub.add_argument("--exhaustive", action="store_true", help=every)
    sub.add_argument("--seed", type=_seed, default=0, help="with --hw: of the inputs (default 0)")
    sub.add_argument("--workers", type=_size, help="with --hw: processes (default: one a core)")
    sub.add_argument(
        "--report", metavar="FILE", help="with --hw: write the report, JSON if FILE ends so, else Markdown"
    )


def _size(text: str) -> int:
    value = int(text) if text.strip().isdecimal() and len(text) <= 12 else -1
    if value < 0:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is not a size: sizes and counts are whole numbers of 0 to 999999999999"
        )
    return value


def _count(text: str) -> int:
    """A whole number, perhaps written 1e10."""
    if not re.fullmatch(r"\d{1,15}|\d{1,3}(\.\d+)?[eE]1?\d", text.strip()) or float(text) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a count: pass a number such as 1000000 or 1e10")
    return int(float(text))


def _seed(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 40:
        raise argparse.ArgumentTypeError(f"{shown(text)} is not a seed: seeds are whole numbers of 0 or more")
    return int(text)


def _info(args: argparse.Namespace) -> Result:
    from nbtc.report import information

    data = information()
    lines = [f"{key:<12}{value}" for key, value in data.items() if key != "architectures"]
    rows = [f"  {name:<8}{backing}" for name, backing in data["architectures"].items()]
    return Result(data, "\n".join([*lines, "architectures", *rows]))


def _list(args: argparse.Namespace) -> Result:
    import nbtc

    found = nbtc.instructions(arch=args.arch, family=args.family)
    data = [facts(i) for i in found]
    return Result(data, "\n".join(f"{row['min_arch']:<8}{row['mnemonic']}" for row in data))


def _verify(args: argparse.Namespace) -> Result:
    if args.programs:
        return _verify_programs(args)
    if args.hw and args.golden is None:
        return _verify_hardware(args)
    from nbtc.verify import verify

    if args.report and not args.hw:
        raise OptionError(f"--report {shown(args.report)} is a report of comparisons with a GPU: pass --hw too")
    reports = []
    for report in verify(args.golden, args.only, args.hw, args.through):
        reports.append(report)
        if not args.json:
            print(_verify_line(report.file, report), flush=True)
            for failure in report.failures[:5]:
                print(f"    {failure}")
    bad = [r.file for r in reports if not r.ok]
    total = {key: sum(getattr(r, key) for r in reports) for key in ("forms", "outputs", "mismatches")}
    text = "{forms:,} forms, {outputs:,} outputs, {mismatches:,} mismatches".format(**total)
    text += (
        f"; not reproduced: {', '.join(bad)}"
        if bad
        else f"; every bit as {'this GPU gives it' if args.hw else 'recorded'}"
    )
    return Result({"files": [r.as_dict() for r in reports], **total}, text, MISMATCH if bad else FINE)


def _verify_programs(args: argparse.Namespace) -> Result:
    from nbtc.verify.programs import verify_programs

    if args.golden or args.hw:
        raise OptionError("--programs stands alone: --golden and --hw are for recordings of single instructions")
    reports = []
    for report in verify_programs(args.programs, args.only):
        reports.append(report)
        if not args.json:
            counts = f"{report.outputs:>10,} outputs {report.mismatches:>8,} mismatches"
            print(f"{report.program:<34}{counts}{'' if report.ok else '   <--'}", flush=True)
            for failure in report.failures[:5]:
                print(f"    {failure}")
    good, total = sum(r.ok for r in reports), len(reports)
    outputs, mismatches = (sum(getattr(r, name) for r in reports) for name in ("outputs", "mismatches"))
    text = f"programs: {good:,}/{total:,} programs, {outputs:,} outputs, {mismatches:,} mismatches"
    missing = [r.program for r in reports if not r.ok]
    text += f"; not reproduced: {', '.join(missing)}" if missing else ""
    data = {"programs": [r.as_dict() for r in reports], "outputs": outputs, "mismatches": mismatches}
    return Result(data, text, MISMATCH if missing else FINE)


def _verify_hardware(args: argparse.Namespace) -> Result:
    """Fresh inputs of every form on the GPU; a line on standard error says how far it is."""
    from nbtc.verify.hardware.campaign import campaign
    from nbtc.verify.hardware.families import FAMILIES

    names = [name for name in FAMILIES if args.only is None or args.only in name]
    if not names:
        raise OptionError(f"--only {shown(args.only)} is in no family's name; they are {', '.join(FAMILIES)}")
    said = (lambda line: print(f"\r{line}", end="", file=sys.stderr, flush=True)) if sys.stderr.isatty() else None
    found = campaign(names, args.outputs, args.seed, args.exhaustive, args.workers or None, progress=said)
    if args.report:
        as_json = args.report.endswith(".json")
        write(args.report, json.dumps(found.as_dict(), indent=1) if as_json else found.table())
    return Result(found.as_dict(), found.table().rstrip(), FINE if found.ok else MISMATCH)


def _verify_line(name: str, report: Any) -> str:
    counts = f"{report.forms:>6,} forms {report.outputs:>12,} outputs {report.mismatches:>10,} mismatches"
    return f"{name:<28}{counts}{'' if report.ok else '   <--'}"
