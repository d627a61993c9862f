"""Which instruction forms the kernels of a module use, and which of them can't run."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Mapping
from functools import cache
from typing import Any, NamedTuple

from nbtc.errors import IllegalProgramError, ProgramError
from nbtc.executor.control.calls import parts
from nbtc.executor.control.system_calls import missing
from nbtc.executor.emit.action import FormRow
from nbtc.executor.kernel.link import Linked, link
from nbtc.executor.rows.introductions import too_new, unknown_target
from nbtc.executor.rows.legality import Names, mistyped, names_of, undeclared
from nbtc.executor.rows.spelling import respelled
from nbtc.executor.rows.uses import no_such, refusal, row_of
from nbtc.executor.text.data import Instruction, PtxModule, Register, Symbol
from nbtc.executor.text.matrix_names import first_version
from nbtc.executor.text.names import full_name, signature
from nbtc.executor.text.operands import others, shape
from nbtc.executor.text.parse import parse
from nbtc.executor.text.source import text_of
from nbtc.isa.archs import target
from nbtc.isa.parse import rows

LINES = 8  # of a form that are printed


class FormUse(NamedTuple):
    """A form and where a kernel uses it; evidence: what backs bits that the ISA leaves open; refused: why not."""

    form: str
    lines: tuple[int, ...]
    evidence: str = ""
    refused: str = ""


class KernelCoverage(NamedTuple):
    """The forms of one kernel and of the functions that it calls."""

    kernel: str
    forms: tuple[FormUse, ...]

    @property
    def missing(self) -> tuple[FormUse, ...]:
        """Those that can't run."""
        return tuple(f for f in self.forms if f.refused)

    @property
    def runs(self) -> bool:
        """Whether all can."""
        return not self.missing

    def __str__(self) -> str:
        head = f"{signature(self.kernel)}: {len(self.forms)} forms, {len(self.missing)} of them can't run"
        lines = [f"  {f.refused}  (line {_numbers(f.lines)})" for f in self.missing]
        lines += [f"  {f.form}: {f.evidence}" for f in self.forms if f.evidence]
        return "\n".join([head, *lines])


def _numbers(lines: tuple[int, ...]) -> str:
    return ", ".join(map(str, lines[:LINES])) + (", ..." if len(lines) > LINES else "")


class Coverage(Mapping[str, KernelCoverage]):
    """What `coverage` found, by kernel; printing it gives a report."""

    def __init__(self, kernels: tuple[KernelCoverage, ...]) -> None:
        self._kernels = {k.kernel: k for k in kernels}

    def __getitem__(self, kernel: str) -> KernelCoverage:
        return self._kernels[kernel]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kernels)

    def __len__(self) -> int:
        return len(self._kernels)

    @property
    def runs(self) -> bool:
        """Whether every kernel can run."""
        return all(k.runs for k in self._kernels.values())

    def __str__(self) -> str:
        return "\n".join(map(str, self._kernels.values())) or "no kernels"

    __repr__ = __str__

    def as_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return {k.kernel: [f._asdict() for f in k.forms] for k in self._kernels.values()}


def coverage(source: str | os.PathLike[str]) -> Coverage:
    """The instruction forms that the kernels of a PTX text or file use, and those that can't run, with their lines.

    Raises ParseError for what is not PTX, SourceError where there is no such file, FormatError for what is no text.

    >>> head = ".version 8.0 .target sm_80 .address_size 64 "
    >>> print(coverage(head + ".visible .entry k() { .reg .b32 a; frob.b32 a; ret; }"))
    k: 2 forms, 1 of them can't run
      frob.b32: no instruction of this name is implemented  (line 1)
    """
    module = parse(text_of(source))
    kernels = (f.name for f in module.functions.values() if f.entry and f.body is not None)
    return Coverage(tuple(KernelCoverage(name, forms_of(link(module, name))) for name in kernels))


def forms_of(linked: Linked) -> tuple[FormUse, ...]:
    """The forms of a kernel with its functions, in alphabetical order."""
    lines: dict[str, list[int]] = {}
    reasons: dict[str, dict[str, None]] = {}
    for function in linked.functions:
        names = names_of(function, linked.module)
        for i in function.body or ():
            lines.setdefault(i.mnemonic, []).append(i.line)
            why = refused(i, names, linked.module)
            if why:
                reasons.setdefault(i.mnemonic, {})[why] = None
    rows = {name: row_of(name) for name in lines}
    return tuple(
        FormUse(name, tuple(found), row.evidence if (row := rows[name]) else "", "; ".join(reasons.get(name, ())))
        for name, found in sorted(lines.items())
    )


def refused(i: Instruction, names: Names, module: PtxModule) -> str:
    """Why an instruction can't run, or nothing: its form, a special register, or a function that isn't there."""
    row = row_of(i.mnemonic)
    if row is None:
        return refusal(i.mnemonic)
    why = illegal(i, row, names, module)
    if why:
        return why
    if i.opcode == "call" and not isinstance(callee := parts(i.operands).callee, Register):
        name = callee.name if isinstance(callee, Symbol) else ""
        known = module.functions.get(module.aliases.get(name, name))
        if (known is None or known.body is None) and (why := missing(name)):
            return f"call: {why}"
    return ""


def illegal(i: Instruction, row: FormRow, names: Names, module: PtxModule) -> str:
    """Why ptxas refuses an instruction that has a row, or nothing."""
    since = first_version(i.mnemonic) if i.opcode == "mma" else ""
    if since and tuple(map(int, since.split("."))) > module.version:
        have = ".".join(map(str, module.version))
        return f"{i.mnemonic}: needs .version {since}, but the text says {have}"
    if i.opcode == "tcgen05" and not _has_tensor_memory(module.target):
        return f"{i.mnemonic}: tensor memory needs a target such as sm_100a, but the text's .target is {module.target}"
    if i.opcode in ("shfl", "vote") and ".sync" not in i.mnemonic and not _names_no_lanes(module):
        return f"{i.mnemonic}: needs .sync from sm_70 on, and the text's .target is {module.target}"
    callee = parts(i.operands).callee if i.opcode == "call" else None
    if isinstance(callee, Symbol) and callee.name not in names.others:
        return f"call: {callee.name} is not declared: write .extern .func {callee.name} with its parameters before"
    return too_new(i, module) or undeclared(i, names, row.form) or mistyped(i, row, names)


def _form(i: Instruction) -> Hashable:
    """What instructions have in common that differ in registers of the same types alone."""
    return i.opcode, i.modifiers, tuple(map(shape, i.operands))


def _speaks_for_its_form(i: Instruction) -> bool:
    """Whether all instructions of a module that have its form are as legal as it is: it names nothing of a function."""
    return i.opcode != "call" and not any(True for o in i.operands for _ in others(o))


def legal(module: PtxModule) -> None:
    """Refuse what ptxas refuses: IllegalProgramError, with the line.

    A name that no PTX ISA has disturbs the kernels that reach it alone, at their launch, unless none is left.
    """
    why = unknown_target(module)
    if why:
        raise IllegalProgramError(f"PTX: {why}")
    good: set[Hashable] = set()
    unnamed: dict[str, str] = {}  # functions with a name that there is not
    for function in module.functions.values():
        names = names_of(function, module)
        for written in function.body or ():
            if (key := _form(written)) in good:
                continue
            i = respelled(written)
            row = row_of(i.mnemonic)
            why = illegal(i, row, names, module) if row is not None else no_such(i.mnemonic, module.version)
            where = f" ({i.source.file}:{i.source.line})" if i.source else ""
            said = f"{full_name(function.name)}: line {i.line}{where}: {why}"
            if why and row is not None:
                raise IllegalProgramError(said)
            if why:
                unnamed.setdefault(function.name, said)
            elif _speaks_for_its_form(i):
                good.add(key)
    kernels = [f.name for f in module.functions.values() if f.entry and f.body is not None]
    if unnamed and all(name in unnamed for name in kernels):
        raise IllegalProgramError(next(iter(unnamed.values())))


def _names_no_lanes(module: PtxModule) -> bool:
    """Whether shfl and vote may leave .sync and the mask out (PTX ISA, "shfl (deprecated)", "vote (deprecated)")."""
    return bool(re.fullmatch(r"sm_[2-6]\d", module.target)) or module.version < (6, 4)


@cache
def _has_tensor_memory(name: str) -> bool:
    """Whether text of this target may contain tcgen05 instructions."""
    return any(row.legal_on(target(name)) for row in rows(None, "tcgen05.mma"))


def check(linked: Linked) -> None:
    """Refuse a kernel with an instruction that can't run, by name and line."""
    good: set[Hashable] = set()
    for function in linked.functions:
        names = names_of(function, linked.module)
        for i in function.body or ():
            if (key := _form(i)) in good:
                continue
            why = refused(i, names, linked.module)
            if why:
                where = f" ({i.source.file}:{i.source.line})" if i.source else ""
                raise ProgramError(f"{full_name(linked.kernel.name)}: line {i.line}{where}: {why}")
            if _speaks_for_its_form(i):
                good.add(key)
