"""Local memory of the lanes from inside of a warp's code: copies between variables, and a stack for recursion.

A thread's local memory begins with the variables of all functions that are not recursive; after them its stack grows
upward.  A call from one recursive function to another pushes the caller's registers, then makes room for the callee's
variables.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I8, I32, I64, VectorBuilder, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.emit.fields import load_field

LANES = 32
WORD_BYTES = 8
POINTER = I8.as_pointer()
VOID = ir.VoidType()
OFFSETS = vector(I32, LANES)
WORDS = vector(I64, LANES)


def _lane_memory(v: VectorBuilder, block: Any, warp: Any, lane: Any) -> Any:
    """Host address where a lane's local memory begins."""
    b = v.b
    launch = b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
    size = b.zext(load_field(v, "launch", launch, "local_bytes"), I64)
    thread = b.add(b.mul(load_field(v, "warp", warp, "index"), ir.Constant(I32, LANES)), lane)
    start = b.add(load_field(v, "block", block, "local"), b.mul(b.zext(thread, I64), size))
    return b.inttoptr(start, POINTER)


def _copy(v: VectorBuilder, args: Any) -> None:
    """(mask, to, from, bytes, block, warp): copy bytes of each lane's local memory."""
    b = v.b
    mask, to, origin, size, block, warp = args

    def lane(number: Any) -> None:
        memory = _lane_memory(v, block, warp, number)
        places = [v.at(memory, b.zext(b.extract_element(x, number), I64)) for x in (to, origin)]
        v.call("llvm.memmove.p0.p0.i64", VOID, *places, b.zext(size, I64), ir.Constant(ir.IntType(1), 0))

    for_lanes(v, mask, lane)
    b.ret_void()


def _push(v: VectorBuilder, args: Any) -> None:
    """(mask, to, words, block, warp): store a word of each lane, or its lower half."""
    b = v.b
    mask, to, words, block, warp = args

    def lane(number: Any) -> None:
        memory = _lane_memory(v, block, warp, number)
        v.store(b.extract_element(words, number), v.at(memory, b.zext(b.extract_element(to, number), I64)), 1)

    for_lanes(v, mask, lane)
    b.ret_void()


def _pop(v: VectorBuilder, args: Any) -> None:
    """(mask, from, old words, block, warp): load a word of each lane; the others keep theirs."""
    b = v.b
    mask, origin, words, block, warp = args
    buffer = b.alloca(WORDS)
    b.store(words, buffer)
    elements = b.bitcast(buffer, I64.as_pointer())

    def lane(number: Any) -> None:
        memory = _lane_memory(v, block, warp, number)
        place = v.at(memory, b.zext(b.extract_element(origin, number), I64))
        b.store(v.load(place, I64, 1), b.gep(elements, [number]))

    for_lanes(v, mask, lane)
    b.ret(b.load(buffer))


class Stack:
    """Emits accesses to local memory in one function's code."""

    def __init__(self, frame: Any) -> None:
        self.frame, self.v, self.b = frame, frame.v, frame.b
        self.ends = [frame.block, frame.warp]

    def copy(self, mask: Any, to: Any, origin: Any, size: int) -> None:
        """Copy bytes between places."""
        kinds = (I32, OFFSETS, OFFSETS, I32, POINTER, POINTER)
        helper = self.frame.machine.helpers.function("lanes_copy", VOID, kinds, _copy)
        self.b.call(helper, [mask, to, origin, ir.Constant(I32, size), *self.ends])

    def push(self, mask: Any, to: Any, words: Any, size: int = WORD_BYTES) -> None:
        """Store a word of 64 bits, or of fewer: the first bytes of one."""
        bits = 8 * min(size, WORD_BYTES)
        kind = vector(ir.IntType(bits), LANES)
        kinds = (I32, OFFSETS, kind, POINTER, POINTER)
        helper = self.frame.machine.helpers.function(f"lanes_push{bits}", VOID, kinds, _push)
        self.b.call(helper, [mask, to, words if kind == WORDS else self.b.trunc(words, kind), *self.ends])

    def pop(self, mask: Any, origin: Any, words: Any) -> Any:
        """Load a word of 64 bits."""
        helper = self.frame.machine.helpers.function("lanes_pop", WORDS, (I32, OFFSETS, WORDS, POINTER, POINTER), _pop)
        return self.b.call(helper, [mask, origin, words, *self.ends])
