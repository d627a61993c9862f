"""Names for the machine's structures in a worker's compiled loop, and the memory of its coroutines."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils

from nbtc.compiler.builder import I32, I64, VectorBuilder
from nbtc.executor.code.coroutine import ALIGN, HEADER, VOID, declare
from nbtc.executor.emit.fields import cluster_size, field_at, grid_place, load_field, store_field, take_cluster
from nbtc.executor.emit.state import BLOCK, WARP
from nbtc.executor.memory.resolve import POINTER

ZERO = ir.Constant(I32, 0)


class Worker:
    """Names for the fields of the structures while the loop is emitted."""

    def __init__(self, v: VectorBuilder, worker: Any) -> None:
        self.v, self.b, self.worker = v, v.b, worker
        self.launch = v.b.inttoptr(self.get("worker", worker, "launch"), POINTER)

    def at(self, structure: str, base: Any, name: str) -> Any:
        return field_at(self.v, structure, base, name)

    def get(self, structure: str, base: Any, name: str) -> Any:
        return load_field(self.v, structure, base, name)

    def put(self, structure: str, base: Any, name: str, value: Any) -> None:
        store_field(self.v, structure, base, name, value)

    def block(self, slot: Any) -> Any:
        """A resident block's structure."""
        blocks = self.b.inttoptr(self.get("worker", self.worker, "blocks"), POINTER)
        return self.v.at(blocks, self.b.mul(slot, self.get("worker", self.worker, "block_stride")))

    def warp(self, block: Any, index: Any) -> Any:
        return self.v.at(block, BLOCK.size, self.b.mul(self.b.zext(index, I64), self.v.int(WARP.size)))

    def stopped(self, why: int = 0) -> Any:
        """i1: the launch is to stop, for whatever reason or for this one."""
        stop = self.b.bitcast(self.at("launch", self.launch, "stop"), I32.as_pointer())
        sign = "==" if why else "!="
        return self.b.icmp_unsigned(sign, self.b.load_atomic(stop, "monotonic", 4), ir.Constant(I32, why))

    def take_cluster(self, blocks: Any = None) -> Any:
        """The index of the first block of the next cluster, or of several; beyond the grid when there are no more."""
        return take_cluster(self.v, self.launch, blocks)

    def cluster_size(self) -> Any:
        """Blocks of a cluster, 1 where there are none (i64)."""
        return self.b.zext(cluster_size(self.v, self.launch), I64)

    def place(self, block: Any, index: Any) -> None:
        """Give a block structure its place in the grid."""
        b = self.b
        at, rank = grid_place(self.v, self.launch, index)
        for axis, value in zip("xyz", at, strict=True):
            self.put("block", block, axis, value)
        self.put("block", block, "cluster_rank", rank)
        width, height = (self.get("launch", self.launch, f"grid_{axis}") for axis in "xy")
        rows = b.add(at[1], b.mul(at[2], height))
        self.put("block", block, "index", b.zext(b.add(at[0], b.mul(rows, width)), I64))

    def peer(self, block: Any, rank: Any) -> Any:
        """Place of the pointer to a block of the same cluster (rank: i64)."""
        table = self.b.inttoptr(self.get("block", block, "peers"), POINTER)
        return self.v.at(table, self.b.shl(rank, self.v.int(3)))

    def loop(self, count: Any, body: Any) -> None:
        """body(i) for i32 i below count."""
        with cgutils.for_range(self.b, count, intp=count.type) as loop:
            body(loop.index)


def frame_memory(v: VectorBuilder, args: Any) -> None:
    """Memory of a coroutine: one that a finished warp left, or new."""
    b = v.b
    worker, size = args
    w = Worker(v, worker)
    free = w.get("worker", worker, "free_frames")
    with b.if_then(b.icmp_unsigned("!=", free, v.int(0))):
        frame = b.inttoptr(free, POINTER)
        w.put("worker", worker, "free_frames", v.load(frame, I64, 8, -HEADER))
        b.ret(frame)
    whole = b.and_(b.add(size, v.int(HEADER + ALIGN - 1)), v.int(-ALIGN))
    memory = b.call(declare(b.module, "aligned_alloc", POINTER, (I64, I64)), [v.int(ALIGN), whole])
    v.store(w.get("worker", worker, "all_frames"), memory, 8, 8)
    w.put("worker", worker, "all_frames", b.ptrtoint(memory, I64))
    b.ret(v.at(memory, HEADER))


def free_frames(v: VectorBuilder, w: Worker) -> None:
    """Give all frames' memory back to the process."""
    b = v.b
    head, inside, after = (b.append_basic_block(n) for n in ("free", "free.one", "free.end"))
    b.branch(head)
    b.position_at_end(head)
    memory = w.get("worker", w.worker, "all_frames")
    b.cbranch(b.icmp_unsigned("!=", memory, v.int(0)), inside, after)
    b.position_at_end(inside)
    pointer = b.inttoptr(memory, POINTER)
    w.put("worker", w.worker, "all_frames", v.load(pointer, I64, 8, 8))
    b.call(declare(b.module, "free", VOID, (POINTER,)), [pointer])
    b.branch(head)
    b.position_at_end(after)
    w.put("worker", w.worker, "free_frames", v.int(0))
