"""Recorded inputs on the machine's own GPU: its results, against nbtc's for the GPU's architecture.

For mma.sync, mma.sp and wgmma.  Each form becomes a PTX kernel of a few lines: load the registers of a lane (and, for
wgmma, the shared-memory image), execute the instruction once, store its registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import nbtc
from nbtc.errors import UnsupportedInstructionError
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import row as parse_row
from nbtc.isa.spec import Row
from nbtc.verify.hardware.trial import Machine
from nbtc.verify.replay import Array, Case, Groups, Index
from nbtc.verify.text import GROUP, WARP, Launch, mma_text, registers, wgmma_text


def cases(kind: str, groups: Groups, index: Index, machine: Machine) -> Iterator[Case]:
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
                machine.run(*kernel[:-1], [kernel.out])
                yield Case(form, call, kernel.out)
            except UnsupportedInstructionError:
                continue


def _mma(row: Row, entry: Any, x: dict[str, Array], zero: bool, arch: str) -> Any:
    more = {"meta": x["E"], "selector": entry["sel"]} if row.sparse else {}
    return partial(nbtc.instruction(row.mnemonic), x["A"], x["B"], x["C"], arch=arch, **more)


def mma_launch(row: Row, entry: Any, x: dict[str, Array], zero: bool) -> Launch:
    """A kernel for the register images of mma and mma.sp."""
    inputs = {name.lower(): x[name] for name in ("A", "B", "C", "E") if name in x}
    double = row.d is not None and row.d.format.bits == 64
    text = mma_text(row, {name: registers(v) for name, v in inputs.items()}, entry["sel"], double)
    return Launch(text, len(x["A"]), WARP, 0, list(inputs.values()), np.zeros_like(x["D"]))


def _wgmma(row: Row, entry: Any, x: dict[str, Array], zero: bool, arch: str) -> Any:
    keywords: dict[str, Any] = {"scale_d": int(not zero)}
    keywords |= {f"scale_{n}": entry[f"s{n}"] for n in row.scales} | {f"trans_{n}": entry[f"t{n}"] for n in row.trans}
    if row.sparse:
        keywords |= {"meta": x["E"], "selector": entry["sel"]}
    a = x["A"] if entry["areg"] else x["desc"][:, 0]
    return partial(nbtc.ptx.wgmma, row.mnemonic, x["C"], a, x["desc"][:, 1], x["S"], arch=arch, **keywords)


def wgmma_launch(row: Row, entry: Any, x: dict[str, Array], zero: bool) -> Launch:
    """A kernel for the register images, shared-memory images and descriptors of wgmma."""
    inputs = {"a": x["A"]} if entry["areg"] else {}
    inputs |= {"c": x["C"]} | ({"e": x["E"]} if row.sparse else {})
    image = np.zeros((len(x["S"]), -(-x["S"].shape[1] // 16) * 16), np.uint8)
    image[:, : x["S"].shape[1]] = x["S"]
    immediates = [*(str(entry[f"s{n}"]) for n in row.scales)]
    immediates += [str(entry[f"t{n}"]) for n in row.trans if not (n == "a" and entry["areg"])]
    sizes = {name: registers(v) for name, v in inputs.items()}
    text = wgmma_text(row, sizes, image.shape[1], entry["sel"], not zero, immediates)
    return Launch(text, len(image), GROUP, image.shape[1], [*inputs.values(), image, x["desc"]], x["C"].copy())


_KINDS: dict[str, tuple[Callable[..., Any], Callable[..., Launch]]] = {
    "mma": (_mma, mma_launch),
    "mma.sp": (_mma, mma_launch),
    "wgmma": (_wgmma, wgmma_launch),
}
