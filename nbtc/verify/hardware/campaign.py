"""A comparison of every form with a machine: as many outputs as asked for, in worker processes, into one report.

A worker opens the machine and makes the trials of the families itself, and is told their numbers: what it returns is
counts.  Everything drawn follows from the seed, the form's number and the round: a difference can be had again.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from nbtc.errors import OptionError
from nbtc.isa.archs import target
from nbtc.verify.hardware.families import FAMILIES, SWEEPS
from nbtc.verify.hardware.sweeps import Sweep
from nbtc.verify.hardware.trial import Gpu, Machine, Outcome, Trial, compare

ROUND = 1 << 20  # outputs of a round at most: its arrays are a few times as many words
SLICE = 1 << 22  # inputs of a round of an exhaustive trial
SLICES = 1 << 5  # rounds of it that one task does
EXHAUSTIVE = ", every input"  # after a family's name
MOST_FAILURES = 100  # that a report lists


class Task(NamedTuple):
    """Part of the work: one trial of a family up to a number of outputs, or a part of an exhaustive one."""

    family: str
    number: int
    outputs: int
    seed: int
    start: int = 0


class Answer(NamedTuple):
    """What became of a task; error: what was raised instead of a result."""

    task: Task
    form: str
    outputs: int
    mismatches: int
    first: str = ""
    error: str = ""


@dataclass
class Count:
    """What was compared of a family."""

    forms: int = 0
    outputs: int = 0
    mismatches: int = 0


@dataclass
class Campaign:
    """The report: the machine, the seed, counts by family, what differed, seconds."""

    machine: str
    target: str
    driver: str
    seed: int
    families: dict[str, Count] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    date: str = ""

    @property
    def total(self) -> Count:
        """The sum over all families."""
        found = self.families.values()
        return Count(*(sum(getattr(c, n) for c in found) for n in ("forms", "outputs", "mismatches")))

    @property
    def ok(self) -> bool:
        """Everything was compared, and every bit agreed."""
        return not self.failures and all(c.outputs and not c.mismatches for c in self.families.values())

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "total": asdict(self.total), "ok": self.ok}

    def table(self) -> str:
        """The report in Markdown."""
        lines = [
            f"{self.machine} ({self.target}), driver for CUDA {self.driver}, {self.date}, seed {self.seed}, "
            f"{self.seconds:.0f} s", "", "| family | forms | outputs | mismatches |", "|---|--:|--:|--:|",
            *(f"| {n} | {c.forms:,} | {c.outputs:,} | {c.mismatches:,} |" for n, c in self.families.items()),
            "| **all** | **{forms:,}** | **{outputs:,}** | **{mismatches:,}** |".format(**asdict(self.total)),
        ]  # fmt: skip
        return "\n".join([*lines, "", *(f"* {f}" for f in self.failures[:MOST_FAILURES])]) + "\n"


@cache
def _trials(family: str, name: str) -> tuple[Trial, ...]:
    return tuple(FAMILIES[family](target(name)))


@cache
def _sweeps(family: str, name: str) -> tuple[Sweep, ...]:
    return tuple(SWEEPS[family](target(name)))


@cache
def _gpu() -> Gpu:
    return Gpu()


def families(names: Sequence[str] | None) -> list[str]:
    """The families of these names, all of them for None; OptionError for others."""
    chosen = list(FAMILIES) if names is None else list(names)
    for name in chosen:
        if name not in FAMILIES:
            raise OptionError(f"{name!r} is not a family to compare; they are {', '.join(FAMILIES)}")
    return chosen


def tasks(names: Sequence[str], name: str, outputs: int, seed: int) -> Iterator[Task]:
    """An equal share of the outputs for each form."""
    every = [(family, i, trial) for family in names for i, trial in enumerate(_trials(family, name))]
    free = sum(not trial.most for *_, trial in every)
    for family, i, trial in every:
        yield Task(family, i, trial.outputs * trial.most or max(1, outputs // max(1, free)), seed)


def exhaustive_tasks(names: Sequence[str], name: str) -> Iterator[Task]:
    """Every input of every form, in those of the families where that can be had."""
    for family in (n for n in names if n in SWEEPS):
        for i, sweep in enumerate(_sweeps(family, name)):
            inputs, step = sweep.values, SLICE * SLICES
            for start in range(0, inputs, step):
                yield Task(family + EXHAUSTIVE, i, min(step, inputs - start), 0, start)


def run_task(task: Task, machine: Machine) -> Answer:
    """Do a task; what goes wrong is an answer too."""
    form = ""
    outputs = mismatches = 0
    first = ""
    try:
        for name, outcome in _rounds(task, machine):
            form = name
            outputs, mismatches = outputs + outcome.outputs, mismatches + outcome.mismatches
            first = first or outcome.first
    except Exception as error:  # a form that the machine or nbtc refuses must not end the others
        return Answer(task, form, outputs, mismatches, first, f"{type(error).__name__}: {error}")
    return Answer(task, form, outputs, mismatches, first)


def _rounds(task: Task, machine: Machine) -> Iterator[tuple[str, Outcome]]:
    if task.family.endswith(EXHAUSTIVE):
        sweep = _sweeps(task.family.removesuffix(EXHAUSTIVE), machine.target)[task.number]
        for start in range(task.start, task.start + task.outputs, SLICE):
            trial = sweep.trial(start)
            count = min(SLICE, task.start + task.outputs - start)
            blocks = count // trial.block_threads
            yield trial.form, compare(trial, machine, np.random.default_rng(0), blocks)
        return
    trial = _trials(task.family, machine.target)[task.number]
    left, number = task.outputs, 0
    while left > 0:
        rng = np.random.default_rng([task.seed, list(FAMILIES).index(task.family), task.number, number])
        most = max(1, ROUND // trial.outputs)
        blocks = trial.most or min(most, -(-left // trial.outputs))
        outcome = compare(trial, machine, rng, blocks)
        yield trial.form, outcome
        left, number = left - blocks * trial.outputs, number + 1
    if hasattr(machine, "forget"):
        machine.forget(trial.body)


def _on_gpu(task: Task) -> Answer:
    return run_task(task, _gpu())


def _start() -> None:
    """A worker computes with one thread: there are as many workers as cores."""
    os.environ["NUMBA_NUM_THREADS"] = "1"


def campaign(
    names: Sequence[str] | None = None, outputs: int = 10**7, seed: int = 0, exhaustive: bool = False,
    workers: int | None = None, machine: Machine | None = None, progress: Callable[[str], None] | None = None,
) -> Campaign:  # fmt: skip
    """Compare every form of the families named (None: all) with this machine's GPU.

    outputs: how many, over all forms.  exhaustive: besides, every input of the conversions and approximate functions
    among them.  workers: processes (None: one a core).  machine: what runs the kernels in this process, in the place
    of the GPU.  progress: gets a line each time a family gets on.  DeviceError where there is no GPU.
    """
    judge = _gpu() if machine is None else machine
    began = time.time()
    report = Campaign(judge.name, judge.target, judge.driver_version, seed, date=time.strftime("%Y-%m-%d"))
    chosen = families(names)
    work = list(tasks(chosen, judge.target, outputs, seed))
    work += exhaustive_tasks(chosen, judge.target) if exhaustive else ()
    for name in dict.fromkeys((*chosen, *(t.family for t in work))):
        report.families[name] = Count(forms=len({t.number for t in work if t.family == name}))
    order = np.random.default_rng(seed).permutation(
        len(work)
    )  # neighbours share kernels, which one worker is to compile
    work = [work[i] for i in order]
    answers = _answers(work, workers) if machine is None else (run_task(task, machine) for task in work)
    for done, answer in enumerate(answers, 1):
        _add(report, answer)
        if progress is not None:
            progress(
                f"{done:,} of {len(work):,} parts, {report.total.outputs:,} outputs, {len(report.failures)} failures"
            )
    report.seconds = time.time() - began
    return report


def _answers(work: list[Task], workers: int | None) -> Iterator[Answer]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers or os.cpu_count(), context, _start) as pool:
        for future in as_completed([pool.submit(_on_gpu, task) for task in work]):
            yield future.result()


def _add(report: Campaign, answer: Answer) -> None:
    count = report.families[answer.task.family]
    count.outputs += answer.outputs
    count.mismatches += answer.mismatches
    if answer.mismatches or answer.error or not answer.outputs:
        what = answer.error or f"{answer.mismatches:,} of {answer.outputs:,} differ, {answer.first}"
        report.failures.append(f"{answer.form or answer.task}: {what}")
