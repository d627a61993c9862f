"""Moves of boxes of tensors: tiles and columns of pixels, with swizzles, to shared memory and back."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np

from nbtc.testing.copies.lines import BULK
from nbtc.testing.copies.memories import Bytes, Memories, Move, reduced

UNIT = 16  # bytes that a swizzle moves together
MODES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
FILL = np.array([0xF7, 0x7F], np.uint8)  # of floats outside of the array, repeated


class Tensor(NamedTuple):
    """A tensor and its map.

    shape: outermost dimension first.  pitch: bytes from row to row.  type, size: of its elements.  box, steps, lower,
    upper: innermost first, as `nbtc.TensorMap` has them; in im2col mode box is channels and pixels.
    """

    shape: tuple[int, ...]
    pitch: int
    type: str
    size: int
    box: tuple[int, ...]
    swizzle: str = "none"
    oob: str = "zero"
    steps: tuple[int, ...] = ()
    lower: tuple[int, ...] | None = None
    upper: tuple[int, ...] = ()
    written: bool = False

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes, outermost first."""
        found = [self.size, self.pitch]
        for n in self.shape[-2:0:-1]:
            found.append(found[-1] * n)
        return tuple(found[: len(self.shape)][::-1])

    @property
    def bytes(self) -> int:
        """Of the whole."""
        return int(np.prod(self.shape[:-1])) * self.pitch

    @property
    def counts(self) -> tuple[int, ...]:
        """Elements of a box, or channels and pixels; innermost first."""
        if self.lower is not None:
            return self.box
        return (self.box[0], *(-(-b // s) for b, s in zip(self.box[1:], self.steps[1:], strict=True)))

    @property
    def row(self) -> int:
        """Bytes of a row of the box."""
        return self.counts[0] * self.size

    @property
    def spacing(self) -> int:
        """Bytes between rows in shared memory."""
        return max(self.row, UNIT << MODES[self.swizzle] if self.swizzle != "none" else 0)

    @property
    def rows(self) -> int:
        """Rows of a box."""
        return int(np.prod(self.counts[1:]))

    def elements(self, data: Bytes) -> Any:
        """Bytes as an array (..., elements of a row, bytes of one)."""
        return np.ndarray((*self.shape, self.size), np.uint8, data, 0, (*self.strides, 1))

    def places(self, start: tuple[int, ...], offsets: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The coordinates of each row but the innermost, innermost first, as it lies in shared memory."""
        if self.lower is None:
            ways = [[at + i * s for i in range(n)] for at, n, s in zip(start[1:], self.counts[1:], self.steps[1:],
                    strict=True)]  # fmt: skip
            return [tuple(x[::-1]) for x in product(*ways[::-1])]
        found, at = [], list(start[1:])
        sizes = self.shape[-2:0:-1]
        for _ in range(self.box[1]):
            found.append((*(x + o for x, o in zip(at[:-1], offsets, strict=True)), at[-1]))
            for d, size in enumerate(sizes):  # the next pixel of the box, then of the next image
                at[d] += self.steps[d + 1]
                if at[d] < size + self.upper[d]:
                    break
                at[d] = self.lower[d]
            else:
                at[-1] += 1
        return found

    def loaded(self, data: Bytes, start: tuple[int, ...], offsets: tuple[int, ...] = ()) -> Bytes:
        """The bytes of a box, (rows, bytes of a row); what lies outside of the array is filled."""
        elements, first = self.elements(data), start[0]
        low, high = max(0, -first), min(self.counts[0], self.shape[-1] - first)
        found = np.zeros((self.rows, self.counts[0], self.size), np.uint8)
        if self.oob == "nan":
            found = np.resize(FILL, found.shape)
        for n, place in enumerate(self.places(start, offsets)):
            if high > low and all(0 <= x < size for x, size in zip(place, self.shape[-2::-1], strict=True)):
                found[n, low:high] = elements[place[::-1]][first + low : first + high]
                if self.type.startswith("tf32"):
                    words = found[n, low:high].reshape(-1).view(np.uint32)
                    found[n, low:high] = _tf32(words).view(np.uint8).reshape(-1, 4)
        return found.reshape(self.rows, self.row)

    def put(self, shared: Bytes, at: int, rows: Bytes) -> None:
        """Rows into shared memory, (..., bytes)."""
        for n, row in enumerate(rows):
            shared[..., swizzled(at + n * self.spacing + np.arange(self.row), MODES[self.swizzle])] = row


def swizzled(at: Any, mode: int) -> Any:
    """Where a byte of shared memory lies whose address without swizzle is `at`."""
    return at ^ (((at >> 7) & ((1 << mode) - 1)) << 4)


@dataclass(frozen=True)
class Box(Move):
    """A box to or from shared memory.

    number, tensor: which.  start, step: coordinates, and what each slot adds to them.  cast: as in a bulk load, but
    with "both" each block's box goes to all.  operation: of a reduction.
    """

    number: int = 0
    tensor: Tensor | None = None
    start: tuple[int, ...] = ()
    step: tuple[int, ...] = ()
    offsets: tuple[int, ...] = ()
    cast: str = "one"
    operation: str = ""
    one_thread: ClassVar[bool] = True

    @property
    def of(self) -> Tensor:
        """The tensor."""
        if self.tensor is None:
            raise LookupError("a box of no tensor")
        return self.tensor

    @property
    def groups(self) -> str:  # type: ignore[override]
        """What is written to memory is of a group."""
        return "bulk" if self.of.written else ""

    @property
    def told(self) -> int:
        """Bytes."""
        return 0 if self.of.written else self.of.row * self.of.rows * (2 if self.cast == "both" else 1)

    def lines(self) -> list[str]:
        """One copy."""
        t = self.of
        found = [f"mov.u64 %x, map{self.number}; cvta.param.u64 %x, %x;"]
        found += [f"mad.lo.s32 %u{d}, %slot, {s}, {x};" for d, (x, s) in enumerate(zip(self.start, self.step,
                  strict=True))]  # fmt: skip
        where = "[%x, {" + ", ".join(f"%u{d}" for d in range(len(self.start))) + "}]"
        dims = f"{len(self.start)}d"
        if t.written:
            name = f"cp.{'reduce.' if self.operation else ''}async.bulk.tensor.{dims}.global.shared::cta"
            name += f"{'.' + self.operation if self.operation else ''}.tile.bulk_group"
            return [*found, self.at("%s", self.read[0]), f"{name} {where}, [%s];"]
        name = f"cp.async.bulk.tensor.{dims}.shared::cluster.global.{'tile' if t.lower is None else 'im2col'}.{BULK}"
        more = ""
        if t.lower is not None:
            found += [f"mov.b16 %h{n + 1}, {x};" for n, x in enumerate(self.offsets)]
            more = ", {" + ", ".join(f"%h{n + 1}" for n in range(len(self.offsets))) + "}"
        found += [self.at("%s", self.written[0]), self.mbarrier()]
        if self.cast == "one":
            return [*found, f"{name} [%s], {where}, [%bar]{more};"]
        found.append("mov.b16 %h0, 3; setp.eq.u32 %q, %rank, 0;")
        if self.cast == "both":
            found.append(f"mad.lo.u32 %s, %rank, {self.written[1] // 2}, %s; setp.eq.u32 %q, 0, 0;")
        return [*found, f"@%q {name}.multicast::cluster [%s], {where}, [%bar]{more}, %h0;"]

    def apply(self, m: Memories) -> None:
        """Row by row."""
        t = self.of
        for block, peer, slot in m.blocks():
            start = tuple(x + s * slot for x, s in zip(self.start, self.step, strict=True))
            if t.written:
                self._write(m, block, start[0], t.places(start, ()))
                continue
            if self.cast == "first" and block % 2:
                continue
            at = self.written[0] + (block % 2) * (self.written[1] // 2 if self.cast == "both" else 0)
            blocks = [block] if self.cast == "one" else [block, peer]
            for target in blocks:
                t.put(m.shared[target], at, t.loaded(m.tensors[self.number], start, self.offsets))

    def _write(self, m: Memories, block: int, first: int, places: list[tuple[int, ...]]) -> None:
        """Rows in units of 16 bytes, reduced ones too."""
        t = self.of
        limit = -(-t.shape[-1] * t.size // UNIT) * UNIT // t.size
        for n, place in enumerate(places):
            if all(0 <= x < size for x, size in zip(place, t.shape[-2::-1], strict=True)):
                count = min(t.counts[0], limit - first) * t.size
                there = swizzled(self.read[0] + n * t.spacing + np.arange(t.row), MODES[t.swizzle])
                line = m.shared[block, there][: max(0, count)]
                offset = sum(x * s for x, s in zip((first, *place), t.strides[::-1], strict=True))
                target = m.tensors[self.number][offset : offset + len(line)]
                target[:] = (
                    reduced(self.operation, _NAMES.get(t.type, t.type), target.copy(), line) if self.operation else line
                )


_NAMES = {"f16": "noftz.f16", "bf16": "noftz.bf16"}


def _tf32(words: Any) -> Any:
    """Rounded to nearest even; every NaN is one NaN."""
    odd = words >> np.uint32(13) & np.uint32(1)
    rounded = words + np.uint32(0xFFF) + odd & np.uint32(0xFFFFE000)
    return np.where(words & np.uint32(0x7FFFFFFF) > 0x7F800000, np.uint32(0x7FFFE000), rounded).astype(np.uint32)
