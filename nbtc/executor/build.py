"""A kernel to machine code: from the cache on disk if it is there, else linked, emitted and compiled."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nbtc.compiler.announce import announced
from nbtc.compiler.cache import added_rows
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.machine_code import native, stacks
from nbtc.compiler.machine_code.split import Functions
from nbtc.errors import ProgramError
from nbtc.executor.code.helpers import emitting
from nbtc.executor.code.machine import BlockShape, Machine, Options, Site
from nbtc.executor.code.registers import PRODUCTS
from nbtc.executor.coverage import check
from nbtc.executor.emit.instrument import Instrument
from nbtc.executor.kernel.contract import contracted
from nbtc.executor.kernel.link import link
from nbtc.executor.kernel.parameters import with_named_parameters
from nbtc.executor.launch.launch import LaunchableCode
from nbtc.executor.text.data import PtxModule

# How far LLVM optimises a warp's text.  A compiler of PTX has moved out of loops what it could, so the first level is
# as fast as the second (see `native`), but not where lanes part in a loop, which adds code for those that wait there:
# a loop of Collatz' sequence took 1.4 times as long.
PARTING, TOGETHER = 2, 1
# How far before LLVM divides it at its waits: products of integers take so little time that what a warp keeps over a
# wait counts, their operands among it (one of bytes took 1.05 times as long with the fewest passes).  All others are as
# fast (products of f16 and e4m3, attention, softmax, sums), with less code where programs are large: FlashAttention-2's
# 217 to 203 KB backward, 369 to 347 KB forward, and a quarter less time for LLVM.
OF_INTEGERS, OTHERS = 2, None
# How far its machine code: scheduling again after registers are allocated is a seventh of that time, and where warps
# multiply matrices, which functions of their own do, all programs are as fast without (products of f16, e4m3 and bytes
# with mma and wgmma, attention).
AMONG_PRODUCTS, ALONE = 1, 2
NUMBERS = (
    "suspends",
    "loops",
    "shared_bytes",
    "local_bytes",
    "scratch_bytes",
    "stack_bytes",
    "asks",
    "spins",
    "services",
)  # of `LaunchableCode`


RUN = "run"  # the function that runs warps


class Built(NamedTuple):
    """Machine code and the places in the program that its errors name."""

    code: LaunchableCode
    sites: tuple[Site, ...]
    shared: tuple[tuple[str, int, int], ...] = ()  # name, offset and bytes of arrays; of dynamic ones 0 bytes


def instrument_named(name: str) -> Instrument:
    """What sees a program's instructions: nothing, the checked mode, a profile."""
    if name == "watch":
        from nbtc.executor.watch.hooks import CheckedMode

        return CheckedMode()
    if name == "profile":
        from nbtc.executor.profile.hooks import ProfileInstrument

        return ProfileInstrument()
    return Instrument()


@cache
def stamp() -> str:
    """A digest of the sources that decide what a program becomes."""
    return source_digest(Path(__file__).resolve())


def build(read: Callable[[], PtxModule], text: str, kernel: str, shape: BlockShape, options: Options) -> Built:
    """Code of one kernel for blocks of a shape; read: gives the module of the text, which code on disk does without."""
    name = native.digest(stamp(), added_rows.digest(), text, kernel, repr(shape), repr(options))
    found = native.fetch(name)
    if found is None:
        with emitting():
            found = _compile(read(), kernel, shape, options)
        native.keep(name, found)
    loaded = native.load(found)
    about = loaded.about
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(loaded.address(about[RUN]))
    numbers = {key: about[key] for key in NUMBERS}
    return Built(
        LaunchableCode(loaded, run, sites=len(about["sites"]), sessions={}, **numbers),
        tuple(Site(*s) for s in about["sites"]),
        tuple((name, at, size) for name, at, size in about["shared"]),
    )


@announced
@rarely_collected
def _compile(module: PtxModule, kernel: str, shape: BlockShape, options: Options) -> native.Native:
    linked = link(module, kernel)
    check(linked)
    instrument = instrument_named(options.instrument)
    named = linked.changed(with_named_parameters)
    prepared = (contracted(named) if options.contract else named).changed(instrument.prepared)
    machine = Machine(prepared, shape, options, instrument)
    about: dict[str, Any] = {
        "sites": [list(s) for s in machine.sites],
        "suspends": machine.suspends,
        "loops": machine.loops,
        "spins": any(f.spins for f in machine.facts.values()),
        "shared": [[n, p.offset, p.bytes] for (_, n), p in linked.places.items() if p.space == "shared"],
        "shared_bytes": linked.shared_bytes,
        "asks": machine.asks,
        "local_bytes": linked.local_bytes,
        "scratch_bytes": machine.scratch.bytes,
        "services": sorted(instrument.services),
    }
    text = PARTING if machine.parts_in_loops else TOGETHER
    products = [i for f in prepared.functions for i in f.body or () if i.opcode in PRODUCTS]
    waits = OF_INTEGERS if any("s32" in i.modifiers for i in products) else OTHERS
    code = AMONG_PRODUCTS if products else ALONE
    functions = Functions(machine.module, machine.helpers.functions)
    made, absent = functions.objects("warp", RUN, levels=native.Levels(text, code, alone=True, waits=waits))
    about |= {RUN: functions.symbol(RUN), "absent": absent}
    about["stack_bytes"] = _stack(kernel, made)
    return native.Native(b"".join(made), {**about, "sizes": [len(o) for o in made]})


def _stack(kernel: str, objects: list[bytes]) -> int:
    """Bytes of a thread's stack that a kernel's code takes."""
    found = stacks.frames(objects)
    if found > stacks.MOST:
        raise ProgramError(
            f"{kernel}: its code takes {found / stacks.MIB:,.0f} MiB of a thread's stack, of which "
            f"{stacks.MOST / stacks.MIB:,.0f} MiB is the most here: split the kernel, or unroll less"
        )
    return found
