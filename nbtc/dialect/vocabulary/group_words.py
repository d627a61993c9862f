"""How words of groups of threads become PTX: one elected thread, named barriers, clusters, registers of a warpgroup.

(PTX ISA, "elect.sync", "barrier", "barrier.cluster", "setmaxnreg".)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import copies
from nbtc.numba_door.constants import constant_of

HERE = copies.__name__
LEAST, MOST, STEP = 24, 256, 8  # registers of a thread, and what their number is a multiple of (PTX ISA, "setmaxnreg")
WARP = 32  # what counts of threads at a barrier are multiples of (PTX ISA, "barrier")

words.instruction(f"{HERE}.cluster_rank", "mov.u32 $0, %cluster_ctarank;", types.int32, effect=False)
words.instruction(f"{HERE}.cluster_arrive", "barrier.cluster.arrive.aligned;", types.void, memory=True)
words.instruction(f"{HERE}.cluster_wait", "barrier.cluster.wait.aligned;", types.void, memory=True)


@words.word(f"{HERE}.elect_sync")
def _elect_sync(context: Any, mask: Any = 0xFFFFFFFF) -> Any:
    if not isinstance(types.unliteral(mask), types.Integer):
        words.refuse(f"elect_sync: mask is a whole number, a bit for each lane, not {mask}")

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        lanes = c.cast(b, args[0], mask, types.uint32)
        [found] = words.inline(b, "elect.sync _|$0, $1;", [ir.IntType(1)], [lanes])
        return found

    return signature(types.boolean, mask), emit


def _registers(way: str) -> None:
    name = f"setmaxnreg_{way}"

    def typing(context: Any, n: Any) -> Any:
        count = constant_of(n)
        if not isinstance(count, int) or not LEAST <= count <= MOST or count % STEP:
            words.refuse(f"{name}: n is a constant from {LEAST} to {MOST}, a multiple of {STEP}; it is {n}")

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            words.inline(b, f"setmaxnreg.{way}.sync.aligned.u32 {count};", [], [], memory=True)
            return c.get_dummy_value()

        return signature(types.none, n), emit

    words.word(f"{HERE}.{name}")(typing)


_registers("inc")
_registers("dec")


@words.word(f"{HERE}.bar_sync")
def _bar_sync(context: Any, barrier: Any, threads: Any) -> Any:
    count = constant_of(threads)
    if not isinstance(types.unliteral(barrier), types.Integer):
        words.refuse(f"bar_sync: barrier is a whole number, 1 to 15 (0 is syncthreads'), not {barrier}")
    if not isinstance(count, int) or count <= 0 or count % WARP:
        words.refuse(f"bar_sync: threads is a constant, a multiple of {WARP}; it is {threads}")

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        words.inline(b, f"bar.sync $0, {count};", [], [c.cast(b, args[0], barrier, types.uint32)], memory=True)
        return c.get_dummy_value()

    return signature(types.none, barrier, threads), emit
