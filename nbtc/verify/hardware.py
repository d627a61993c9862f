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
from nbtc.verify.gpu import Gpu
from nbtc.verify.replay import Array, Case, Groups, Index

WARP, GROUP = 32, 128


def cases(kind: str, groups: Groups, index: Index, gpu: Gpu) -> Iterator[Case]:
    """What `replay`'s generators give, with the GPU's results in the place of the recorded ones.

    Forms that the GPU lacks, or whose arithmetic nbtc does not know there, are left out.
    """
    make = _KINDS.get(kind)
    if make is None:
        return
    for head, x in groups.items():
        form = head.split("__")[0]
        entry = index[form]
        row = parse_row(entry["op"])
        if row.has(arch_row(gpu.arch)):
            try:
                yield make(form, row, entry, x, head.endswith("scd0"), gpu)
            except UnsupportedInstructionError:
                continue


def _mma(form: str, row: Row, entry: Any, x: dict[str, Array], zero: bool, gpu: Gpu) -> Case:
    more = {"meta": x["E"], "selector": entry["sel"]} if row.sparse else {}
    call = partial(nbtc.instruction(row.mnemonic), x["A"], x["B"], x["C"], arch=gpu.arch, **more)
    inputs = {name.lower(): x[name] for name in ("A", "B", "C", "E") if name in x}
    double = row.d is not None and row.d.format.bits == 64
    text = mma_text(row, {name: registers(v) for name, v in inputs.items()}, entry["sel"], double)
    out = np.zeros_like(x["D"])
    gpu.launch(text, len(x["A"]), WARP, 0, list(inputs.values()), out)
    return Case(form, call, out)


def _wgmma(form: str, row: Row, entry: Any, x: dict[str, Array], zero: bool, gpu: Gpu) -> Case:
    keywords: dict[str, Any] = {"scale_d": int(not zero)}
    keywords |= {f"scale_{n}": entry[f"s{n}"] for n in row.scales} | {f"trans_{n}": entry[f"t{n}"] for n in row.trans}
    if row.sparse:
        keywords |= {"meta": x["E"], "selector": entry["sel"]}
    a = x["A"] if entry["areg"] else x["desc"][:, 0]
    call = partial(nbtc.ptx.wgmma, row.mnemonic, x["C"], a, x["desc"][:, 1], x["S"], arch=gpu.arch, **keywords)
    inputs = {"a": x["A"]} if entry["areg"] else {}
    inputs |= {"c": x["C"]} | ({"e": x["E"]} if row.sparse else {})
    image = np.zeros((len(x["S"]), -(-x["S"].shape[1] // 16) * 16), np.uint8)
    image[:, : x["S"].shape[1]] = x["S"]
    immediates = [*(str(entry[f"s{n}"]) for n in row.scales)]
    immediates += [str(entry[f"t{n}"]) for n in row.trans if not (n == "a" and entry["areg"])]
    sizes = {name: registers(v) for name, v in inputs.items()}
    text = wgmma_text(row, sizes, image.shape[1], entry["sel"], not zero, immediates)
    out = x["C"].copy()
    gpu.launch(text, len(image), GROUP, image.shape[1], [*inputs.values(), image, x["desc"]], out)
    return Case(form, call, out)


_KINDS: dict[str, Callable[..., Case]] = {"mma": _mma, "mma.sp": _mma, "wgmma": _wgmma}


def registers(image: Array) -> int:
    """Words a lane of a register image; a metadata image has no register axis."""
    return image.shape[2] if image.ndim == 3 else 1


def mma_text(row: Row, sizes: dict[str, int], selector: int, double: bool) -> str:
    """A kernel that executes a warp-level product once a block.  sizes: words a lane of each input, in its order."""
    result = row.d.registers if row.d is not None else sizes["c"]
    lines = [_load(name, n, at) for at, (name, n) in enumerate(sizes.items())]
    operands = [_vector(name, n, double) for name, n in (("d", result), *((k, sizes[k]) for k in "abc"))]
    if double:
        lines += [_join(name, sizes[name]) for name in "abc"]
    tail = f", e0, {selector}" if row.sparse else ""
    lines.append(f"{row.mnemonic} {', '.join(operands)}{tail};")
    lines += [f"mov.b64 {{d{2 * i}, d{2 * i + 1}}}, dd{i};" for i in range(result // 2)] if double else []
    lines.append(_store("d", result, len(sizes)))
    declared = {**sizes, "d": result}
    return _entry(declared, len(sizes) + 1, lines, WARP, doubles=double)


def wgmma_text(row: Row, sizes: dict[str, int], image: int, selector: int, add: bool, immediates: list[str]) -> str:
    """A kernel that executes a warpgroup product once a block on its own shared-memory image."""
    lines = [_load(name, n, at) for at, (name, n) in enumerate(sizes.items())]
    at = len(sizes)
    lines += [
        f"ld.param.u64 q0, [p{at}]; mad.wide.u32 q0, block, {image}, q0;",
        "mul.wide.u32 q1, thread, 16; add.u64 q0, q0, q1;",
        "mov.u32 from, smem; shl.b32 to, thread, 4; mov.u32 count, to; add.u32 to, from, to;",
        f"copy: setp.ge.u32 done, count, {image}; @done bra copied;",
        "ld.global.v4.b32 {w0, w1, w2, w3}, [q0]; st.shared.v4.b32 [to], {w0, w1, w2, w3};",
        f"add.u64 q0, q0, {16 * GROUP}; add.u32 to, to, {16 * GROUP}; add.u32 count, count, {16 * GROUP}; bra copy;",
        "copied: fence.proxy.async; bar.sync 0;",
        # descriptors were recorded relative to the image
        f"ld.param.u64 q0, [p{at + 1}]; mad.wide.u32 q0, block, 16, q0; ld.global.v2.u64 {{da, db}}, [q0];",
        "shr.u32 from, from, 4; cvt.u64.u32 q1, from; add.u64 da, da, q1; add.u64 db, db, q1;",
        f"setp.ne.u32 done, {int(add)}, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    a = _vector("a", sizes["a"], False) if "a" in sizes else "da"
    meta = [f"e0, {selector}"] if row.sparse else []
    operands = [_vector("c", sizes["c"], False), a, "db", *meta, "done", *immediates]
    lines += [
        f"{row.mnemonic} {', '.join(operands)};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        _store("c", sizes["c"], at + 2),
    ]
    return ".extern .shared .align 1024 .b8 smem[];\n" + _entry(sizes, at + 3, lines, GROUP)


def _entry(declared: dict[str, int], parameters: int, lines: list[str], threads: int, doubles: bool = False) -> str:
    names = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    head = [
        *(f".reg .b32 {name}<{n}>;" for name, n in declared.items()),
        *(f".reg .b64 d{name}<{n}>;" for name, n in declared.items() if doubles and name in "abcd"),
        ".reg .b32 thread, block, lane, from, to, count, w<4>; .reg .b64 q<2>, da, db; .reg .pred done;",
        f"mov.u32 thread, %tid.x; mov.u32 block, %ctaid.x; mad.lo.u32 lane, block, {threads}, thread;",
    ]
    return "\n".join([f".visible .entry replay({names})", "{", *head, *lines, "ret;", "}"])


def _load(name: str, count: int, parameter: int) -> str:
    loads = " ".join(f"ld.global.b32 {name}{i}, [q0+{4 * i}];" for i in range(count))
    return f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, lane, {4 * count}, q0; {loads}"


def _store(name: str, count: int, parameter: int) -> str:
    stores = " ".join(f"st.global.b32 [q0+{4 * i}], {name}{i};" for i in range(count))
    return f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, lane, {4 * count}, q0; {stores}"


def _join(name: str, count: int) -> str:
    return " ".join(f"mov.b64 d{name}{i}, {{{name}{2 * i}, {name}{2 * i + 1}}};" for i in range(count // 2))


def _vector(name: str, count: int, double: bool) -> str:
    names = [f"d{name}{i}" for i in range(count // 2)] if double else [f"{name}{i}" for i in range(count)]
    return "{" + ", ".join(names) + "}"
