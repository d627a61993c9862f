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
from nbtc.numerics.dpx import ROWS, DpxRow
from nbtc.verify import text
from nbtc.verify.recorded import Launch, mma_launch, wgmma_launch
from nbtc.verify.replay import GENERATORS, Array, Groups, Index, Recorded, wmma_names
from nbtc.verify.text import GROUP, WARP

ARCH = "sm_90"  # of the GPU that recorded
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
PROGRAMS = 64  # that are kept loaded: the cases of one form follow each other
Call = Callable[[], Array]
_MODES = {"shfl": "idx", "shfl_up": "up", "shfl_down": "down", "shfl_xor": "bfly"}
_TYPES = {"int": "s32", "unsigned": "u32"}
_VOTES = {  # in the order of their recordings, and how many results each has
    "vote.sync.all.pred": 1, "vote.sync.any.pred": 1, "vote.sync.ballot.b32": 1, "match.any.sync.b32": 1,
    "match.all.sync.b32": 2,
}  # fmt: skip
LANES = np.arange(WARP, dtype=np.uint32)
ALIGN = 128  # bytes: of fragments in memory; more than any needs
_PROBES = {  # of descriptors, by the operand's bits: the product, and the binary digits that its values have
    8: ("m64n{n}k32.s32.s8.s8", 7),
    16: ("m64n{n}k16.f32.f16.f16", 11),
    32: ("m64n{n}k8.f32.tf32.tf32", 11),
}
PROBED = 16 << 10  # bytes of shared memory that the recorded descriptors reach


def cases(kind: str, groups: Groups, index: Index) -> Iterator[Recorded]:
    """What `replay`'s generators give, computed by programs; kinds that are no instructions are left out."""
    if kind in CALLS:
        for case, call in zip(GENERATORS[kind](groups, index), CALLS[kind](groups, index), strict=True):
            yield case._replace(call=call)


@lru_cache(PROGRAMS)
def _program(body: str) -> Any:
    return nbtc.load(HEAD + body)[text.ENTRY]


def launched(launch: Launch) -> list[Array]:
    """What a launch leaves in its outputs."""
    outputs, inputs = [x.copy() for x in launch.outputs], [np.ascontiguousarray(x) for x in launch.inputs]
    _program(launch.text).launch(launch.blocks, launch.threads, [*inputs, *outputs], shared=launch.shared, arch=ARCH)
    return outputs


def first(launch: Launch) -> Array:
    """What a launch leaves in its first output."""
    return launched(launch)[0]


def _products(make: Callable[..., Launch], groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        entry = index[head.split("__")[0]]
        yield partial(first, make(parse_row(entry["op"]), entry, x, head.endswith("scd0")))


def _wmma(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        names = wmma_names(index[head.split("__")[0]])
        images = [x[n] for n in "ABC"] + [np.zeros_like(x["D"])]
        parts = [np.pad(v, ((0, 0), (0, -v.shape[1] % ALIGN))) for v in images]
        at = [0, *np.cumsum([v.shape[1] for v in parts]).tolist()]
        loads = list(zip(names.loads, at[:3], strict=True))
        kernel = text.fragments_text(loads, parse_row(names.product), (names.store, at[3]), at[4])
        launch = Launch(kernel, len(x["A"]), WARP, 0, [], [np.concatenate(parts, axis=1)])
        yield partial(_part, launch, at[3], x["D"].shape[1])


def _part(launch: Launch, start: int, size: int) -> Array:
    return first(launch)[:, start : start + size]


def _moves(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        if head == "movmatrix":
            kernel = text.instruction_text(parse_row("movmatrix.sync.aligned.m8n8.trans.b16"))
            yield partial(first, Launch(kernel, len(x["in"]), WARP, 0, [x["in"]], [np.zeros_like(x["out"])]))
            continue
        row = parse_row(f"{head[:2]}matrix.sync.aligned.m8n8.x{head[5]}{'.trans' * head.endswith('trans')}.shared.b16")
        size = x["smem"].shape[1]
        inputs = [x["addr"], *([x["regs"]] if "regs" in x else []), x["smem"]]
        launch = Launch(text.matrices_text(row, size), len(x["smem"]), WARP, size, inputs, [np.zeros_like(x["out"])])
        yield partial(first, launch)


def _conversions(groups: Groups, index: Index) -> Iterator[Call]:
    inputs = groups["in"]
    for head, results in groups.items():
        for part, want in results.items() if head != "in" else ():
            x = inputs[part.removesuffix("pair")]
            words = [x, x[np.arange(x.size) ^ 1]] if part.endswith("pair") else [x]
            kernel = text.instruction_text(parse_row(head.replace("_", ".")), GROUP)
            yield partial(_converted, kernel, words, want.dtype)


def _converted(kernel: str, words: list[Array], dtype: Any) -> Array:
    return _elementwise(kernel, words, [np.dtype(dtype)])[0]


def _elementwise(kernel: str, words: list[Array], dtypes: list[Any]) -> list[Array]:
    """One element a thread: rounded up to whole blocks.  dtypes: of the results, one word or several an element."""
    size = len(words[0])
    blocks = -(-size // GROUP)
    inputs = [np.pad(w, (0, blocks * GROUP - size)) for w in words]
    outputs = [np.zeros(blocks * GROUP, dtype) for dtype in dtypes]
    return [x[:size] for x in launched(Launch(kernel, blocks, GROUP, 0, inputs, outputs))]


def _dpx(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        row = ROWS[head.removeprefix("__")]
        yield partial(_dpx_words, row, list(x["in"].T))


def _dpx_words(row: DpxRow, words: list[Array]) -> Array:
    """The value and, in a second column, the predicates as bits in argument order."""
    flags = [np.dtype((np.uint32, row.predicates))] if row.predicates else []
    value, *more = _elementwise(text.dpx_text(row.name, row.arity, GROUP), words, [np.uint32, *flags])
    bits = [np.bitwise_or.reduce(x << np.arange(x.shape[1], dtype=np.uint32), axis=1) for x in more]
    return np.stack([value, *bits], axis=1)


def _warp(groups: Groups, index: Index) -> Iterator[Call]:
    for head, x in groups.items():
        mask = np.repeat(x["mask"][:, None], WARP, axis=1)
        on = (mask >> LANES & np.uint32(1)).astype(bool)
        if head == "votes":
            for mnemonic, results in _VOTES.items():
                values = x["v"] & np.uint32(1) if mnemonic.startswith("vote") else x["v"]
                launch = _guarded(mnemonic, [values, mask], results)
                yield from (partial(_result, launch, i, on) for i in range(results))
        elif head.startswith("reduce"):
            _, operation, kind = head.split("_")
            bits = "b32" if operation in ("and", "or", "xor") else _TYPES[kind]
            whole = np.where(on, mask, ~mask)  # the other lanes reduce among themselves
            yield partial(first, _guarded(f"redux.sync.{operation}.{bits}", [x["v"], whole], 1))
        else:
            mode = next(m for name, m in sorted(_MODES.items(), reverse=True) if head.startswith(name))
            yield partial(_shuffled, mode, x, mask)


def _guarded(mnemonic: str, inputs: list[Array], results: int) -> Launch:
    """A launch of an instruction among the lanes of a mask, the last of the inputs."""
    row, shape = parse_row(mnemonic), inputs[0].shape
    kernel = text.guarded_text(row, keep=row.family in ("shfl.sync", "redux.sync"))
    return Launch(kernel, shape[0], WARP, 0, inputs, [np.zeros(shape, np.uint32) for _ in range(results)])


def _result(launch: Launch, number: int, on: Array) -> Array:
    return launched(launch)[number][on]


def _shuffled(mode: str, x: dict[str, Array], mask: Array) -> Array:
    """A shuffle of values of 2, 4 or 8 bytes: in one word, or in two."""
    values = x["v"] if x["v"].itemsize >= 4 else x["v"].astype(np.uint32)
    words = np.ascontiguousarray(values).view(np.uint32).reshape(*values.shape, -1)
    c = (WARP - x["width"]) << 8 | (0 if mode == "up" else WARP - 1)
    more = [x["b"], np.repeat(c.astype(np.uint32)[:, None], WARP, axis=1), mask]
    parts = [first(_guarded(f"shfl.sync.{mode}.b32", [part, *more], 2)) for part in np.moveaxis(words, -1, 0)]
    return np.ascontiguousarray(np.stack(parts, axis=-1)).view(values.dtype)[..., 0].astype(x["v"].dtype)


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
        d = nbtc.instruction(mnemonic).unpack_d(first(wgmma_launch(row, entry, arrays, True)))
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
