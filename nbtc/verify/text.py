"""PTX kernels of a few lines: each loads what an instruction takes, executes it once and stores what it gives.

A block is one warp (or warpgroup) of a recording; parameters are the addresses of the inputs and then of the output.
"""

from __future__ import annotations

from typing import NamedTuple

from nbtc.isa.spec import Row
from nbtc.numerics.dpx import ADD, THREE, DpxRow
from nbtc.verify.replay import Array

WARP, GROUP = 32, 128
SHARED = ".extern .shared .align 1024 .b8 smem[];\n"
UNIT = 16  # bytes that a thread copies at once: images are padded to as many


class Launch(NamedTuple):
    """A module of one entry `replay`, its launch, its inputs, and what the output holds before it."""

    text: str
    blocks: int
    threads: int
    shared: int
    inputs: list[Array]
    out: Array


def registers(image: Array) -> int:
    """Words a lane of a register image; a metadata image has no register axis."""
    return image.shape[2] if image.ndim == 3 else 1


def mma_text(row: Row, sizes: dict[str, int], selector: int, double: bool) -> str:
    """A kernel that executes a warp-level product once a block.  sizes: words a lane of each input, in its order."""
    result = row.d.registers if row.d is not None else sizes["c"]
    lines = [load(name, n, at) for at, (name, n) in enumerate(sizes.items())]
    operands = [vector(name, n, double) for name, n in (("d", result), *((k, sizes[k]) for k in "abc"))]
    if double:
        lines += [join(name, sizes[name]) for name in "abc"]
    tail = f", e0, {selector}" if row.sparse else ""
    lines.append(f"{row.mnemonic} {', '.join(operands)}{tail};")
    lines += [f"mov.b64 {{d{2 * i}, d{2 * i + 1}}}, dd{i};" for i in range(result // 2)] if double else []
    lines.append(store("d", result, len(sizes)))
    declared = {**sizes, "d": result}
    return entry(declared, len(sizes) + 1, lines, WARP, doubles=double)


def wgmma_text(row: Row, sizes: dict[str, int], image: int, selector: int, add: bool, immediates: list[str]) -> str:
    """A kernel that executes a warpgroup product once a block on its own shared-memory image."""
    lines = [load(name, n, at) for at, (name, n) in enumerate(sizes.items())]
    at = len(sizes)
    lines += copied_in(at, image, GROUP)
    lines += [
        "fence.proxy.async; bar.sync 0;",
        # descriptors were recorded relative to the image
        f"ld.param.u64 q0, [p{at + 1}]; mad.wide.u32 q0, block, 16, q0; ld.global.v2.u64 {{da, db}}, [q0];",
        "mov.u32 from, smem; shr.u32 from, from, 4; cvt.u64.u32 q1, from; add.u64 da, da, q1; add.u64 db, db, q1;",
        f"setp.ne.u32 done, {int(add)}, 0;",
        "wgmma.fence.sync.aligned;",
    ]
    a = vector("a", sizes["a"], False) if "a" in sizes else "da"
    meta = [f"e0, {selector}"] if row.sparse else []
    operands = [vector("c", sizes["c"], False), a, "db", *meta, "done", *immediates]
    lines += [
        f"{row.mnemonic} {', '.join(operands)};",
        "wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;",
        store("c", sizes["c"], at + 2),
    ]
    return SHARED + entry(sizes, at + 3, lines, GROUP)


def entry(declared: dict[str, int], parameters: int, lines: list[str], threads: int, doubles: bool = False) -> str:
    """A module of one kernel: parameters are addresses, `declared` 32-bit registers (and 64-bit ones before them)."""
    names = ", ".join(f".param .u64 p{i}" for i in range(parameters))
    head = [
        *(f".reg .b32 {name}<{n}>;" for name, n in declared.items()),
        *(f".reg .b64 d{name}<{n}>;" for name, n in declared.items() if doubles and name in "abcd"),
        ".reg .b32 thread, block, lane, from, to, count, w<4>; .reg .b64 q<2>, da, db; .reg .pred done;",
        f"mov.u32 thread, %tid.x; mov.u32 block, %ctaid.x; mad.lo.u32 lane, block, {threads}, thread;",
    ]
    return "\n".join([f".visible .entry replay({names})", "{", *head, *lines, "ret;", "}"])


def load(name: str, count: int, parameter: int) -> str:
    """Load a lane's words of an image of `count` words a lane."""
    loads = " ".join(f"ld.global.b32 {name}{i}, [q0+{4 * i}];" for i in range(count))
    return f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, lane, {4 * count}, q0; {loads}"


def store(name: str, count: int, parameter: int) -> str:
    """Store a lane's words."""
    stores = " ".join(f"st.global.b32 [q0+{4 * i}], {name}{i};" for i in range(count))
    return f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, lane, {4 * count}, q0; {stores}"


def join(name: str, count: int) -> str:
    """64-bit registers from pairs of words."""
    return " ".join(f"mov.b64 d{name}{i}, {{{name}{2 * i}, {name}{2 * i + 1}}};" for i in range(count // 2))


def vector(name: str, count: int, double: bool) -> str:
    """A vector operand."""
    names = [f"d{name}{i}" for i in range(count // 2)] if double else [f"{name}{i}" for i in range(count)]
    return "{" + ", ".join(names) + "}"


def copied_in(parameter: int, image: int, threads: int) -> list[str]:
    """Copy a block's image of shared memory from an array of images; a barrier has to follow."""
    step = UNIT * threads
    return [
        f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, block, {image}, q0;",
        f"mul.wide.u32 q1, thread, {UNIT}; add.u64 q0, q0, q1;",
        "mov.u32 from, smem; shl.b32 to, thread, 4; mov.u32 count, to; add.u32 to, from, to;",
        f"copy: setp.ge.u32 done, count, {image}; @done bra copied;",
        "ld.global.v4.b32 {w0, w1, w2, w3}, [q0]; st.shared.v4.b32 [to], {w0, w1, w2, w3};",
        f"add.u64 q0, q0, {step}; add.u32 to, to, {step}; add.u32 count, count, {step}; bra copy;",
        "copied:",
    ]


def copied_out(parameter: int, image: int, threads: int) -> list[str]:
    """Copy the block's shared memory to an array of images."""
    step = UNIT * threads
    return [
        f"ld.param.u64 q0, [p{parameter}]; mad.wide.u32 q0, block, {image}, q0;",
        f"mul.wide.u32 q1, thread, {UNIT}; add.u64 q0, q0, q1;",
        "mov.u32 from, smem; shl.b32 to, thread, 4; mov.u32 count, to; add.u32 to, from, to;",
        f"back: setp.ge.u32 done, count, {image}; @done bra gone;",
        "ld.shared.v4.b32 {w0, w1, w2, w3}, [to]; st.global.v4.b32 [q0], {w0, w1, w2, w3};",
        f"add.u64 q0, q0, {step}; add.u32 to, to, {step}; add.u32 count, count, {step}; bra back;",
        "gone:",
    ]


def ldmatrix_text(mnemonic: str, num: int, image: int) -> str:
    """A kernel that executes an ldmatrix on its own image; inputs: images, byte offsets of the lanes' rows."""
    lines = [*copied_in(0, image, WARP), "bar.sync 0;", load("a", 1, 1), "mov.u32 from, smem; add.u32 to, from, a0;"]
    lines += [f"{mnemonic} {vector('d', num, False)}, [to];", store("d", num, 2)]
    return SHARED + entry({"a": 1, "d": num}, 3, lines, WARP)


def stmatrix_text(mnemonic: str, num: int, image: int) -> str:
    """A kernel that executes an stmatrix on its own image; inputs: images, byte offsets, registers."""
    lines = [*copied_in(0, image, WARP), "bar.sync 0;", load("a", 1, 1), load("c", num, 2)]
    lines += [
        "mov.u32 from, smem; add.u32 to, from, a0;",
        f"{mnemonic} [to], {vector('c', num, False)};",
        "bar.sync 0;",
    ]
    return SHARED + entry({"a": 1, "c": num}, 4, [*lines, *copied_out(3, image, WARP)], WARP)


def movmatrix_text() -> str:
    """A kernel that executes movmatrix."""
    lines = [load("a", 1, 0), "movmatrix.sync.aligned.m8n8.trans.b16 d0, a0;", store("d", 1, 1)]
    return entry({"a": 1, "d": 1}, 2, lines, WARP)


def convert_text(mnemonic: str, sources: int, source_bits: int, bits: int) -> str:
    """A kernel that converts one element a thread; inputs: one array of words a source operand."""
    lines = [f".reg .b{source_bits} s<{sources}>; .reg .b{bits} r;"]
    for i in range(sources):
        lines.append(f"ld.param.u64 q0, [p{i}]; mad.wide.u32 q0, lane, {source_bits // 8}, q0;")
        lines.append(f"ld.global.b{source_bits} s{i}, [q0];")
    lines.append(f"{mnemonic} r, {', '.join(f's{i}' for i in range(sources))};")
    lines.append(f"ld.param.u64 q0, [p{sources}]; mad.wide.u32 q0, lane, {bits // 8}, q0; st.global.b{bits} [q0], r;")
    return entry({}, sources + 1, lines, GROUP)


def dpx_text(row: DpxRow) -> str:
    """A kernel of the instructions behind a DPX function; output: its value and, in a second word, its predicates."""
    pick = f"{row.pick}.{row.format}"
    last = pick + ".relu" * row.relu
    lines = [load("a", row.arity, 0)]
    if row.scheme == ADD:
        lines.append(f"add.{row.format} t0, a0, a1; {last} d0, t0, a2;")
    elif row.scheme == THREE:
        lines.append(f"{pick} t0, a0, a1; {last} d0, t0, a2;")
    else:
        lines.append(f"{last} d0, a0, a1;")
    if row.predicate:
        lines += [".reg .pred wins;", "mov.b32 d1, 0;", *_wins(row)]
    count = 1 + row.predicate
    return entry({"a": row.arity, "t": 1, "d": count}, 2, [*lines, store("d", count, 1)], GROUP)


def _wins(row: DpxRow) -> list[str]:
    """Bit 0 of d1: the first operand (of packed ones its upper half) is taken; bit 1: its lower half is."""
    test = "setp." + {"max": "ge", "min": "le"}[row.pick]
    if not row.packed:
        return [f"{test}.{row.format} wins, a0, a1; @wins mov.b32 d1, 1;"]
    t = row.format.removesuffix("x2")
    return [
        ".reg .b16 h<4>; mov.b32 {h0, h1}, a0; mov.b32 {h2, h3}, a1;",
        f"{test}.{t} wins, h1, h3; @wins or.b32 d1, d1, 1;",
        f"{test}.{t} wins, h0, h2; @wins or.b32 d1, d1, 2;",
    ]


def _chosen() -> list[str]:
    """m0: the warp's mask (parameter 1); done: this lane is in it."""
    return [
        "ld.param.u64 q0, [p1]; mad.wide.u32 q0, block, 4, q0; ld.global.b32 m0, [q0];",
        "shr.u32 w0, m0, thread; and.b32 w0, w0, 1; setp.ne.u32 done, w0, 0;",
    ]


def shuffle_text(mode: str, words: int) -> str:
    """A kernel of a shuffle of one or two words a lane; inputs: values, masks, sources, widths of the segments."""
    clamp = 0 if mode == "up" else WARP - 1
    lines = [load("a", words, 0), *_chosen(), load("b", 1, 2)]
    lines.append("ld.param.u64 q0, [p3]; mad.wide.u32 q0, block, 4, q0; ld.global.b32 w1, [q0];")
    lines.append(f"sub.u32 w1, {WARP}, w1; shl.b32 w1, w1, 8; or.b32 w1, w1, {clamp};")
    for i in range(words):
        lines.append(f"mov.b32 d{i}, a{i}; @done shfl.sync.{mode}.b32 d{i}, a{i}, b0, w1, m0;")
    return entry({"a": words, "b": 1, "m": 1, "d": words}, 5, [*lines, store("d", words, 4)], WARP)


def reduce_text(operation: str) -> str:
    """A kernel of a reduction among the lanes of a mask, and one among the others; inputs: values, masks."""
    lines = [
        load("a", 1, 0),
        *_chosen(),
        f"@!done not.b32 m0, m0; redux.sync.{operation} d0, a0, m0;",
        store("d", 1, 2),
    ]
    return entry({"a": 1, "m": 1, "d": 1}, 3, lines, WARP)


def votes_text() -> str:
    """A kernel of all, any, ballot, match.any, match.all and its predicate, among the lanes of a mask."""
    lines = [".reg .pred on, yes;", load("a", 1, 0), *_chosen(), "and.b32 w1, a0, 1; setp.ne.u32 on, w1, 0;"]
    for i, vote in enumerate(("all", "any")):
        lines.append(f"@done vote.sync.{vote}.pred yes, on, m0; selp.b32 d{i}, 1, 0, yes;")
    lines += [
        "@done vote.sync.ballot.b32 d2, on, m0; @done match.any.sync.b32 d3, a0, m0;",
        "@done match.all.sync.b32 d4|yes, a0, m0; selp.b32 d5, 1, 0, yes;",
        store("d", 6, 2),
    ]
    return entry({"a": 1, "m": 1, "d": 6}, 3, lines, WARP)


class Fragment(NamedTuple):
    """A fragment of wmma in a kernel: the instruction that loads or stores it, its registers, their bits, and the bytes
    of its image."""

    mnemonic: str
    registers: int
    bits: int
    image: int

    def names(self, name: str) -> str:
        """Its vector operand."""
        return "{" + ", ".join(f"{name}{i}" for i in range(self.registers)) + "}"


def wmma_text(loads: dict[str, Fragment], product: str, result: Fragment) -> str:
    """A kernel that loads the fragments of its warp's images (a, b, c), multiplies and stores."""
    parts = {**{f"f{k}": f for k, f in loads.items()}, "fd": result}
    lines = [f".reg .b{f.bits} {name}<{f.registers}>;" for name, f in parts.items()]
    for at, (name, f) in enumerate(parts.items()):
        place = f"ld.param.u64 q0, [p{at}]; mad.wide.u32 q0, block, {f.image}, q0;"
        if name != "fd":
            lines.append(f"{place} {f.mnemonic} {f.names(name)}, [q0];")
        else:
            lines.append(f"{product} {', '.join(parts[n].names(n) for n in ('fd', 'fa', 'fb', 'fc'))};")
            lines.append(f"{place} {f.mnemonic} [q0], {f.names(name)};")
    return entry({}, len(parts), lines, WARP)
