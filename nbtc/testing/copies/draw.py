"""Moves drawn at random, whose places do not touch those of the moves beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nbtc.testing.copies import memories as mem
from nbtc.testing.copies.lines import (
    LANES,
    WIDTHS,
    Async,
    BulkLoad,
    BulkStore,
    BulkToPeer,
    ByThreads,
    Matrices,
    ReduceAsync,
    StoreAsync,
)
from nbtc.testing.copies.memories import BARRIERS, IMAGE, MEMORY, SOURCE, WARP_BARRIER, Move
from nbtc.testing.copies.products import Multiply, drawn
from nbtc.testing.copies.tensors import MODES, UNIT, Box, Tensor

Line = tuple[int, int]
LINE = 128  # bytes: where tiles of tensors begin
TRIES = 30  # before a move is given up
WARPS = 4
FLOATS = {"f16": 2, "bf16": 2, "f32": 4, "f64": 8, "tf32": 4, "tf32_ftz": 4, "f32_ftz": 4}
INTEGERS = {"u8": 1, "u16": 2, "u32": 4, "s32": 4, "u64": 8, "s64": 8}
# what a box may be reduced with: the combinations of `TO_MEMORY`
REDUCED = tuple(
    (o, {"noftz.f16": "f16", "noftz.bf16": "bf16", "b32": "u32", "b64": "u64"}.get(t, t))
    for o, t in mem.TO_MEMORY
    if t != "f64"
)


def _touches(x: Line, others: list[Line]) -> bool:
    return any(x[0] < at + size and at < x[0] + x[1] for at, size in others)


class Drawer:
    """Moves of a phase.  clustered: a block has a peer.  slots: blocks times rounds.  tensors: all so far."""

    def __init__(self, rng: np.random.Generator, clustered: bool, slots: int) -> None:
        self.rng, self.clustered, self.slots = rng, clustered, slots
        self.tensors: list[Tensor] = []
        self.new_phase()

    def new_phase(self) -> None:
        """Nothing is in use."""
        self.written: list[Line] = []
        self.read: list[Line] = []
        self.stored: list[Line] = []
        self.warp_barrier = True

    def one(self, *of: Any) -> Any:
        """One of these."""
        return of[self.rng.integers(len(of))]

    def number(self, low: int, high: int) -> int:
        """From low to high, both possible."""
        return int(self.rng.integers(low, high + 1))

    # --- places -----------------------------------------------------------------------------------------------------
    def place(self, size: int, align: int, others: tuple[list[Line], ...], room: int = IMAGE) -> Line | None:
        """A line that touches none of others."""
        for _ in range(TRIES):
            found = align * self.number(0, (room - size) // align), size
            if not any(_touches(found, x) for x in others):
                return found
        return None

    def to(self, size: int, align: int = 16) -> Line | None:
        """A line that is written."""
        found = self.place(size, align, (self.written, self.read))
        if found:
            self.written.append(found)
        return found

    def out_of(self, size: int, align: int = 16) -> Line | None:
        """A line that is read."""
        found = self.place(size, align, (self.written,))
        if found:
            self.read.append(found)
        return found

    def source(self, size: int, align: int = 16) -> int:
        """Where a line of global memory begins."""
        return align * self.number(0, (SOURCE - size) // align)

    def target(self, size: int, align: int = 16) -> int | None:
        """Where a line of global memory that is written begins."""
        found = self.place(size, align, (self.stored,), MEMORY)
        if found is None:
            return None
        self.stored.append(found)
        return found[0]

    def warp(self) -> int:
        return self.number(0, WARPS - 1)

    def cast(self) -> str:
        return self.one("one", "one", "first", "both") if self.clustered else "one"

    # --- moves of lines ---------------------------------------------------------------------------------------------
    def by_threads(self) -> Move | None:
        width, to_peer = self.one(*WIDTHS), self.rng.random() < 0.5
        size = width * LANES
        to = self.to(size, width)
        if to is None:
            return None
        if self.rng.random() < 0.5:
            return ByThreads(self.warp(), to, width=width, source=self.source(size, width), to_peer=to_peer)
        line = self.out_of(size, width)
        return ByThreads(self.warp(), to, line, width=width, to_peer=to_peer) if line else None

    def asynchronous(self) -> Move | None:
        width = self.one(4, 8, 16)
        to = self.to(width * LANES, width)
        joins = self.warp_barrier and self.rng.random() < 0.4
        self.warp_barrier = self.warp_barrier and not joins
        sizes = self.one("all", "some", "ignored")
        return to and Async(
            self.warp(), to, barrier=WARP_BARRIER if joins else -1, width=width,
            source=self.source(width * LANES, width), sizes=sizes,
        )  # fmt: skip

    def bulk_load(self) -> Move | None:
        cast = self.cast()
        size = 16 * self.number(1, 96) * (2 if cast == "both" else 1)
        to = self.to(size)
        return to and BulkLoad(self.warp(), to, barrier=self.barrier(), source=self.source(size), cast=cast)

    def barrier(self) -> int:
        return self.number(0, BARRIERS - 1)

    def to_peer(self) -> Move | None:
        operation, kind = self.one(*mem.TO_OTHERS) if self.rng.random() < 0.6 else ("", "b32")
        size = 16 * self.number(1, 64)
        to, line = self.to(size), self.out_of(size)
        if to is None or line is None:
            return None
        return BulkToPeer(self.warp(), to, line, self.barrier(), operation, kind)

    def store_async(self) -> Move | None:
        kind, width = self.one(("b32", 4), ("b64", 8), ("v2.b32", 8), ("v4.b32", 16), ("v2.b64", 16))
        to = self.to(width * LANES, width)
        source = self.source(width * LANES, width)
        return to and StoreAsync(self.warp(), to, barrier=self.barrier(), kind=kind, source=source)

    def reduce_async(self) -> Move | None:
        operation, kind = self.one(*mem.TO_OTHERS)
        width = mem.size_of(kind)
        words = LANES if operation in ("inc", "dec") else self.one(1, 3, 8, LANES)
        to, source = self.to(words * width, width), self.source(LANES * width, width)
        return to and ReduceAsync(
            self.warp(), to, barrier=self.barrier(), operation=operation, type=kind, source=source
        )

    def bulk_store(self) -> Move | None:
        operation, kind = self.one(*mem.TO_MEMORY) if self.rng.random() < 0.75 else ("", "b32")
        size = 16 * self.number(1, 64)
        line, target = self.out_of(size), self.target(size)
        if line is None or target is None:
            return None
        return BulkStore(self.warp(), (0, 0), line, target=target, operation=operation, type=kind)

    def matrices(self) -> Move | None:
        count, step, transposed = self.one(1, 2, 4), self.one(16, 16, 32, 48), bool(self.rng.integers(2))
        rows, held = 8 * count * step, 4 * count * LANES
        if self.rng.random() < 0.5:
            to = self.to(rows)
            return to and Matrices(
                self.warp(), to, count=count, transposed=transposed, source=self.source(held, 4), step=step
            )
        to, line = self.to(held, 4), self.out_of(rows)
        if to is None or line is None:
            return None
        return Matrices(self.warp(), to, line, count=count, transposed=transposed, step=step)

    def multiply(self) -> Move | None:
        product, line, size = drawn(self.rng)
        if _touches(line, self.written):
            return None
        self.read.append(line)
        to = self.to(size, 4)
        return to and Multiply(0, to, line, product=product)

    # --- boxes ------------------------------------------------------------------------------------------------------
    def tensor(self, t: Tensor) -> int:
        self.tensors.append(t)
        return len(self.tensors) - 1

    def _row(self, size: int, swizzle: str, most: int) -> int:
        """Elements of a row of a box."""
        span = (UNIT << MODES[swizzle]) if swizzle != "none" else most
        units = span // UNIT if self.rng.random() < 0.6 and swizzle != "none" else self.number(1, span // UNIT)
        return units * UNIT // size

    def load_tile(self) -> Move | None:
        rank = self.number(1, 5)
        kind, size = self.one(*{**FLOATS, **INTEGERS}.items())
        swizzle = self.one(*MODES)
        row = min(256, self._row(size, swizzle, 512))
        steps = (1, *(int(self.one(1, 1, 1, 2, 3)) for _ in range(rank - 1)))
        box = (row, *(self.number(1, 16 if rank == 2 else 6) for _ in range(rank - 1)))
        shape = (*(self.number(1, 2 * b) for b in box[:0:-1]), self.number(1, 2 * row))
        pitch = UNIT * (-(-shape[-1] * size // UNIT) + self.number(0, 2))
        oob = self.one("zero", "nan") if kind in FLOATS else "zero"
        t = Tensor(shape, pitch, kind, size, box, swizzle, oob, steps)
        unit = UNIT // size
        start = (unit * self.number(-row // unit, shape[-1] // unit), *(self.number(-3, n) for n in shape[-2::-1]))
        step = (unit * self.number(-1, 1), *(self.number(-1, 2) for _ in box[1:]))
        return self._load(t, start, step, ())

    def load_pixels(self) -> Move | None:
        rank = self.number(3, 5)
        kind, size = self.one(*{**FLOATS, **INTEGERS}.items())
        swizzle = self.one(*MODES)
        channels, pixels = min(256, self._row(size, swizzle, 128)), self.number(1, 48)
        spatial = [self.number(3, 7) for _ in range(rank - 2)]  # innermost first
        shape = (self.number(1, 3), *spatial[::-1], self.number(1, 2 * channels))
        lower = tuple(self.number(-2, 1) for _ in spatial)
        upper = tuple(self.number(lo + 1 - n, 1) if lo + 1 - n < 1 else 0 for lo, n in zip(lower, spatial, strict=True))
        pitch = UNIT * (-(-shape[-1] * size // UNIT) + self.number(0, 2))
        oob = self.one("zero", "nan") if kind in FLOATS else "zero"
        steps = (1, *(int(self.one(1, 1, 2)) for _ in spatial), 1)
        t = Tensor(shape, pitch, kind, size, (channels, pixels), swizzle, oob, steps, lower, upper)
        unit = UNIT // size
        inside = (self.number(lo, n + up - 1) for lo, n, up in zip(lower, spatial, upper, strict=True))
        start = (unit * self.number(0, shape[-1] // unit), *inside, self.number(0, shape[0] - 1))
        offsets = tuple(self.number(0, 3) for _ in spatial)
        return self._load(t, start, (0,) * (rank - 1) + (self.number(0, 1),), offsets)

    def _load(self, t: Tensor, start: Any, step: Any, offsets: Any) -> Move | None:
        cast, part = self.cast(), -(-t.spacing * t.rows // LINE) * LINE
        size = part * (2 if cast == "both" else 1)
        to = self.to(size, LINE) if size <= IMAGE // 4 else None
        if to is None:
            return None
        return Box(self.warp(), to, (0, 0), self.barrier(), self.tensor(t), t, start, step, offsets, cast)

    def store_tile(self) -> Move | None:
        rank = self.number(2, 5)
        operation, kind = self.one(*REDUCED) if self.rng.random() < 0.6 else ("", self.one(*INTEGERS))
        size = {**FLOATS, **INTEGERS}[kind]
        swizzle = self.one(*MODES)
        row = min(256, self._row(size, swizzle, 256))
        box = (row, *(self.number(1, 6 if rank == 2 else 3) for _ in range(rank - 1)))
        shape = (box[-1] * self.slots, *(self.number(1, 2 * b) for b in box[-2:0:-1]), self.number(1, 2 * row))
        pitch = UNIT * (-(-shape[-1] * size // UNIT) + self.number(0, 2))
        t = Tensor(shape, pitch, kind, size, box, swizzle, "zero", (1,) * rank, written=True)
        line = self.out_of(-(-t.spacing * t.rows // LINE) * LINE, LINE)
        if line is None:
            return None
        unit = UNIT // size
        inner = (self.number(0, n - 1) for n in shape[-2:0:-1])
        start = (unit * self.number(0, shape[-1] // unit), *inner, 0)
        step = (0,) * (rank - 1) + (box[-1],)
        return Box(self.warp(), (0, 0), line, -1, self.tensor(t), t, start, step, operation=operation)

    def move(self, most_tensors: int) -> Move | None:
        """A move of any kind, where there is room for it."""
        kinds: list[Callable[[], Move | None]] = [
            self.by_threads, self.asynchronous, self.bulk_load, self.bulk_store, self.bulk_store, self.matrices,
            self.multiply,
        ]  # fmt: skip
        if self.clustered:
            kinds += [self.to_peer, self.to_peer, self.store_async, self.reduce_async]
        if len(self.tensors) < most_tensors:
            kinds += [self.load_tile, self.load_tile, self.load_pixels, self.store_tile]
        return self.one(*kinds)()  # type: ignore[no-any-return]
