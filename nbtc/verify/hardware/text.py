"""PTX of small kernels around one instruction: registers from arrays, the instruction, registers to arrays.

Every array is (blocks, threads, registers) of the register's width.  Parameters are the addresses of the arrays read,
then of those written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nbtc.isa.inline import BYTE, HALF, LONG, PREDICATE, WORD, Register

ENTRY = "replay"
BYTES = {WORD: 4, LONG: 8, HALF: 2, BYTE: 1, PREDICATE: 4}  # in memory: a predicate is a word
_SPARE = ".reg .b32 thread, block, lane, at, from, count, w<4>; .reg .b64 q, window; .reg .pred done, on;"
SHARED = ".extern .shared .align 1024 .b8 smem[];"
UNIT = 16  # bytes that a thread copies at a time


class Block(NamedTuple):
    """What a block has besides registers, each an array (blocks, bytes).

    image: bytes of shared memory, copied in; image_out: and copied out.  memory: bytes of global memory; memory_out:
    they are among the arrays written, not among those read.
    """

    image: int = 0
    image_out: bool = False
    memory: int = 0
    memory_out: bool = False


NOTHING = Block()


def kernel(
    reads: Sequence[Register], writes: Sequence[Register], lines: Sequence[str], threads: int,
    spare: Sequence[str] = (), has: Block = NOTHING,
) -> str:  # fmt: skip
    """A kernel.  lines: between loading `reads` and storing `writes`; lane, thread and block are at hand.

    spare: declarations of more registers.  has: memory of a block; `window` is its generic address, and of an image
    `from` the 32-bit one.  Arrays are those of `reads`, the image, the memory; then of `writes`, the image, the memory.
    """
    memory_in = bool(has.memory) and not has.memory_out
    inputs = len(reads) + bool(has.image) + memory_in
    arrays = inputs + len(writes) + has.image_out + (bool(has.memory) and has.memory_out)
    names = ", ".join(f".param .u64 array{i}" for i in range(arrays))
    declared = {r.name: r for r in (*reads, *writes)}
    body = [
        *(r.declaration for r in declared.values()), _SPARE, *spare,
        f"mov.u32 thread, %tid.x; mov.u32 block, %ctaid.x; mad.lo.u32 lane, block, {threads}, thread;",
        *(load(r, at) for at, r in enumerate(reads)),
        *(copy_in(has.image, len(reads), threads) if has.image else ()),
        *((_memory(has.memory, inputs - 1 if memory_in else arrays - 1),) if has.memory else ()),
        *lines,
        *(store(r, inputs + at) for at, r in enumerate(writes)),
        *(copy_out(has.image, inputs + len(writes), threads) if has.image_out else ()),
        "ret;",
    ]  # fmt: skip
    head = [SHARED] if has.image else []
    return "\n".join([*head, f".visible .entry {ENTRY}({names})", "{", *body, "}"])


def _memory(size: int, parameter: int) -> str:
    return f"ld.param.u64 q, [array{parameter}]; mad.wide.u32 window, block, {size}, q;"


def load(r: Register, parameter: int) -> str:
    """Registers of a lane from its row of an array."""
    return _each(r, parameter, _load_one)


def _load_one(r: Register, i: int, place: str) -> str:
    if r.type == PREDICATE:
        return f"ld.global.b32 w0, {place}; setp.ne.b32 {r.name}{i}, w0, 0;"
    return f"ld.global.{r.type} {r.name}{i}, {place};"


def store(r: Register, parameter: int) -> str:
    """Registers of a lane to its row of an array."""
    return _each(r, parameter, _store_one)


def _store_one(r: Register, i: int, place: str) -> str:
    if r.type == PREDICATE:
        return f"selp.b32 w0, 1, 0, {r.name}{i}; st.global.b32 {place}, w0;"
    return f"st.global.{r.type} {place}, {r.name}{i};"


def _each(r: Register, parameter: int, move: Callable[[Register, int, str], str]) -> str:
    """Every register of a lane, between it and its place in an array."""
    size = BYTES[r.type]
    row = f"ld.param.u64 q, [array{parameter}]; mad.wide.u32 q, lane, {size * r.count}, q; "
    return row + " ".join(move(r, i, f"[q+{size * i}]") for i in range(r.count))


def copy_in(image: int, parameter: int, threads: int) -> list[str]:
    """The block's shared memory from its row of an array."""
    step = UNIT * threads
    return [
        f"ld.param.u64 q, [array{parameter}]; mad.wide.u32 q, block, {image}, q; mul.wide.u32 window, thread, {UNIT};",
        f"add.u64 q, q, window; mov.u32 from, smem; mul.lo.u32 count, thread, {UNIT}; add.u32 at, from, count;",
        f"copy_in: setp.ge.u32 done, count, {image}; @done bra copied_in;",
        "ld.global.v4.b32 {w0, w1, w2, w3}, [q]; st.shared.v4.b32 [at], {w0, w1, w2, w3};",
        f"add.u64 q, q, {step}; add.u32 at, at, {step}; add.u32 count, count, {step}; bra copy_in;",
        "copied_in: bar.sync 0; cvt.u64.u32 window, from; cvta.shared.u64 window, window;",
    ]


def copy_out(image: int, parameter: int, threads: int) -> list[str]:
    """The block's shared memory to its row of an array."""
    step = UNIT * threads
    return [
        f"bar.sync 0; ld.param.u64 q, [array{parameter}]; mad.wide.u32 q, block, {image}, q;",
        f"mul.wide.u32 window, thread, {UNIT}; add.u64 q, q, window; mul.lo.u32 count, thread, {UNIT};",
        f"add.u32 at, from, count;\ncopy_out: setp.ge.u32 done, count, {image}; @done bra copied_out;",
        "ld.shared.v4.b32 {w0, w1, w2, w3}, [at]; st.global.v4.b32 [q], {w0, w1, w2, w3};",
        f"add.u64 q, q, {step}; add.u32 at, at, {step}; add.u32 count, count, {step}; bra copy_out;",
        "copied_out:",
    ]
