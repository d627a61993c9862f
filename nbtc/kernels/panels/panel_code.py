"""Machine code of the fused micro-kernel and of its packers, one object file a form."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import cgutils

from nbtc.compiler.builder import I64, VectorBuilder
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu.processors import GENERIC, Processor, host_processor
from nbtc.compiler.machine_code.emitted import Emitted, ahead, machine_code
from nbtc.compiler.machine_code.native import Loaded
from nbtc.formats.table import Format
from nbtc.kernels.panels.alignment_and_rounding import SumShape
from nbtc.kernels.panels.alignment_by_turns import TINY_BITS
from nbtc.kernels.panels.panel import AddArguments, SumArguments, write_addition, write_sums
from nbtc.kernels.panels.panel_columns import PanelColumns
from nbtc.kernels.panels.panel_elements import PanelElements
from nbtc.kernels.panels.panel_operands import Packing, PanelForm
from nbtc.kernels.panels.panel_pack import PackArguments
from nbtc.kernels.panels.panel_rows import PanelRows
from nbtc.numerics.models import OUTS

# Of 32 products in f32 the loop stores 2 vectors that it can't keep; as they are emitted 35, which took 3 % longer.
LEVEL = 1  # of LLVM's pipelines
_LOADED: list[Loaded] = []  # never unloaded: what an address says stays true


@cache
def _stamp() -> str:
    """A digest of the sources that decide what a form becomes."""
    return source_digest(Path(__file__).resolve())


def _addresses(functions: dict[str, Emitted], key: str) -> dict[str, int]:
    loaded = machine_code(functions, _stamp(), *functions, key, level=LEVEL)
    _LOADED.append(loaded)
    return {name: loaded.address(name) for name in functions}


def write_packer(
    v: VectorBuilder, how: Packing, fmt: Format, columns: bool, x: dict[str, Any], row: Processor | None = None
) -> Any:
    """The body of a packer of elements of a format, whose arguments are x; of columns, it gives the largest sum of
    fractions of a block of products.  row: the processor, this one if it is None.
    """
    b, source, scales, out = v.b, x["source"], x["scales"], x["out"]
    pk = PanelElements(v, how, fmt, source["params"], source["factor"], source["tiny"])
    args = {
        "x": v.at(source["x"], b.mul(source["first"], v.int(pk.size))), "ld": source["ld"], "places": x["places"],
        "tiles": x["end"], "out": out["values"], "exponents": out["exponents"], "signs": out["signs"],
        "special": x["special"], "scale_ld": scales["ld"], "row": row,
        "scale_exponents": v.at(scales["exponents"], b.mul(scales["first"], v.int(4))) if how.scaled else None,
    }  # fmt: skip
    side = (PanelColumns if columns else PanelRows)(v, how, pk, args)
    with cgutils.for_range_slice(b, x["begin"], x["end"], v.int(1), I64) as (index, _):
        side.write(index)
    return side.result()


@cache
def packer(packing: Packing, fmt: Format, columns: bool) -> int:
    """What packs rows of A, or columns of B, whose elements are of a format: a function of `PackArguments`."""
    pack = Emitted(PackArguments, lambda v, x: write_packer(v, packing, fmt, columns, x))
    return _addresses({"pack": pack}, repr((packing, fmt, columns)))["pack"]


@cache
def _sums(shape: SumShape, emulated: bool) -> dict[str, int]:
    """What sums blocks of products; emulated: also with a start at zero, and what adds such a tile."""
    functions = {"sums": Emitted(SumArguments, lambda v, x: write_sums(v, shape, x))}
    if emulated:
        from_zero = replace(shape, from_zero=True)
        functions["from_zero"] = Emitted(SumArguments, lambda v, x: write_sums(v, from_zero, x))
        functions["added"] = Emitted(AddArguments, lambda v, x: write_addition(v, shape, x))
    return _addresses(functions, shape.key)


@cache
def form(packing: Packing, fmt: Format, fraction: int, out: int, checked: bool, each_watched: bool) -> PanelForm:
    """A product's, whose elements of A are of a format; out: a code of `OUTS`, the others as `SumShape` has them."""
    target, name = host_processor() or GENERIC, {code: text for text, code in OUTS.items()}[out]
    full_range, emulated = bool(packing.full_range), bool(packing.emulated)
    shape = SumShape(
        target, bool(packing.in_f64), packing.block, fraction, name, full_range, checked, each_watched=each_watched,
        by_turns=bool(packing.by_turns), emulated=emulated, planes=target.lookup and not packing.by_turns,
    )  # fmt: skip
    rows = ahead(packer, packing, fmt, False)
    code = {"from_zero": 0, "added": 0} | _sums(shape, emulated)
    watched = full_range or each_watched
    return PanelForm(
        rows.result(), **code, block=shape.block, checked=int(checked), watched=int(watched),
        kept=shape.kept, zero=TINY_BITS if shape.tiny_zeros else 0,
    )  # fmt: skip
