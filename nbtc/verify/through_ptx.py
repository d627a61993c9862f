"""Recorded inputs through PTX text: each form becomes a kernel of a few lines that nbtc runs as a program.

The calls stand in for those of `replay`, in the same order, and must give the same words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np

import nbtc
from nbtc.formats.arrays import as_format
from nbtc.isa.parse import row as parse_row
from nbtc.numerics.dpx import ROWS
from nbtc.verify import text
from nbtc.verify.recorded import mma_launch, wgmma_launch
from nbtc.verify.replay import GENERATORS, Array, Case, Groups, Index, wmma_names
from nbtc.verify.text import GROUP, WARP, Fragment, Launch

ARCH = "sm_90"  # of the GPU that recorded
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
PROGRAMS = 64  # that are kept loaded: the cases of one form follow each other
Call = Callable[[], Array]
_MODES = {"shfl": "idx", "shfl_up": "up", "shfl_down": "down", "shfl_xor": "bfly"}
_TYPES = {"int": "s32", "unsigned": "u32"}
_PROBES = {  # of descriptors, by the operand's bits: the product, and the binary digits that its values have
    8: ("m64n{n}k32.s32.s8.s8", 7),
    16: ("m64n{n}k16.f32.f16.f16", 11),
    32: ("m64n{n}k8.f32.tf32.tf32", 11),
}
PROBED = 16 << 10  # bytes of shared memory that the recorded descriptors reach


def cases(kind: str, groups: Groups, index: Index) -> Iterator[Case]:
    """What `replay`'s generators give, computed by programs; kinds that are no instructions are left out."""
    if kind in CALLS:
        for case, call in zip(GENERATORS[kind](groups, index), CALLS[kind](groups, index), strict=True):
            yield case._replace(call=call)


@lru_cache(PROGRAMS)
def _program(body: str) -> Any:
    return nbtc.load(HEAD + body)["replay"]


def launched(launch: Launch) -> Array:
    """What a launch leaves in its output."""
    out, inputs = launch.out.copy(), [np.ascontiguousarray(x) for x in launch.inputs]
    _program(launch.text).launch(launch.blocks, launch.threads, [*inputs, out], shared=launch.shared, arch=ARCH)
    return out


def _products(make: Callable[..., Launch], groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        entry = index[head.split("__")[0]]
        yield partial(launched, make(parse_row(entry["op"]), entry, x, head.endswith("scd0")))


def _wmma(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        names = wmma_names(index[head.split("__")[0]])
        loads = {n: _fragment(m, x[n.upper()]) for n, m in zip("abc", names.loads, strict=True)}
        kernel = text.wmma_text(loads, names.product, _fragment(names.store, x["D"]))
        inputs = [x[n] for n in "ABC"]
        yield partial(launched, Launch(kernel, len(x["A"]), WARP, 0, inputs, np.zeros_like(x["D"])))


def _fragment(mnemonic: str, image: Array) -> Fragment:
    row = parse_row(mnemonic)
    operand = next(o for o in (row.a, row.b, row.c, row.d) if o is not None)
    wide = max(32, operand.format.bits)
    return Fragment(mnemonic, operand.registers * 32 // wide, wide, image.shape[1])


def _moves(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        if head == "movmatrix":
            out = np.zeros_like(x["out"])
            yield partial(launched, Launch(text.movmatrix_text(), len(x["in"]), WARP, 0, [x["in"]], out))
            continue
        num, trans = int(head[5]), ".trans" * head.endswith("trans")
        name = f"matrix.sync.aligned.m8n8.x{num}{trans}.shared.b16"
        image = x["smem"].shape[1]
        if head.startswith("ldm"):
            kernel, inputs = text.ldmatrix_text(f"ld{name}", num, image), [x["smem"], x["addr"]]
        else:
            kernel, inputs = text.stmatrix_text(f"st{name}", num, image), [x["smem"], x["addr"], x["regs"]]
        yield partial(launched, Launch(kernel, len(x["smem"]), WARP, image, inputs, np.zeros_like(x["out"])))


def _conversions(groups: Groups, index: Index) -> Iterator[Call]:
    inputs = groups["in"]
    for head, results in groups.items():
        for part, want in results.items() if head != "in" else ():
            x = inputs[part.removesuffix("pair")]
            words = [x, x[np.arange(x.size) ^ 1]] if part.endswith("pair") else [x]
            size = 8 * x.itemsize, 8 * want.itemsize
            kernel = text.convert_text(head.replace("_", "."), len(words), *size)
            yield partial(_elementwise, kernel, words, want.dtype)


def _elementwise(kernel: str, words: list[Array], dtype: Any, columns: tuple[int, ...] = ()) -> Array:
    """One element (of several words) a thread: rounded up to whole blocks."""
    size = len(words[0])
    blocks = -(-size // GROUP)
    inputs = [np.concatenate([w, np.zeros((blocks * GROUP - size, *w.shape[1:]), w.dtype)]) for w in words]
    return launched(Launch(kernel, blocks, GROUP, 0, inputs, np.zeros((blocks * GROUP, *columns), dtype)))[:size]


def _dpx(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        row = ROWS[head.removeprefix("__")]
        yield partial(_elementwise, text.dpx_text(row), [x["in"]], np.uint32, (1 + row.predicate,))


def _warp(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        count = len(x["v"])
        if head == "votes":
            launch = Launch(
                text.votes_text(), count, WARP, 0, [x["v"], x["mask"]], np.zeros((count, WARP, 6), np.uint32)
            )
            on = (x["mask"][:, None] >> np.arange(WARP, dtype=np.uint32) & np.uint32(1)).astype(bool)
            yield from (partial(_column, launch, i, on) for i in range(6))
        elif head.startswith("reduce"):
            _, operation, kind = head.split("_")
            bits = "b32" if operation in ("and", "or", "xor") else _TYPES[kind]
            kernel = text.reduce_text(f"{operation}.{bits}")
            yield partial(launched, Launch(kernel, count, WARP, 0, [x["v"], x["mask"]], np.zeros_like(x["out"])))
        else:
            mode = next(m for name, m in sorted(_MODES.items(), reverse=True) if head.startswith(name))
            yield partial(_shuffled, mode, x)


def _column(launch: Launch, column: int, on: Array) -> Array:
    return launched(launch)[..., column][on]


def _shuffled(mode: str, x: dict[str, Array]) -> Array:
    """A shuffle of values of 2, 4 or 8 bytes: in one word, or in two."""
    values = x["v"] if x["v"].itemsize >= 4 else x["v"].astype(np.uint32)
    words = np.ascontiguousarray(values).view(np.uint32)
    kernel = text.shuffle_text(mode, values.itemsize // 4)
    launch = Launch(kernel, len(values), WARP, 0, [words, x["mask"], x["b"], x["width"]], np.zeros_like(words))
    return launched(launch).view(values.dtype).astype(x["v"].dtype)


def _descriptors(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        operand, major = head.split("_")[:2]
        yield partial(_addresses, operand[0], int(operand[1:]), major, x["desc"], x["addr"].shape[1:])


def _addresses(operand: str, bits: int, major: str, fields: Array, shape: tuple[int, int]) -> Array:
    """Byte offsets of the elements that descriptors make wgmma fetch: products of a memory that holds its own
    addresses, a few bits at a time, with the identity."""
    types, digits = _PROBES[bits]
    count, depth = shape
    width = count if operand == "B" else max(8, depth)
    mnemonic = "wgmma.mma_async.sync.aligned." + types.format(n=width)
    row, size = parse_row(mnemonic), bits // 8
    fmt = as_format(types.split(".")[-1])
    identity = nbtc.instruction(mnemonic).pack_a(np.eye(64, depth).astype(fmt.dtype))
    tile, other = nbtc.wgmma.tile_to_smem(np.eye(width, depth).astype(fmt.dtype), fmt, "k")
    other = nbtc.wgmma.Descriptor(PROBED, other.leading, other.stride)
    swizzles = {0: "none", 1: "128B", 2: "64B", 3: "32B"}
    given = [
        nbtc.wgmma.Descriptor(start, leading, stride, base_offset=base, swizzle=swizzles[mode]).encode()
        for start, leading, stride, mode, base in fields.tolist()
    ]
    pairs = np.array([(other.encode(), d) if operand == "B" else (d, other.encode()) for d in given], np.uint64)
    turned = {"ta": int(operand == "A" and major == "mn"), "tb": int(operand == "B" and major == "mn")}
    entry: Mapping[str, Any] = {"areg": operand == "B", "sel": 0, "sa": 1, "sb": 1, **turned}
    found: Any = 0
    for shift in range(0, (PROBED // size).bit_length() - 1, digits):
        own = np.arange(PROBED // size) >> shift & (1 << digits) - 1
        memory = np.concatenate([own.astype(fmt.dtype).view(np.uint8), tile])
        arrays = {
            "S": np.tile(memory, (len(given), 1)),
            "desc": pairs,
            "C": np.zeros((len(given), GROUP, row.d.registers), np.uint32),  # type: ignore[union-attr]
        }
        if operand == "B":
            arrays["A"] = np.tile(identity, (len(given), 1, 1))
        d = nbtc.instruction(mnemonic).unpack_d(launched(wgmma_launch(row, entry, arrays, True)))
        values = np.asarray(d).astype(np.int64)
        values = values[:, :count, :depth] if operand == "A" else values[:, :depth, :count].transpose(0, 2, 1)
        found = found | values << shift
    return np.asarray(found * size, np.int64)


CALLS: dict[str, Callable[[Groups, Index], Iterator[Call]]] = {
    "mma": partial(_products, mma_launch),
    "mma.sp": partial(_products, mma_launch),
    "wgmma": partial(_products, wgmma_launch),
    "wmma": _wmma,
    "move": _moves,
    "cvt": _conversions,
    "dpx": _dpx,
    "warp": _warp,
    "descriptors": _descriptors,
}
