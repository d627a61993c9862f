"""The command `show`: who holds what, tiles of shared memory, and what DPX and warp functions do."""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable
from typing import Any

from nbtc.cli.result import Result
from nbtc.errors import OptionError, ParseError, did_you_mean, shown

Adder = Callable[[str, Callable[[argparse.Namespace], Result], str], argparse.ArgumentParser]


def add(command: Adder, size: Callable[[str], int]) -> None:
    """Add it to a parser."""
    sub = command("show", _show, "show which lane and register holds which matrix element, or what a function does")
    what = "a PTX mnemonic, a whole PTX line, or a DPX or warp function; with --tile the format of its elements"
    sub.add_argument("mnemonic", help=what)
    sub.add_argument("--svg", metavar="FILE", help="write the drawing to a file")
    sub.add_argument("--arch", help="only the layout of this architecture (default: of each range of them)")
    sub.add_argument("--selector", type=size, help="of mma.sp: whose metadata lanes to draw")
    sub.add_argument("--tile", metavar="MNxK", help="draw a wgmma tile in shared memory, for example 64x64")
    sub.add_argument("--swizzle", default="none", help='of the tile: "none" (default), "32B", "64B", "128B"')
    sub.add_argument("--major", default="k", help='of the tile: "k" (default) or "mn"')


def facts(i: Any) -> dict[str, Any]:
    """What `nbtc list --json` says of an instruction."""
    names = ("mnemonic", "family", "shape", "min_arch", "archs", "executable")
    return {name: getattr(i, name) for name in names}


def _show(args: argparse.Namespace) -> Result:
    if args.tile is not None or args.swizzle != "none":
        return _show_tile(args)
    import nbtc
    from nbtc import show

    if (function := _function(args.mnemonic)) is not None:
        return _explained(function, args)
    from nbtc.isa.archs import arch

    try:
        i = nbtc.instruction(args.mnemonic)
    except ParseError as error:
        raise _unknown(args.mnemonic, error) from None
    text = show.text(i, args.arch, args.selector)
    if args.svg:
        text = _written(args.svg, show.svg(i, args.arch, args.selector), i.mnemonic)
    row = i.row if args.arch is None else i.row.on(arch(args.arch))
    operands = {name: _operand(x) for name in "abcd" if (x := getattr(row, name)) is not None}
    more = {"operands": operands, "metadata": _metadata(row, args.selector), "ranges": _ranges(i.row)}
    return Result({**facts(i), **more}, text)


def _show_tile(args: argparse.Namespace) -> Result:
    """A tile in shared memory: the descriptor that `tile_to_smem` would give it."""
    from nbtc.fragments.tiles import canonical
    from nbtc.show.smem import explain

    found = re.fullmatch(r"(\d{1,6})x(\d{1,6})", args.tile or "")
    if found is None:
        raise OptionError(
            f"--tile {shown(args.tile)} is not a tile: write rows (of A, or columns of B) x K, for example "
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
    write(path, svg)
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


def _function(name: str) -> Any:
    """The DPX or warp function of this name, as CUDA C++ or nbtc spells it; None for anything else."""
    import nbtc

    plain = name.strip().removeprefix("nbtc.").removeprefix("dpx.").removeprefix("warp.").lstrip("_")
    if not re.fullmatch(r"[a-z_]+[a-z0-9_]*", plain):
        return None
    return next((f for module in (nbtc.dpx, nbtc.warp) if inspect.isfunction(f := getattr(module, plain, None))), None)


def _unknown(name: str, error: ParseError) -> ParseError:
    """What is wrong with a name: nearest to it may be a function."""
    import nbtc

    functions = [f for module in (nbtc.dpx, nbtc.warp) for f, x in vars(module).items() if inspect.isfunction(x)]
    near = "" if "." in name else did_you_mean(name, [f for f in functions if f[0] != "_"])
    return ParseError(f"{shown(name)} is neither an instruction nor a function{near}") if near else error


def _explained(function: Any, args: argparse.Namespace) -> Result:
    if args.svg:
        raise OptionError(f"{function.__name__} has no drawing: leave out --svg {args.svg}")
    module = function.__module__
    call = f"{module}.{function.__name__}({', '.join(inspect.signature(function).parameters)})"
    text = inspect.getdoc(function) or ""
    return Result({"name": f"{module}.{function.__name__}", "call": call, "text": text}, f"{call}\n\n{text}")


def write(path: str, text: str) -> None:
    """Text to a file."""
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
