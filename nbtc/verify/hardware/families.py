"""Every family of trials under its name, for a PTX target: what `nbtc verify --hw` goes through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from nbtc.instructions import instructions
from nbtc.isa.archs import Target
from nbtc.isa.spec import Row
from nbtc.verify.hardware import (
    conversions,
    dynamic,
    exchange,
    memory,
    moves,
    products,
    programs,
    special_functions,
    warpgroup,
)
from nbtc.verify.hardware.sweeps import Sweep
from nbtc.verify.hardware.trial import Trial

Trials = Callable[[Target], Iterator[Trial]]
RANDOM_PROGRAMS, PRODUCT_PROGRAMS, MEMORY_PROGRAMS, SUM_PROGRAMS = 200, 200, 200, 200
WARPGROUP_PROGRAMS, COPY_PROGRAMS, PIPELINES = 100, 100, 100  # which take five seconds to compile; where there is wgmma
WIDEST = 64  # columns of the wgmma forms whose kernels also run as programs: compiling wider ones takes long


def rows(target: Target, family: str) -> list[Row]:
    """The forms of a family that text for the target may contain, and whose arithmetic nbtc knows."""
    found = [i.row for i in instructions(arch=target.arch.name)]
    return [r for r in found if r.family == family and r.executable and r.legal_on(target)]


def _of(make: Callable[[list[Row], Target], Iterator[Trial]], family: str) -> Trials:
    return lambda target: make(rows(target, family), target)


def _programs(target: Target) -> Iterator[Trial]:
    yield from programs.trials(RANDOM_PROGRAMS, target)
    yield from programs.product_trials(PRODUCT_PROGRAMS, target)
    yield from programs.sum_trials(SUM_PROGRAMS, target)
    if rows(target, "wgmma.mma_async"):
        yield from programs.warpgroup_trials(WARPGROUP_PROGRAMS, target)
        yield from programs.copy_trials(COPY_PROGRAMS, target)
        yield from programs.pipeline_trials(PIPELINES, target)
    yield from memory.trials(MEMORY_PROGRAMS, target)
    for name, make in FAMILIES.items():
        if name != PROGRAMS:
            for trial in make(target):
                if not name.startswith("wgmma") or f"n{WIDEST}k" in trial.form or "n8k" in trial.form:
                    yield programs.emulated(trial, target)


PROGRAMS = "programs"
FAMILIES: dict[str, Trials] = {
    "mma": _of(products.trials, "mma"),
    "mma.sp": _of(products.trials, "mma.sp"),
    "wgmma": _of(warpgroup.trials, "wgmma.mma_async"),
    "wgmma.sp": _of(warpgroup.trials, "wgmma.mma_async.sp"),
    "wmma.load": _of(moves.fragments, "wmma.load"),
    "wmma.mma": _of(products.trials, "wmma.mma"),
    "wmma.store": _of(moves.fragments, "wmma.store"),
    "ldmatrix": _of(moves.matrices, "ldmatrix"),
    "stmatrix": _of(moves.matrices, "stmatrix"),
    "movmatrix": _of(moves.matrices, "movmatrix"),
    "cvt": _of(conversions.trials, "cvt"),
    **{name.removesuffix(".sync"): _of(exchange.trials, name) for name in exchange.FAMILIES},
    "dpx": lambda target: dynamic.trials(),
    PROGRAMS: _programs,
    "approx": special_functions.trials,
}
# families of which every input can be tried
SWEEPS: dict[str, Callable[[Target], Iterator[Sweep]]] = {
    "cvt": lambda target: conversions.sweeps(rows(target, "cvt")),
    "approx": special_functions.sweeps,
}


def chosen(target: Target, names: Sequence[str]) -> Iterator[tuple[str, int, Trial]]:
    """Family, number and trial of every trial of the families named."""
    return chain.from_iterable(((name, i, t) for i, t in enumerate(FAMILIES[name](target))) for name in names)
