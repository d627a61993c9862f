"""One generator per kind of recording: stored arrays in, calls and the words they must give out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import nbtc
from nbtc.formats.arrays import as_format
from nbtc.testing import raw_bits

Array = NDArray[Any]
Index = Mapping[str, Mapping[str, Any]]
Groups = dict[str, dict[str, Array]]
_SWIZZLES = {0: "none", 1: "128B", 2: "64B", 3: "32B"}
_WARP_TYPES = {"int": "i4", "unsigned": "u4", "float": "f4", "long_long": "i8", "double": "f8", "half": "f2"}
_GEMM_SPLIT = {"seq": None, "promo4": 128}
_NAMES = {
    "move": r"(ldm|stm)_x|movmatrix__",
    "cvt": r"cvt_|in__",
    "wmma maps": r"wmap_",
    "warp": r"shfl|reduce_|votes__",
    "descriptors": r"[AB]\d+_(k|mn)",
    "matmul": r".*__\d+x\d+x\d+__",
}


class Recorded(NamedTuple):
    """One recorded result: the form it belongs to, the call that must reproduce it, and its words."""

    form: str
    call: Callable[[], Any]
    want: Array


def kind_of(key: str, index: Index) -> str:
    """Which generator replays the arrays of a key: the form's kind, or what its name says; "unknown" if neither."""
    if key.startswith("__vi"):
        return "dpx"
    form = key.split("__")[0]
    if form in index:
        kind = str(index[form]["kind"])
        return "mma" if kind == "mma884" else kind
    return next((kind for kind, pattern in _NAMES.items() if re.match(pattern, key)), "unknown")


def _mma(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        form = head.split("__")[0]
        entry = index[form]
        more = {"meta": x["E"], "selector": entry["sel"]} if "E" in x else {}
        yield Recorded(form, partial(_instruction, entry["op"], x["A"], x["B"], x["C"], arch="sm_90", **more), x["D"])


def _instruction(mnemonic: str, a: Array, b: Array, c: Array, **keywords: Any) -> Array:
    return np.asarray(nbtc.instruction(mnemonic)(a, b, c, **keywords))


def _wgmma(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        form = head.split("__")[0]
        entry = index[form]
        keywords: dict[str, Any] = {
            "scale_d": int(not head.endswith("scd0")),
            "scale_a": entry["sa"],
            "scale_b": entry["sb"],
            "trans_a": entry["ta"],
            "trans_b": entry["tb"],
        }
        if entry["sparse"]:
            keywords.update(meta=x["E"], selector=entry["sel"])
        a = x["A"] if entry["areg"] else x["desc"][:, 0]
        call = partial(nbtc.ptx.wgmma, entry["op"], x["C"], a, x["desc"][:, 1], x["S"], arch="sm_90", **keywords)
        yield Recorded(form, call, x["D"])


def _wmma(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        form = head.split("__")[0]
        yield Recorded(form, partial(_wmma_product, index[form], x["A"], x["B"], x["C"], x["D"].shape), x["D"])


class WmmaNames(NamedTuple):
    """The instructions of one product: loads of a, b and c, the product, the store."""

    loads: tuple[str, str, str]
    product: str
    store: str


def wmma_names(entry: Mapping[str, Any]) -> WmmaNames:
    """The mnemonics of a recorded product."""
    size, element = "m{m}n{n}k{k}".format(**entry), entry["at"]
    middle = f"sync.aligned.{entry['al']}.{entry['bl']}.{size}"
    if entry["bop"]:
        mma = f"wmma.mma.{entry['bop']}.popc.{middle}.s32.b1.b1.s32"
    elif element == "f16":
        mma = f"wmma.mma.{middle}.{entry['dt']}.{entry['ct']}"
    else:
        mma = f"wmma.mma.{middle}.{entry['dt']}.{element}.{element}.{entry['ct']}"
    loads = (("a", entry["al"], element), ("b", entry["bl"], element), ("c", "row", entry["ct"]))
    a, b, c = (f"wmma.load.{name}.sync.aligned.{layout}.{size}.{t}" for name, layout, t in loads)
    store = f"wmma.store.d.sync.aligned.row.{size}.{entry['dt']}"
    return WmmaNames((a, b, c), mma + ".satfinite" * entry["sat"], store)


def _wmma_product(entry: Mapping[str, Any], a: Array, b: Array, c: Array, shape: tuple[int, ...]) -> Array:
    """One batch of 16x16-like products from memory images to a memory image, through the PTX functions."""
    names = wmma_names(entry)
    ra, rb, rc = (nbtc.ptx.wmma_load(name, memory) for name, memory in zip(names.loads, (a, b, c), strict=True))
    d = nbtc.ptx.wmma_mma(names.product, ra, rb, rc, arch="sm_90")
    out = np.zeros(shape, np.uint8)
    nbtc.ptx.wmma_store(names.store, out, d)
    return out


def _maps(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        yield Recorded(head, partial(_map, head), np.stack([x["row"], x["col"]]).astype(np.int64))


def _map(name: str) -> Array:
    """(row, col) of each lane's elements, read off fragments of matrices that hold the bits of their own indices."""
    w = nbtc.wmma
    _, use, shape, element, *rest = name.split("_")
    m, n, k = (int(v) for v in shape.split("x"))
    rows, cols = {"a": (m, k), "b": (k, n), "c": (m, n)}[use]
    fmt = as_format(rest[0] if use == "c" else element)
    by_row = rest[-1] == "row"
    types = {"tf32": w.precision.tf32, "s4": w.experimental.precision.s4, "u4": w.experimental.precision.u4}
    kind = types.get(fmt.name) or (w.experimental.precision.b1 if fmt.bits == 1 else fmt)
    out = []
    for axis in range(2):
        index = np.indices((rows, cols))[axis]
        found: Any = 0
        for bit in range(max(1, (index.max()).item().bit_length())):
            matrix = index >> bit & 1
            flat = np.ascontiguousarray(matrix if by_row else matrix.T).reshape(-1)
            memory = nbtc.pack(flat.astype(np.int8), fmt) if fmt.packed else flat.astype(fmt.dtype)
            stride = cols if by_row else rows
            if use == "c":
                fragment = w.fragment(w.accumulator, m, n, k, kind)
                w.load_matrix_sync(fragment, memory, stride, w.mem_row_major if by_row else w.mem_col_major)
            else:
                where = w.matrix_a if use == "a" else w.matrix_b
                fragment = w.fragment(where, m, n, k, kind, w.row_major if by_row else w.col_major)
                w.load_matrix_sync(fragment, memory, stride)
            held = np.asarray(fragment.x).T
            if held.shape[1] != fragment.num_elements:  # storage words of several elements
                held = nbtc.unpack(np.ascontiguousarray(held).view(np.uint32), fmt)
            found = found | held.astype(np.float32).astype(np.int64) << bit
        out.append(found)
    return np.stack(out)


def _move(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        if head == "movmatrix":
            yield Recorded(head, partial(nbtc.ptx.movmatrix, x["in"]), x["out"])
            continue
        num, trans = int(head[5]), head.endswith("trans")
        if head.startswith("ldm"):
            yield Recorded(head, partial(nbtc.ptx.ldmatrix, x["smem"], x["addr"], num, trans), x["out"])
        else:
            yield Recorded(head, partial(_stored, x["smem"], x["addr"], x["regs"], num, trans), x["out"])


def _stored(smem: Array, addr: Array, regs: Array, num: int, trans: bool) -> Array:
    image = smem.copy()
    nbtc.ptx.stmatrix(image, addr, regs, num, trans)
    return image


def _cvt(groups: Groups, index: Index) -> Iterator[Recorded]:
    inputs = groups["in"]
    for head, results in groups.items():
        if head == "in":
            continue
        for part, want in results.items():
            x = inputs[part.removesuffix("pair")]
            words = (x, x[np.arange(x.size) ^ 1]) if part.endswith("pair") else (x,)
            yield Recorded(head, partial(nbtc.ptx.cvt, head.replace("_", "."), *words), want)


def _dpx(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        name = head.removeprefix("__")
        arguments = [np.ascontiguousarray(v).view(np.int32 if "_s32" in name else np.uint32) for v in x["in"].T]
        yield Recorded(name, partial(_dpx_result, name, arguments), x["out"])


def _dpx_result(name: str, arguments: list[Array]) -> Array:
    """The value and, in a second column, the predicates as bits in argument order."""
    got = getattr(nbtc.dpx, name)(*arguments)
    if not isinstance(got, tuple):
        return np.asarray(got).view(np.uint32)[:, None]
    value, *flags = got
    bits = sum(np.asarray(flag).astype(np.uint32) << np.uint32(i) for i, flag in enumerate(flags))
    return np.stack([np.asarray(value).view(np.uint32), np.asarray(bits, np.uint32)], 1)


def _warp(groups: Groups, index: Index) -> Iterator[Recorded]:
    lanes = np.arange(32, dtype=np.uint32)
    for head, x in groups.items():
        mask = x["mask"].astype(np.uint32)[:, None]
        on = (mask >> lanes & np.uint32(1)).astype(bool)
        if head == "votes":
            yield from _votes(x["v"], mask, on, x["out"])
        elif head.startswith("reduce"):
            _, op, kind = head.split("_")
            values = x["v"].view(_WARP_TYPES[kind])
            call = partial(_reduce, op, mask, values, on)
            yield Recorded(head, call, raw_bits(x["out"]))
        else:
            op, _, kind = re.fullmatch(r"(shfl(_up|_down|_xor)?)_(.*)", head).groups()  # type: ignore[union-attr]
            values = _typed(x["v"], kind)
            call = partial(getattr(nbtc.warp, f"{op}_sync"), mask, values, x["b"], x["width"][:, None])
            yield Recorded(head, call, np.where(on, x["out"], x["v"]).astype(x["v"].dtype))


def _typed(words: Array, kind: str) -> Array:
    if kind in _WARP_TYPES:
        return words.view(_WARP_TYPES[kind])
    return words.view(as_format("bf16").dtype) if kind == "bfloat16" else words.view(np.uint32)


def _reduce(op: str, mask: Array, values: Array, on: Array) -> Array:
    """Lanes of the mask reduce among themselves, and the others among themselves."""
    reduce = getattr(nbtc.warp, f"reduce_{op}_sync")
    rest = np.bitwise_not(mask)
    inside, outside = reduce(mask, values), values
    some = (rest != 0)[:, 0]
    outside = values.copy()
    if some.any():
        outside[some] = reduce(rest[some], values[some])
    return raw_bits(np.where(on, inside, outside))


def _votes(v: Array, mask: Array, on: Array, out: Array) -> Iterator[Recorded]:
    w, bit = nbtc.warp, v & 1
    calls: dict[str, Callable[[], Any]] = {
        "all": lambda: w.all_sync(mask, bit),
        "any": lambda: w.any_sync(mask, bit),
        "ballot": lambda: w.ballot_sync(mask, bit),
        "match_any": lambda: w.match_any_sync(mask, v),
        "match_all": lambda: w.match_all_sync(mask, v)[0],
        "match_all predicate": lambda: w.match_all_sync(mask, v)[1],
    }
    for i, (name, call) in enumerate(calls.items()):
        yield Recorded(name, partial(_inside, call, on), out[..., i][on].astype(np.uint32))


def _inside(call: Callable[[], Any], on: Array) -> Array:
    return np.broadcast_to(np.asarray(call()), on.shape)[on].astype(np.uint32)


def _descriptors(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        operand, major = head.split("_")[:2]
        fmt = {8: "s8", 16: "f16", 32: "tf32"}[int(operand[1:])]
        yield Recorded(
            head, partial(_addresses, x["desc"], x["addr"].shape[1:], fmt, major), x["addr"].astype(np.int64)
        )


def _addresses(fields: Array, shape: tuple[int, int], fmt: str, major: str) -> Array:
    mn, k = np.indices(shape)
    out = []
    for start, leading, stride, mode, base in fields.tolist():
        d = nbtc.wgmma.Descriptor(start, leading, stride, base_offset=base, swizzle=_SWIZZLES[mode])
        out.append(np.asarray(d.address(mn, k, fmt, major=major)))
    return np.stack(out).astype(np.int64)


def _matmul(groups: Groups, index: Index) -> Iterator[Recorded]:
    for head, x in groups.items():
        if "order" not in x:
            continue
        order = str(x["order"])
        chunk = re.fullmatch(r"split\d+x(\d+)", order)
        if order not in _GEMM_SPLIT and chunk is None:
            continue  # an order that no k_split expresses: recorded for those who study libraries
        split = int(chunk.group(1)) if chunk else _GEMM_SPLIT[order]
        tag, shape = head.split("__")
        kind = tag.split("_")[0]
        source = groups[f"{kind}__{shape}"]
        f16_or_bf16 = next((t for t in tag.split("_")[1:] if t in ("f16", "bf16")), kind)
        out = as_format(f16_or_bf16) if x["R"].dtype.itemsize == 2 else None
        yield Recorded(f"{tag} {shape}", partial(_library_product, kind, source["A"], source["B"], split, out), x["R"])


def _library_product(kind: str, a: Array, b: Array, split: int | None, out: Any) -> Array:
    names = (kind[:4], kind[4:]) if len(kind) == 8 else (kind, kind)
    if kind == "tf32":  # the library rounds its operands to nearest even first
        a, b = (nbtc.convert(x.view(np.float32), "tf32", rounding="rn").view(np.uint32) for x in (a, b))
    a, b = (np.ascontiguousarray(x).view(as_format(name).dtype) for x, name in zip((a, b), names, strict=True))
    d: Array = nbtc.matmul(a, b, arch="sm_90", k_split=split)
    return d if out is None else np.asarray(d.astype(out.dtype))


GENERATORS: dict[str, Callable[[Groups, Index], Iterator[Recorded]]] = {
    "mma": _mma,
    "mma.sp": _mma,
    "wgmma": _wgmma,
    "wmma": _wmma,
    "wmma maps": _maps,
    "move": _move,
    "cvt": _cvt,
    "dpx": _dpx,
    "warp": _warp,
    "descriptors": _descriptors,
    "matmul": _matmul,
}
