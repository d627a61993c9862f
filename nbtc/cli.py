"""The command line: info, list, show, gemm, explain, verify.

Each command is a function from its options to a `Result`: data for `--json`, the same as text, and an exit code.
Exit codes: 0 fine, 1 a mismatch was found, 2 wrong use (bad options, files that cannot be read or written).
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbtc import __version__
from nbtc.errors import NbtcError, OptionError, ProgramError, shown

FINE, MISMATCH, WRONG_USE = 0, 1, 2
PTX_ARGUMENT = "of the kernel: a number, FILE.npy, zeros:DTYPE:COUNT or random:DTYPE:COUNT; once a parameter, in order"


class Result(NamedTuple):
    """What a command has to say."""

    data: Any
    text: str
    code: int = FINE


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; argparse itself leaves with code 2 on bad options.

    >>> main(["list", "--arch", "sm_70", "--family", "mma", "--json"])  # doctest: +ELLIPSIS
    [...
    0
    """
    args = _parser().parse_args(argv)
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
        prog="nbtc", description="NVIDIA tensor core instructions and matrix products on the CPU, bit for bit."
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
    sub = command("list", _list, "the instructions nbtc knows")
    sub.add_argument("--arch", help='only those an architecture has, such as "sm_90"')
    sub.add_argument("--family", help='only one family, or those that start so: "mma", "mma.sp", "wgmma"')
    sub = command("show", _show, "which lane and register holds which matrix element")
    sub.add_argument("mnemonic", help="a PTX mnemonic, or a whole PTX line; with --tile the format of its elements")
    sub.add_argument("--svg", metavar="FILE", help="write the drawing to a file")
    sub.add_argument("--arch", help="only the layout of this architecture (default: of each range of them)")
    sub.add_argument("--selector", type=_size, help="of mma.sp: whose metadata lanes to draw")
    sub.add_argument("--tile", metavar="MNxK", help="draw a wgmma tile in shared memory, for example 64x64")
    sub.add_argument("--swizzle", default="none", help='of the tile: "none" (default), "32B", "64B", "128B"')
    sub.add_argument("--major", default="k", help='of the tile: "k" (default) or "mn"')
    sub = command("gemm", _gemm, "one matrix product: its time, its bits, and how far they are from the exact product")
    _product_options(sub)
    sub.add_argument("--seed", type=_seed, default=0, help="of the random operands (default 0)")
    for name in ("a", "b", "c"):
        sub.add_argument(f"--{name}", metavar="FILE.npy", help=f"operand {name} from a file")
    sub.add_argument("--out", metavar="FILE.npy", help="write the result")
    sub.add_argument(
        "--threads", type=_size, help="threads (default: all); NumPy gets as many where threadpoolctl is installed"
    )
    sub = command("explain", _explain, "what a product would do, without doing it")
    for name, text in (("M", "rows of A"), ("N", "columns of B"), ("K", "elements of each sum")):
        sub.add_argument(name, type=_size, help=text)
    _product_options(sub, sizes=False)
    sub = command("verify", _verify, "replay recordings of hardware and compare every bit")
    _verify_options(sub)
    sub = command("ptx", _ptx, "the kernels of a PTX file: which instructions can't run; or a launch of one")
    sub.add_argument("file", help="PTX text")
    sub.add_argument("--run", metavar="NAME", dest="kernel", help="launch this kernel")
    sub.add_argument("--arg", action="append", default=[], help=PTX_ARGUMENT)
    for name, text in (("grid", "blocks"), ("block", "threads of a block")):
        sub.add_argument(f"--{name}", type=_size, nargs="+", default=[1], metavar="N", help=f"{text} along x, y, z (1)")
    sub.add_argument("--shared", type=_size, default=0, help="bytes of dynamic shared memory (0)")
    sub.add_argument("--arch", help="whose arithmetic (default: the text's .target)")
    sub.add_argument("--check", action="store_true", help="with --run: report races and other hazards")
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
    sub.add_argument("--exhaustive", action="store_true", help="with --hw: also every input of every conversion")
    sub.add_argument("--seed", type=_seed, default=0, help="with --hw: of the inputs (default 0)")
    sub.add_argument("--workers", type=_size, help="with --hw: processes (default: one a core)")
    sub.add_argument(
        "--report", metavar="FILE", help="with --hw: write the report, JSON if FILE ends so, else Markdown"
    )


def _size(text: str) -> int:
    value = int(text) if text.strip().isdecimal() and len(text) <= 12 else -1
    if value < 0:
        raise argparse.ArgumentTypeError(
            f"{shown(text)} is no size: sizes and counts are whole numbers of 0 to 999999999999"
        )
    return value


def _count(text: str) -> int:
    """A whole number, perhaps written 1e10."""
    if not re.fullmatch(r"\d{1,15}|\d{1,3}(\.\d+)?[eE]1?\d", text.strip()) or float(text) < 1:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no count: pass a number such as 1000000 or 1e10")
    return int(float(text))


def _seed(text: str) -> int:
    if not text.strip().isdecimal() or len(text) > 40:
        raise argparse.ArgumentTypeError(f"{shown(text)} is no seed: seeds are whole numbers of 0 or more")
    return int(text)


def _product_options(sub: argparse.ArgumentParser, sizes: bool = True) -> None:
    for name in ("m", "n", "k") if sizes else ():
        sub.add_argument(f"--{name}", type=_size, default=1024, help=f"{name.upper()} of random operands (1024)")
    sub.add_argument(
        "--format", help="of both operands: f16 (default) bf16 tf32 e4m3 e5m2 e2m3 e3m2 e2m1 s8 u8 s4 u4 b1 f64"
    )
    sub.add_argument("--a-format", help="of a alone; needed for files of ml_dtypes arrays and of packed words")
    sub.add_argument("--b-format", help="of b alone")
    sub.add_argument("--acc", help="accumulator: f32, f16, s32, f64 (default: the widest)")
    sub.add_argument("--arch", default="sm_90", help="default sm_90, an H100 or H200")
    sub.add_argument("--instruction", help='a PTX mnemonic, or "mma", "wgmma", "wmma", "tcgen05"')
    sub.add_argument("--k-split", type=_size, help="start a new chain every so many elements of K")
    sub.add_argument("--saturate", action="store_true", help="clamp integers at every step")
    sub.add_argument("--op", choices=("xor", "and"), help="for b1")


def _product_keywords(args: argparse.Namespace) -> dict[str, Any]:
    names = ("arch", "acc", "instruction", "k_split", "saturate", "op")
    return {name: getattr(args, name) for name in names}


def _info(args: argparse.Namespace) -> Result:
    from nbtc.report import information

    data = information()
    lines = [f"{key:<12}{value}" for key, value in data.items() if key != "architectures"]
    rows = [f"  {name:<8}{backing}" for name, backing in data["architectures"].items()]
    return Result(data, "\n".join([*lines, "architectures", *rows]))


def _list(args: argparse.Namespace) -> Result:
    import nbtc

    found = nbtc.instructions(arch=args.arch, family=args.family)
    data = [_facts(i) for i in found]
    return Result(data, "\n".join(f"{row['min_arch']:<8}{row['mnemonic']}" for row in data))


def _facts(i: Any) -> dict[str, Any]:
    names = ("mnemonic", "family", "shape", "min_arch", "archs", "executable")
    return {name: getattr(i, name) for name in names}


def _show(args: argparse.Namespace) -> Result:
    if args.tile is not None or args.swizzle != "none":
        return _show_tile(args)
    import nbtc
    from nbtc import show
    from nbtc.isa.archs import arch

    i = nbtc.instruction(args.mnemonic)
    text = show.text(i, args.arch, args.selector)
    if args.svg:
        text = _written(args.svg, show.svg(i, args.arch, args.selector), i.mnemonic)
    row = i.row if args.arch is None else i.row.on(arch(args.arch))
    operands = {name: _operand(x) for name in "abcd" if (x := getattr(row, name)) is not None}
    more = {"operands": operands, "metadata": _metadata(row, args.selector), "ranges": _ranges(i.row)}
    return Result({**_facts(i), **more}, text)


def _show_tile(args: argparse.Namespace) -> Result:
    """A tile in shared memory: the descriptor that `tile_to_smem` would give it."""
    from nbtc.fragments.tiles import canonical
    from nbtc.show.smem import explain

    found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", args.tile or "")
    if found is None:
        raise OptionError(
            f"--tile {shown(args.tile)} is no tile: write rows (of A, or columns of B) x K, for example "
            "nbtc show --tile 64x64 --swizzle 128B f16"
        )
    shape = (int(found[1]), int(found[2]))
    descriptor, size = canonical(shape, args.mnemonic, args.major, args.swizzle)
    drawing = explain(descriptor, shape, args.mnemonic, args.major)
    text = _written(args.svg, drawing.svg(), "the tile") if args.svg else str(drawing)
    fields = {name: value for name, value, _ in drawing.fields}
    data = {"shape": shape, "format": str(drawing.format), "major": args.major, "swizzle": args.swizzle, "bytes": size}
    return Result({**data, "descriptor": hex(descriptor.encode()), "fields": fields, "layout": drawing.layout}, text)


def _written(path: str, svg: str, what: str) -> str:
    _write(path, svg)
    return f"{what}: drawn in {path}"


def _operand(x: Any) -> dict[str, Any]:
    fields = {name: getattr(x, name) for name in ("rows", "cols", "registers")}
    coords = None if x.layout is None else x.coords().tolist()  # wgmma reads B from shared memory
    return {"format": str(x.format), **fields, "coords": coords}


def _metadata(row: Any, selector: int | None) -> dict[str, Any] | None:
    """Lane and lowest bit of the nibble of each chunk of each row of A, for each legal selector (or the one given)."""
    if row.meta is None:
        return None
    from nbtc.fragments.sparse import places

    chosen = row.selectors if selector is None else (selector,)
    found = {str(s): dict(zip(("lane", "bit"), (x.tolist() for x in places(row, s)), strict=True)) for s in chosen}
    return {"rows": row.meta.rows, "chunks": row.meta.cols, "selectors": found}


def _ranges(row: Any) -> list[dict[str, Any]]:
    """Architectures that lay fragments out alike, and whether that layout is known."""
    return [{"archs": names, "known": here is not None} for names, here in row.ranges]


def _gemm(args: argparse.Namespace) -> Result:
    from nbtc.report import product

    files = {name: path for name in ("a", "b", "c", "out") if (path := getattr(args, name))}
    formats = {"a": args.a_format or args.format, "b": args.b_format or args.format}
    data = product(
        (args.m, args.n, args.k), files, formats, seed=args.seed, threads=args.threads, **_product_keywords(args)
    )
    return Result(data, "\n".join(_gemm_lines(data)))


def _gemm_lines(data: dict[str, Any]) -> list[str]:
    m, n, k = data["shape"]
    numpy, exact = data["numpy_float32"], data["correctly_rounded"]
    rows = [
        ("product", f"{m} x {n} x {k}, {data['a_format']} x {data['b_format']} -> {data['acc']}"),
        ("as", f"{data['instruction']} on {data['arch']}"),
        ("time", f"{data['seconds']:.4g} s (first call, with any compilation: {data['first_call_seconds']:.3g} s)"),
        ("rate", f"{data['gmas_per_s']:.4g} G multiply-adds/s on {data['threads']} threads"),
        ("numpy float32", f"{numpy['seconds']:.4g} s on {numpy['threads']} threads: {numpy['ratio']:.3g}x of it"),
        ("sha256", data["sha256"]),
    ]
    if exact is not None:
        relative = f"relative error {exact['relative']:.2g} (root mean square)"
        checked = f"{exact['different']:,} of {exact['outputs']:,}{' sampled' * exact['sampled']} outputs differ"
        by = f"{exact['max_ulp']:,} ulps at most" if exact["max_ulp"] < 2**63 else "a NaN against a number"
        rows.append(("exact product", f"{relative}; {checked} from it correctly rounded, by {by}"))
    if data["out"]:
        rows.append(("written", data["out"]))
    return [f"{name:<15}{text}" for name, text in rows]


def _explain(args: argparse.Namespace) -> Result:
    from nbtc.report import planned

    formats = (args.a_format or args.format or "f16", args.b_format or args.format or "f16")
    data, text = planned((args.M, args.N, args.K), formats, **_product_keywords(args))
    return Result(data, text)


def _verify(args: argparse.Namespace) -> Result:
    if args.programs:
        return _verify_programs(args)
    if args.hw and args.golden is None:
        return _verify_hardware(args)
    from nbtc.verify import verify

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
        _write(args.report, json.dumps(found.as_dict(), indent=1) if as_json else found.table())
    return Result(found.as_dict(), found.table().rstrip(), FINE if found.ok else MISMATCH)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def _verify_line(name: str, report: Any) -> str:
    counts = f"{report.forms:>6,} forms {report.outputs:>12,} outputs {report.mismatches:>10,} mismatches"
    return f"{name:<28}{counts}{'' if report.ok else '   <--'}"


def _ptx(args: argparse.Namespace) -> Result:
    from nbtc.executor.command import Launch, run, text_of_run
    from nbtc.executor.coverage import coverage

    if args.kernel:
        launch = Launch(args.file, args.kernel, tuple(args.grid), tuple(args.block), args.shared, args.arch, args.check)
        try:
            data = run(launch, args.arg)
        except ProgramError as error:
            if not args.check:
                raise
            return Result({"kernel": args.kernel, "hazard": str(error)}, str(error), MISMATCH)
        return Result(data, text_of_run(data) + ("\nno hazards" if args.check else ""))
    if args.check:
        raise OptionError("--check watches a launch: pass --run NAME with its arguments")
    found = coverage(args.file)
    return Result(found.as_dict(), str(found), FINE if found.runs else MISMATCH)
