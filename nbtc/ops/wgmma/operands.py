"""The operands of a wgmma call, checked before anything runs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.errors import (
    BoundsError,
    DescriptorError,
    FormatError,
    MetadataError,
    OptionError,
    ShapeError,
    UnsupportedInstructionError,
    shown,
    whole_number,
)
from nbtc.formats.arrays import as_array
from nbtc.fragments.smem_descriptors import UNIT, Descriptor
from nbtc.fragments.sparse import check_selector
from nbtc.isa.spec import Operand, Row

THREADS = 128


class WgmmaForm(NamedTuple):
    """What a wgmma row says, nothing missing: A, B, D, (m, n, k), and the stored columns of A."""

    a: Operand
    b: Operand
    d: Operand
    shape: tuple[int, int, int]
    stored: int


def form(row: Row) -> WgmmaForm:
    """The parts of a wgmma row; UnsupportedInstructionError for any other."""
    if row.unit != "wgmma" or row.a is None or row.b is None or row.d is None or row.shape is None:
        raise UnsupportedInstructionError(
            f"{row.mnemonic} is not a wgmma form: pass one such as wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        )
    return WgmmaForm(row.a, row.b, row.d, row.shape, row.a.cols)


@dataclass(frozen=True)
class OperandImages:
    """An operand of a batch: images one after the other, and the leading axes they came with.

    values: the leading axes along which nothing changes have length 1, so a broadcast operand is not multiplied.
    """

    values: NDArray[Any]
    lead: tuple[int, ...] = ()

    @property
    def flat(self) -> NDArray[Any]:
        """All images one after the other."""
        return self.values.reshape(-1)

    def over(self, batch: tuple[int, ...]) -> NDArray[np.int64]:
        """For each warpgroup of the batch, which image it uses."""
        if not batch:
            return np.zeros(1, np.int64)
        held = self.values.shape[: len(self.lead)]
        return spread_index(np.arange(int(np.prod(held, dtype=np.int64))).reshape(held), batch)


def spread_index(which: NDArray[Any], batch: tuple[int, ...]) -> NDArray[np.int64]:
    """An index broadcast over the batch, flat."""
    if which.shape == batch:
        return np.array(which, np.int64).reshape(-1)
    return np.array(np.broadcast_to(which, batch), np.int64).reshape(-1)  # a copy: see `images`


class UnitAddresses(NamedTuple):
    """Addresses of the 16-byte units of each distinct descriptor, and which of them each warpgroup uses."""

    units: NDArray[np.int32]
    which: NDArray[np.int64]


NO_TABLES = UnitAddresses(np.zeros(1, np.int32), np.zeros((), np.int64))


def is_registers(a: Any) -> bool:
    """True when operand a is a register image and no descriptor."""
    return isinstance(a, np.ndarray) and a.dtype == np.uint32 and a.ndim >= 2


def check_immediates(row: Row, scales: dict[str, Any], trans: dict[str, Any], registers: bool) -> None:
    """imm-scale-a, imm-scale-b and imm-trans-a, imm-trans-b: OptionError names the rule that one breaks."""
    fmt = form(row).a.format.name
    for side, value in scales.items():
        name = f"scale_{side}"
        if whole_number(value) not in (1, -1):
            raise OptionError(f"{name}={shown(value)}: imm-scale-{side} of wgmma is 1 or -1; nearest is {name}=1")
        if value == -1 and side not in row.scales:
            raise OptionError(f"{name}=-1: {fmt} forms have no imm-scale operands, floating types do: leave {name}=1")
    for side, value in trans.items():
        name = f"trans_{side}"
        if whole_number(value) not in (0, 1):
            raise OptionError(f"{name}={shown(value)}: imm-trans-{side} is 0 (K-major) or 1 (MN-major); try {name}=0")
        if value and side not in row.trans:
            raise OptionError(
                f"{name}=1: {fmt} operands are K-major only, imm-trans exists for f16 and bf16: leave {name}=0 and "
                "write "
                'the tile with tile_to_smem(..., major="k")'
            )
    if trans["a"] and registers:
        raise OptionError(
            "trans_a=1 needs A in shared memory, not in registers (their layout is fixed): leave trans_a=0 or pass a "
            "descriptor"
        )


def _wanted(dtype: Any, tail: tuple[int, ...]) -> str:
    return f"{np.dtype(dtype).name} (..., {', '.join('bytes' if t < 0 else str(t) for t in tail)})"


def images(name: str, x: Any, dtype: Any, tail: tuple[int, ...]) -> OperandImages:
    """x as images of a dtype whose last axes are `tail` (-1: any)."""
    v = np.asarray(as_array(x))
    if v.dtype == object:
        raise FormatError(f"{name} is a {type(x).__name__}, but it must be an array: {_wanted(dtype, tail)}")
    if v.dtype != dtype:
        raise FormatError(
            f"{name} is {v.dtype}, but it must be {_wanted(dtype, tail)}: pass {name}.view(np.{np.dtype(dtype).name}) "
            "of its bits"
        )
    if v.ndim < len(tail) or any(t not in (-1, s) for t, s in zip(tail, v.shape[v.ndim - len(tail) :], strict=True)):
        raise ShapeError(
            f"{name} has shape {v.shape}, but it must be {_wanted(dtype, tail)}: for example "
            f"np.zeros({tuple(map(abs, tail))}, {v.dtype})"
        )
    lead = v.shape[: v.ndim - len(tail)]
    once = [slice(0, 1) if step == 0 and size else slice(None) for step, size in zip(v.strides, lead, strict=False)]
    plain = np.ascontiguousarray(v[tuple(once)])
    # read-only arrays are other types to Numba: a copy costs less than a second compilation
    return OperandImages(plain if plain.flags.writeable else plain.copy(), lead)


def descriptor_words(name: str, x: Any) -> NDArray[np.uint64]:
    """Descriptors as uint64 words, each checked by decoding it."""
    if isinstance(x, Descriptor):
        return np.array(x.encode(), np.uint64)
    v = x if isinstance(x, np.ndarray) else _listed(name, x)
    if not isinstance(x, np.ndarray) and v.dtype.kind in "fO":  # NumPy makes floats of words on both sides of 2**63
        v = np.array(x, object)
    if v.dtype == object and all(isinstance(e, Descriptor) or hasattr(e, "__index__") for e in v.flat):
        words = [e.encode() if isinstance(e, Descriptor) else Descriptor.decode(e).encode() for e in v.flat]
        v = np.array(words, np.uint64).reshape(v.shape)
    if v.dtype.kind not in "iu" or (v.dtype.kind == "i" and v.size and int(v.min()) < 0):
        raise DescriptorError(
            f"{name} is {f'{v.dtype} {v.shape}' if v.shape else shown(x)}: a matrix descriptor is a 64-bit word or a "
            "Descriptor (A may also be uint32 registers (..., 128, 4)): try "
            f"{name}=nbtc.wgmma.Descriptor(0, 128, 256).encode()"
        )
    return v.astype(np.uint64)


def _listed(name: str, x: Any) -> NDArray[Any]:
    try:
        return np.asarray(x)
    except ValueError:  # rows of different lengths
        raise DescriptorError(f"{name}={shown(x)} is not an array of descriptors: its rows differ in length") from None


def predicate(scale_d: Any) -> NDArray[np.uint8]:
    """scale-d, one or one a warpgroup."""
    if type(scale_d) is int and scale_d in (0, 1):
        return np.array(scale_d, np.uint8)
    v = np.asarray(as_array(scale_d))
    if v.dtype.kind not in "biu" or (v.size and (int(v.min()) < 0 or int(v.max()) > 1)):
        raise OptionError(
            f"scale_d={shown(scale_d)}: scale-d is a predicate, 0 (D = A*B) or 1 (D = A*B + D), one or one a warpgroup"
        )
    return v.astype(np.uint8)


def metadata(row: Row, meta: Any, selector: Any) -> OperandImages:
    """The metadata registers of a sparse form (of a dense one: nothing may be passed)."""
    if not row.sparse:
        if meta is not None or selector != 0:
            raise MetadataError(
                f"{row.mnemonic} is dense and takes neither meta nor selector: leave them out, or use "
                "wgmma.mma_async.sp"
            )
        return OperandImages(np.zeros(THREADS, np.uint32))
    if meta is None:
        raise MetadataError(f"{row.mnemonic} needs meta: uint32 (..., 128), the metadata register of every thread")
    check_selector(row, selector)
    return images("meta", meta, np.uint32, (THREADS,))


def batch_of(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    """The common leading axes."""
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        named = ", ".join(f"{n} {s}" for n, s in shapes.items())
        raise ShapeError(
            f"the leading (batch) axes do not broadcast: {named}; give each operand the same leading axes or none"
        ) from None


@lru_cache(maxsize=256)
def _units(row: Row, operand: str, word: int, major: str, size: int) -> NDArray[np.int32]:
    """Addresses of the 16-byte units of a descriptor's tile, checked: most calls repeat earlier descriptors."""
    f, desc = form(row), Descriptor.decode(word)
    fmt = (f.a if operand == "A" else f.b).format
    rows, cols = (f.shape[0], f.stored) if operand == "A" else (f.shape[1], f.shape[2])
    at = desc.unit_addresses(rows, cols, fmt, major)
    last = int(at.max()) + UNIT - 1
    if last >= size:
        raise BoundsError(
            f"{operand} ({rows} x {cols} {fmt.name}, {major.upper()}-major) at {desc} reaches byte {last} of a shared "
            f"memory of {size} bytes: pass a larger smem or a descriptor inside it; .explain() draws it"
        )
    return at.reshape(-1).astype(np.int32)


def tables(row: Row, operand: str, words: NDArray[np.uint64], trans: int, size: int) -> UnitAddresses:
    """Tables of unit addresses of the distinct descriptors, and which one each warpgroup uses."""
    major = "mn" if trans else "k"
    if words.size == 1:
        return UnitAddresses(_units(row, operand, int(words.flat[0]), major, size), np.zeros(words.shape, np.int64))
    distinct, which = np.unique(words, return_inverse=True)
    found = [_units(row, operand, word, major, size) for word in distinct.tolist()]
    return UnitAddresses(np.concatenate(found or [NO_TABLES.units]), which.reshape(words.shape).astype(np.int64))
