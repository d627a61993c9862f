"""The commands `gemm` and `explain`: one matrix product, done or described."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

from nbtc.cli.drawings import Adder
from nbtc.cli.result import Result
from nbtc.errors import OptionError

SIZE = 1024  # of random operands, in each direction
SIGNIFICAND = {"f64": 53, "f32": 24, "f16": 11, "s32": 31}  # bits of a result


def add(command: Adder, size: Callable[[str], int], seed: Callable[[str], int]) -> None:
    """Add both to a parser."""
    sub = command("gemm", _gemm, "multiply two matrices: time, bits, and how far they are from the exact product")
    _product_options(sub, size)
    sub.add_argument("--seed", type=seed, default=0, help="of the random operands (default 0)")
    for name in ("a", "b", "c"):
        sub.add_argument(f"--{name}", metavar="FILE.npy", help=f"operand {name} from a file")
    sub.add_argument("--out", metavar="FILE.npy", help="write the result")
    sub.add_argument(
        "--threads", type=size, help="threads (default: all); NumPy gets as many where threadpoolctl is installed"
    )
    sub = command("explain", _explain, "say what a product would do, without doing it")
    for name, text in (("M", "rows of A"), ("N", "columns of B"), ("K", "elements of each sum")):
        sub.add_argument(name, type=size, help=text)
    _product_options(sub, size, sizes=False)


def _product_options(sub: argparse.ArgumentParser, size: Callable[[str], int], sizes: bool = True) -> None:
    for name in ("m", "n", "k") if sizes else ():
        sub.add_argument(f"--{name}", type=size, help=f"{name.upper()} of random operands ({SIZE})")
    sub.add_argument(
        "--format", help="of both operands: f16 (default) bf16 tf32 e4m3 e5m2 e2m3 e3m2 e2m1 s8 u8 s4 u4 b1 f64"
    )
    sub.add_argument("--a-format", help="of a alone; needed for files of ml_dtypes arrays and of packed words")
    sub.add_argument("--b-format", help="of b alone")
    sub.add_argument("--acc", help="accumulator: f32, f16, s32, f64 (default: the widest)")
    sub.add_argument("--arch", default="sm_90", help="default sm_90, an H100 or H200")
    sub.add_argument("--instruction", help='a PTX mnemonic, or "mma", "wgmma", "wmma", "tcgen05"')
    sub.add_argument("--k-split", type=size, help="start a new chain every so many elements of K")
    sub.add_argument("--saturate", action="store_true", help="clamp integers at every step")
    sub.add_argument("--op", choices=("xor", "and"), help="for b1")


def _product_keywords(args: argparse.Namespace) -> dict[str, Any]:
    names = ("arch", "acc", "instruction", "k_split", "saturate", "op")
    return {name: getattr(args, name) for name in names}


def _gemm(args: argparse.Namespace) -> Result:
    from nbtc.report import product

    files = {name: path for name in ("a", "b", "c", "out") if (path := getattr(args, name))}
    formats = {"a": args.a_format or args.format, "b": args.b_format or args.format}
    sizes = {name: getattr(args, name) for name in ("m", "n", "k")}
    if files.keys() & {"a", "b"} and any(x is not None for x in sizes.values()):
        given = ", ".join(f"--{name} {x}" for name, x in sizes.items() if x is not None)
        raise OptionError(
            f"{given} together with --a and --b: files have their own sizes; --m, --n and --k are of random operands"
        )
    m, n, k = (SIZE if x is None else x for x in sizes.values())
    data = product((m, n, k), files, formats, seed=args.seed, threads=args.threads, **_product_keywords(args))
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
    if data["out"]:
        rows.append(("written", data["out"]))
    if exact is not None:
        rows.append(("accuracy", _accuracy(exact["relative"], data["acc"])))
    return [f"{name:<15}{text}" for name, text in rows]


def _accuracy(relative: float, accumulator: str) -> str:
    """The last line: how good the result is, in digits; `--json` has ulps and counts too."""
    if relative == 0:
        return "every output is the exact product, rounded once"
    if not math.isfinite(relative) or relative >= 1:
        return "no digit of the exact product is left: some outputs overflowed, or their terms cancel"
    held = SIGNIFICAND[accumulator] * math.log10(2)
    digits = f"{min(held, -math.log10(relative)):.1f} of the {held:.1f} decimal digits that"
    return f"{digits} {accumulator} holds are right (relative error {relative:.1e}, against the exact product)"


def _explain(args: argparse.Namespace) -> Result:
    from nbtc.report import planned

    formats = (args.a_format or args.format or "f16", args.b_format or args.format or "f16")
    data, text = planned((args.M, args.N, args.K), formats, **_product_keywords(args))
    return Result(data, text)
