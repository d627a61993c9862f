"""Recorded inputs on the machine's own GPU: its results, against nbtc's for the GPU's architecture.

For mma.sync, mma.sp and wgmma.  Each form becomes a PTX kernel of a few lines: load the registers of a lane (and, for
wgmma, the shared-memory image), execute the instruction once, store its registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import nbtc
from nbtc.errors import UnsupportedInstructionError
from nbtc.isa import inline
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row
from nbtc.verify.hardware.trial import Machine
from nbtc.verify.hardware.warpgroup import Variant, body, syntax
from nbtc.verify.replay import Array, Groups, Index, Recorded
from nbtc.verify.text import GROUP, UNIT, WARP, instruction_text, read_and_written


class Launch(NamedTuple):
    """A kernel, its launch, its inputs, and what its outputs hold before it."""

    text: str
    blocks: int
    threads: int
    shared: int
    inputs: list[Array]
    outputs: list[Array]


def cases(kind: str, groups: Groups, index: Index, machine: Machine) -> Iterator[Recorded]:
    """What `replay`'s generators give, with the GPU's results in the place of the recorded ones.

    Forms that the machine lacks, or whose arithmetic nbtc does not know there, are left out.
    """
    if kind not in _KINDS:
        return
    make, launch = _KINDS[kind]
    for head, x in groups.items():
        form = head.split("__")[0]
        entry = index[form]
        row = parse_row(entry["op"])
        if row.has(arch_row(machine.arch)):
            try:
                zero = head.endswith("scd0")
                call, kernel = make(row, entry, x, zero, machine.arch), launch(row, entry, x, zero)
                machine.run(*kernel)
                yield Recorded(form, call, kernel.outputs[0])
            except UnsupportedInstructionError:
                continue


def _mma(row: Row, entry: Any, x: dict[str, Array], zero: bool, arch: str) -> Any:
    more = {"meta": x["E"], "selector": entry["sel"]} if row.sparse else {}
    return partial(nbtc.instruction(row.mnemonic), x["A"], x["B"], x["C"], arch=arch, **more)


def mma_launch(row: Row, entry: Any, x: dict[str, Array], zero: bool) -> Launch:
    """A kernel for the register images of mma and mma.sp."""
    text, (reads, _) = instruction_text(row, WARP, {"selector": entry["sel"]}), read_and_written(row)
    return Launch(text, len(x["A"]), WARP, 0, [x[r.name.upper()] for r in reads], [np.zeros_like(x["D"])])


def _wgmma(row: Row, entry: Any, x: dict[str, Array], zero: bool, arch: str) -> Any:
    keywords: dict[str, Any] = {"scale_d": int(not zero)}
    keywords |= {f"scale_{n}": entry[f"s{n}"] for n in row.scales} | {f"trans_{n}": entry[f"t{n}"] for n in row.trans}
    if row.sparse:
        keywords |= {"meta": x["E"], "selector": entry["sel"]}
    a = x["A"] if entry["areg"] else x["desc"][:, 0]
    return partial(nbtc.ptx.wgmma, row.mnemonic, x["C"], a, x["desc"][:, 1], x["S"], arch=arch, **keywords)


def wgmma_launch(row: Row, entry: Any, x: dict[str, Array], zero: bool) -> Launch:
    """A kernel for the register images, shared-memory images and descriptors of wgmma."""
    scales = tuple((n, entry[f"s{n}"]) for n in row.scales)
    trans = tuple((n, entry[f"t{n}"]) for n in row.trans if not (n == "a" and entry["areg"]))
    form = Variant(row, bool(entry["areg"]), entry["sel"], scales, trans)
    blocks, size = len(x["S"]), -(-x["S"].shape[1] // UNIT) * UNIT
    image = np.zeros((blocks, size), np.uint8)
    image[:, : x["S"].shape[1]] = x["S"]
    a, b = (np.repeat(x["desc"][:, i : i + 1], GROUP, axis=1) for i in (0, 1))
    given: dict[str, Any] = {"d": x["C"], "a": x.get("A"), "e": x.get("E"), "descA": a, "descB": b}
    given["scaleD"] = np.full((blocks, GROUP), int(not zero), np.uint32)
    inputs = [given[r.name] for r in inline.operands(row, syntax(form))]
    return Launch(body(form, size), blocks, GROUP, size, [*inputs, image], [x["C"].copy()])


_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Launch]]] = {
    "mma": (_mma, mma_launch),
    "mma.sp": (_mma, mma_launch),
    "wgmma": (_wgmma, wgmma_launch),
}
