"""PTX of small kernels around one instruction: registers from arrays, the instruction, registers to arrays.

Every array is (blocks, threads, registers) of the register's width.  Parameters are the addresses of the arrays read,
then of those written.  What replays recordings and what asks a GPU make their kernels here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from nbtc.isa import inline
from nbtc.isa.inline import BYTE, HALF, LONG, PREDICATE, WORD, InlineRegister
from nbtc.isa.spec import Row

ENTRY = "replay"
WARP, GROUP = 32, 128
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


def read_and_written(row: Row) -> tuple[list[InlineRegister], list[InlineRegister]]:
    """The registers that an instruction reads, and those that it writes alone."""
    registers = inline.operands(row)
    return [r for r in registers if not r.result], [r for r in registers if r.result]


def kernel(
    reads: Sequence[InlineRegister], writes: Sequence[InlineRegister], lines: Sequence[str], threads: int,
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


def load(r: InlineRegister, parameter: int) -> str:
    """Registers of a lane from its row of an array."""
    return _each(r, parameter, _load_one)


def _load_one(r: InlineRegister, i: int, place: str) -> str:
    if r.type == PREDICATE:
        return f"ld.global.b32 w0, {place}; setp.ne.b32 {r.name}{i}, w0, 0;"
    return f"ld.global.{r.type} {r.name}{i}, {place};"


def store(r: InlineRegister, parameter: int) -> str:
    """Registers of a lane to its row of an array."""
    return _each(r, parameter, _store_one)


def _store_one(r: InlineRegister, i: int, place: str) -> str:
    if r.type == PREDICATE:
        return f"selp.b32 w0, 1, 0, {r.name}{i}; st.global.b32 {place}, w0;"
    return f"st.global.{r.type} {place}, {r.name}{i};"


def _each(r: InlineRegister, parameter: int, move: Callable[[InlineRegister, int, str], str]) -> str:
    """Every register of a lane, between it and its place in an array."""
    size = BYTES[r.type]
    row = f"ld.param.u64 q, [array{parameter}]; mad.wide.u32 q, lane, {size * r.count}, q; "
    return row + " ".join(move(r, i, f"[q+{size * i}]") for i in range(r.count))


def copy_in(image: int, parameter: int, threads: int) -> list[str]:
    """The block's shared memory from its row of an array; `from` and `window` are its addresses from here on."""
    move = "ld.global.v4.b32 {w0, w1, w2, w3}, [q]; st.shared.v4.b32 [at], {w0, w1, w2, w3};"
    after = "bar.sync 0; cvt.u64.u32 window, from; cvta.shared.u64 window, window;"
    return ["mov.u32 from, smem;", *_copy("copy_in", image, parameter, threads, move), after]


def copy_out(image: int, parameter: int, threads: int) -> list[str]:
    """The block's shared memory to its row of an array."""
    move = "ld.shared.v4.b32 {w0, w1, w2, w3}, [at]; st.global.v4.b32 [q], {w0, w1, w2, w3};"
    return ["bar.sync 0;", *_copy("copy_out", image, parameter, threads, move)]


def _copy(name: str, image: int, parameter: int, threads: int, move: str) -> list[str]:
    """A loop over the units of an image: a thread's first, then those a block further on."""
    step = UNIT * threads
    return [
        f"ld.param.u64 q, [array{parameter}]; mad.wide.u32 q, block, {image}, q; mul.wide.u32 window, thread, {UNIT};",
        f"add.u64 q, q, window; mul.lo.u32 count, thread, {UNIT}; add.u32 at, from, count;",
        f"{name}: setp.ge.u32 done, count, {image}; @done bra {name}_done;",
        move,
        f"add.u64 q, q, {step}; add.u32 at, at, {step}; add.u32 count, count, {step}; bra {name};",
        f"{name}_done:",
    ]


def instruction_text(row: Row, threads: int = WARP, immediates: Mapping[str, object] | None = None) -> str:
    """A kernel of an instruction between registers.

    >>> from nbtc.isa.parse import row
    >>> print(instruction_text(row("cvt.rn.f16.f32"), 128).splitlines()[-4])
    cvt.rn.f16.f32 d0, a0;
    """
    return kernel(*read_and_written(row), [inline.text(row, immediates)], threads)


def guarded_text(row: Row, keep: bool) -> str:
    """A kernel of an instruction of a warp, which lanes outside of its mask skip.

    They keep their first source, or else what they had: zero.
    """
    reads, writes = read_and_written(row)
    start = ["mov.b32 d0, a0;"] if keep else []
    start += [_zero(r) for r in writes if not keep or r.name != "d"]
    on = "mov.u32 w0, %laneid; shr.b32 w0, mask0, w0; and.b32 w0, w0, 1; setp.ne.b32 on, w0, 0;"
    return kernel(reads, writes, [*start, on, f"@on {inline.text(row)}"], WARP)


def _zero(r: InlineRegister) -> str:
    return f"setp.ne.b32 {r.name}0, 0, 0;" if r.type == PREDICATE else f"mov.b32 {r.name}0, 0;"


def matrices_text(row: Row, image: int) -> str:
    """A kernel of ldmatrix or stmatrix on an image of shared memory; every lane says how far in its row begins."""
    registers, place = next(r for r in inline.operands(row) if r.name == "r"), InlineRegister("to", WORD)
    line = "cvt.u64.u32 q, to0; add.u64 window, window, q; " + inline.text(row).replace("[p0]", "[window]")
    stores = not registers.result
    reads, writes = ([place, registers], []) if stores else ([place], [registers])
    return kernel(reads, writes, [line], WARP, has=Block(image=image, image_out=stores))


def warpgroup_text(row: Row, immediates: Mapping[str, object], syntax: int, image: int) -> str:
    """A kernel of a warpgroup's product on an image of shared memory; descriptors count from the image's start."""
    registers = inline.operands(row, syntax)
    lines = [
        "fence.proxy.async; bar.sync 0; shr.u32 from, from, 4; cvt.u64.u32 q, from;",
        *(f"add.u64 {r.name}0, {r.name}0, q;" for r in registers if r.name.startswith("desc")),
        "wgmma.fence.sync.aligned;",
        inline.text(row, immediates, syntax),
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
    ]
    return kernel(registers, [r for r in registers if r.result], lines, GROUP, has=Block(image=image))


def dpx_text(name: str, arity: int, threads: int) -> str:
    """A kernel of a DPX function: its value, then its predicates, a word each."""
    text, predicates = inline.dpx_text(name)
    reads = [InlineRegister(letter, WORD) for letter in "abc"[:arity]]
    writes = [InlineRegister("d", WORD, 1, True)] + (
        [InlineRegister("p", WORD, predicates, True)] if predicates else []
    )
    return kernel(reads, writes, [text], threads, (".reg .b32 t<2>; .reg .b16 h<4>; .reg .pred q<2>;",))


def fragments_text(loads: Sequence[tuple[str, int]], product: Row, store: tuple[str, int], size: int) -> str:
    """A kernel of wmma: fragments of A, B and C from a warp's memory, their product, D to the same memory.

    loads, store: mnemonics, and where the fragments lie; size: bytes of memory, one of the arrays written.
    """
    registers = {r.name: r for r in inline.operands(product)}
    held = {name: f"{{{', '.join(r.names)}}}" for name, r in registers.items()}
    lines = [f"{load} {held[name]}, [window+{at}];" for name, (load, at) in zip("abc", loads, strict=True)]
    lines += [inline.text(product), f"{store[0]} [window+{store[1]}], {held['d']};"]
    declared = [r.declaration for r in registers.values()]
    return kernel([], [], lines, WARP, declared, Block(memory=size, memory_out=True))
