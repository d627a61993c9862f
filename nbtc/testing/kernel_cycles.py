"""How long the loops of large products take on this processor, in multiply-adds: what its operations cost beside those.

A multiply-add of a whole register is a cycle on Zen 4 and half a cycle on Intel's with two ports.  Everything is timed
by itself, without packing, and in processor time; the shortest of some times counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from llvmlite import binding, ir
from numpy.typing import NDArray

import nbtc
from nbtc.compiler.builder import I8, I64, VectorBuilder
from nbtc.compiler.cpu.host import features
from nbtc.compiler.cpu.processors import host_processor
from nbtc.compiler.machine_code.emitted import Named, call_address, in_words, machine_code, run_in_words
from nbtc.compiler.pools.workspace_pool import aligned
from nbtc.gemm.engines import lone_block
from nbtc.gemm.engines.engines import ALONE
from nbtc.gemm.engines.fused_engine import FusedProduct
from nbtc.gemm.engines.packed_memory import ROW_BLOCK
from nbtc.gemm.engines.words_engine import scheme, words_call
from nbtc.gemm.planning import ProductOptions, prepare
from nbtc.kernels.panels.fused_sum import PANEL
from nbtc.kernels.panels.panel import BLOCKS, SumArguments
from nbtc.kernels.panels.panel_drivers import drivers
from nbtc.kernels.panels.panel_operands import Span, State
from nbtc.kernels.words import words
from nbtc.testing.kernel_code import CPUS, SHAPES, Operations, operations, words_operations, words_row

TURNS, TIMES = 1_000, 200
SUMS, DEPTH = 16, 512  # that are counted together; words of K
DEEP, SHALLOW = 16, 8  # blocks of products, panels, thousands of turns: loops are timed by the difference
# Operations whose cost is told, by their names in docs/bounds.md; {d} is a register, {s} and {t} are two others, {o}
# and {w} are bytes: of a register and of a word.  They take and leave no register of the multiply-adds.
COMMON = {
    "multiplication": "vmulps {s}, {t}, {d}",
    "addition": "vpaddd {s}, {t}, {d}",
    "maximum": "vpmaxub {s}, {t}, {d}",
    "saturating sum of bytes": "vpsubusb {s}, {t}, {d}",
    "shift": "vpsrld $$1, {s}, {d}",
    "shuffle": "vpunpckldq {s}, {t}, {d}",
    "conversion": "vcvttps2dq {s}, {d}",
    "broadcast from memory": "vpbroadcastd {w}($2), {d}",
}
OF_512_BITS = COMMON | {
    "count of bits": "vpopcntd {s}, {d}",
    "comparison": "vpcmpltub {s}, {t}, %k2",
    "rotation": "vprold $$1, {s}, {d}",
    "dot product": "vpdpbusd {s}, {t}, {d}",
    "permutation of two sources": "vpermt2d {s}, {t}, {d}",
    "store of 512 bits": "vmovdqa64 {s}, {o}($3)",
    "store of 256 bits": "vmovdqa64 %ymm28, {o}($3)",
    "maximum of bytes under a mask": "vpmaxub {o}-3($2), {s}, {d} {{%k1}}",
    "logic of three sources": "vpternlogd $$0x96, {s}, {t}, {d}",
    "logic": "vpxord {s}, {t}, {d}",
    "load": "vmovdqa64 {o}($2), {d}",
}
OF_256_BITS = COMMON | {
    "comparison": "vpcmpeqb {s}, {t}, {d}",
    "choice of bytes": "vpblendvb {s}, {t}, {s}, {d}",
    "sum of two products": "vpmaddwd {s}, {t}, {d}",
    "store of 256 bits": "vmovdqa {s}, {o}($3)",
    "widened bytes from memory": "vpmovzxbd {w}($2), {d}",
    "logic": "vpxor {s}, {t}, {d}",
    "load": "vmovdqa {o}($2), {d}",
}


class Registers(NamedTuple):
    """Of a loop: their name, independent sums, multiply-adds of a turn and what they multiply, the first register that
    other operations leave and how many, and what those take; after every other multiply-add comes one.

    begin: what comes before the loop, with `used` aside from the registers.
    """

    bits: int
    name: str
    sums: int
    multiply_adds: int
    factors: tuple[int, int]
    others: tuple[int, int]
    sources: tuple[int, int]
    operations: dict[str, str]
    begin: tuple[str, ...] = ()
    used: tuple[str, ...] = ()


LARGE = Registers(
    512, "%zmm", 16, 16, (30, 31), (20, 8), (28, 29), OF_512_BITS,
    ("movl $$0x88888888, %eax", "kmovd %eax, %k1"), ("~{k1}", "~{k2}", "~{rax}"),
)  # fmt: skip
# eight sums would wait for each other: a multiply-add takes four cycles, of which two begin in each
SMALL = Registers(256, "%ymm", 10, 20, (14, 15), (10, 4), (14, 15), OF_256_BITS)
NEEDS = frozenset({"avx512f", "avx512bw", "avx512vnni", "avx512vpopcntdq"})  # of `LARGE`


def registers() -> Registers:
    """Those of this machine's kernels."""
    return LARGE if features() >= NEEDS else SMALL


# products whose loops are those of `SHAPES`, and of `WORDS`
FLOATS: dict[str, tuple[str, dict[str, Any]]] = {
    "f16, bf16": ("f16", {}),
    "tf32, f16 of sm_80": ("tf32", {}),
    "f16 accumulators": ("f16", {"acc": "f16"}),
    "e4m3, e5m2 unit": ("e4m3", {"instruction": "wgmma"}),
}
INTEGERS = {"s8, u8, s4, u4": "s8", "b1": "b1", "f64": "f64"}


class LoopArguments(NamedTuple):
    """Of a loop: how often, where it loads and where it stores."""

    turns: int
    source: Any
    target: Any


class Cycles(NamedTuple):
    """Of a kernel, for a register of 32-bit sums of one block of products, or of one word.

    bound: the least that its operations take.  took: what they do.  Both in multiply-adds.
    """

    bound: float
    took: float


def slopes(*runs: Callable[[int], object]) -> list[float]:
    """Processor seconds by which one more turn makes each call longer: of the shortest of some calls, all by turns."""
    calls = [(run, turns) for run in runs for turns in (SHALLOW, DEEP)]
    best = [np.inf] * len(calls)
    for _ in range(TIMES):
        for i, (run, turns) in enumerate(calls):
            start = time.thread_time_ns()
            run(turns)
            best[i] = min(best[i], time.thread_time_ns() - start)
    return [(best[i + 1] - best[i]) / (DEEP - SHALLOW) / 1e9 for i in range(0, len(best), 2)]


# --- single operations ------------------------------------------------------------------------------------------------
def _loop(text: str) -> Callable[[int], object]:
    """Thousands of turns, as many as are given, of multiply-adds with an operation after every other one, if any."""
    r = registers()
    every, count = [f"{r.name}{n}" for n in range(32 if r.bits == 512 else 16)], r.others[1]
    lines = [*r.begin, *(f"vxorps %ymm{n}, %ymm{n}, %ymm{n}" for n in range(16))]
    lines += [f"vpxord {x}, {x}, {x}" for x in every[16:]]
    lines.append("${:private}nbtc_loop${:uid}:")
    a, b, s, t = (every[n] for n in r.factors + r.sources)
    for n in range(r.multiply_adds):
        lines.append(f"vfmadd231ps {a}, {b}, {every[n % r.sums]}")
        if text and n % 2:
            at = n // 2
            place = {"o": r.bits // 8 * (at + 1), "w": 4 * at}
            lines.append(text.format(d=every[r.others[0] + at % count], s=s, t=t, **place))
    lines += ["decq $0", "jnz ${:private}nbtc_loop${:uid}"]
    used = ",".join([*(f"~{{xmm{n}}}" for n in range(len(every))), *r.used, "~{memory}", "~{flags}"])

    def body(v: VectorBuilder, x: Named) -> Any:
        pointer = I8.as_pointer()
        kind = ir.FunctionType(I64, [I64, pointer, pointer])
        return v.b.asm(kind, "; ".join(lines), f"=r,0,r,r,{used}", [x["turns"], x["source"], x["target"]], True)

    address = machine_code({"loop": in_words(LoopArguments, body)}, "; ".join(lines)).address("loop")
    memory = [aligned(1 << 12, "u1") for _ in range(2)]
    for x in memory:
        x[:] = 0
    return lambda turns: run_in_words(address, LoopArguments(TURNS * turns, *memory))


def multiply_add_seconds() -> float:
    """Of one multiply-add of a register, where they are independent."""
    return slopes(_loop(""))[0] / (TURNS * registers().multiply_adds)


def cost_of(name: str) -> float:
    """What an operation adds to a loop of multiply-adds, in those."""
    alone, both = slopes(*(_loop(text) for text in ("", registers().operations[name])))
    return (both - alone) / alone * 2


# --- kernels ----------------------------------------------------------------------------------------------------------
def processor_name() -> str | None:
    """LLVM's name for processors of this machine's row, of those whose kernels are counted."""
    own = binding.get_host_cpu_name()
    names = [name for name, row in CPUS.items() if row == host_processor()]
    return own if own in names else next(iter(names), None)


def _bound(found: Operations) -> float:
    """What two ports do in turn, whatever it is; on Zen, multiply-adds in one of two, and anything in both.

    Of 256 bits Zen does twice as many.
    """
    row = host_processor()
    return found.vector if row is not None and row.two_ports else max(found.multiply_adds, found.vector / 2)


def cycles(name: str) -> Cycles:
    """Those of a kernel of `SHAPES` or `WORDS`."""
    cpu = processor_name()
    if cpu is None:
        raise NotImplementedError(f"no kernels are counted for this processor: they are for {', '.join(CPUS)}")
    counted = operations(cpu, name) if name in SHAPES else words_operations(cpu, name)
    seconds = _float_seconds(name) if name in SHAPES else _words_seconds(name)
    return Cycles(_bound(counted), seconds * registers().bits / 512 / multiply_add_seconds())


def _operands(fmt: str, rows: int, depth: int, columns: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Ones: no operation takes longer for other numbers."""
    kind = nbtc.as_format(fmt).dtype
    return np.ones((rows, depth), kind), np.ones((depth, columns), kind)


class Sums(NamedTuple):
    """Sums by the function at an address."""

    address: int
    arguments: SumArguments


@cache
def _sums() -> int:
    """The address of a function of `Sums`."""
    body = in_words(Sums, lambda v, x: call_address(v, x["address"], SumArguments, x["arguments"]))
    return machine_code({"sums": body}, "sums by an address").address("sums")


def _float_seconds(name: str) -> float:
    """Of sixteen sums of a block: 64 rows by a panel, from operands that a product has packed."""
    fmt, options = FLOATS[name]
    f = nbtc.as_format(fmt)
    a, b = _operands(fmt, ROW_BLOCK, DEEP * SHAPES[name][1], PANEL)
    problem = prepare(a, b, None, ProductOptions(threads=1, a_format=f, b_format=f, **options))
    product = FusedProduct(problem.a, problem.b, (f, f), problem.plan.params, ALONE)
    product.lay_out(*product.ranges())
    known, numbers, d = product.piece(), product.layout.numbers, np.zeros((ROW_BLOCK, PANEL), np.float32)
    left, right = (product.layout.source(n, x.reshape(-1), 0, x.shape[1]) for n, x in enumerate((problem.a, problem.b)))
    arrays = tuple(aligned(*x) for x in known.key)
    arguments = lone_block.block_arguments(
        known, (left, right), State(d, PANEL, fresh=1), product.places_of_marks, numbers, arrays
    )
    run_in_words(drivers().block, arguments)
    space, own = arguments.space, arguments.space.own

    def run(groups: int) -> object:
        span = Span(0, 0, groups, BLOCKS)
        given = SumArguments(own.a, space.packed, span, own.tiles, numbers, own.scratch)
        return run_in_words(_sums(), Sums(known.code.form.sums, given))

    return slopes(run)[0] / (ROW_BLOCK * PANEL // SUMS)


def _words_seconds(name: str) -> float:
    """Of sixteen sums and one word of K: rows times more panels or fewer; rows are packed once."""
    op, fmt = words_row(processor_name() or "", name)[0], nbtc.as_format(INTEGERS[name])
    how = scheme(op, fmt, fmt)
    units = DEPTH * how.units // how.words
    a, b = _operands(INTEGERS[name], words.BLOCK, units * how.elements, DEEP * how.width)
    if fmt.bits == 1:
        a, b = nbtc.pack(a, fmt), nbtc.pack(b, fmt, axis=0)
    found = words_call(how, a, b)
    if found is None:
        raise LookupError(f"{name} has no call for {a.shape} by {b.shape}")
    _, d = found(a, b)
    rows = found.arguments(found.free[-1][1]).product.rows  # whose memory has packed operands now
    own = (part._replace(x=x.reshape(-1).view(np.uint8)) for part, x in ((rows.a, a), (rows.d, d)))
    rows = rows._replace(**dict(zip(("a", "d"), own, strict=True)))

    def run(panels: int) -> object:
        return run_in_words(how.rows, rows._replace(columns=panels * how.width))

    return slopes(run)[0] / (words.BLOCK * how.width // SUMS * DEPTH)
