"""LLVM text to machine code outside of Numba: compiled once, kept on disk, loaded by any process.

What is kept is found by everything the code depends on: the text or a key that stands for it, the processor with its
extensions, LLVM's version and the options; the caller adds a stamp of its own sources.  A file is written under a name
of its own and moved into place, so readers never see half of one; what can't be read is compiled anew.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from itertools import accumulate, pairwise
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from llvmlite.binding import ffi

from nbtc.compiler.cache import added_rows, sources
from nbtc.compiler.machine_code import emission, masked_logic
from nbtc.compiler.machine_code.emission import object_file
from nbtc.forks import taken_by_forks

FORMAT = 1  # of the files: a JSON line, then the object file
# What every x86-64 processor has (cx16 and sahf: all but the first of them); LLVM gives up without some of these.
BASELINE = frozenset({"64bit", "cmov", "cx8", "cx16", "fxsr", "mmx", "sahf", "sse", "sse2", "x87"})
# Of LLVM's text of a function: its attributes, which stand before it, and its type and name with those of arguments.
_DEFINED = re.compile(r"(?:^; Function Attrs: (?P<attributes>.*)\n)?^define (?P<head>.*\))[^()]*\{$", re.MULTILINE)
LOCK = Lock()  # LLVM's global state (targets, contexts) is not to be set up by two threads
# llvmlite's own lock, around each of its calls; private (llvmlite 0.50 has it), and there is no public one
_CALLS: Any = ffi.lib._lock
taken_by_forks("llvm", LOCK.acquire, LOCK.release)
taken_by_forks("llvmlite", _CALLS.__enter__, lambda: _CALLS.__exit__())


class Native(NamedTuple):
    """Machine code and what its maker wants to know about it when it comes from disk.

    object: an object file, or several one after the other, whose lengths are then `about["sizes"]`.  Symbols that they
    name and nobody has are `about["absent"]`: nothing that runs calls them.
    """

    object: bytes
    about: dict[str, Any]

    @property
    def objects(self) -> list[bytes]:
        """The object files."""
        ends = list(accumulate(self.about.get("sizes", [len(self.object)])))
        return [self.object[begin:end] for begin, end in pairwise([0, *ends])]


class Loaded(NamedTuple):
    """Machine code in memory; `engine` keeps it alive."""

    engine: Any
    about: dict[str, Any]

    def address(self, name: str) -> int:
        """Where a function begins."""
        return int(self.engine.get_function_address(name))


@cache
def binding() -> Any:
    import llvmlite.binding as llvm

    with suppress(RuntimeError):  # newer llvmlite initialises itself and says so
        llvm.initialize()
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def target() -> tuple[str, str, str]:
    """Triple, processor and extensions that code is made for; Numba's variables that force a plainer one count."""
    from numba.core import config

    from nbtc.compiler.cpu.host import features

    llvm = binding()
    cpu = config.CPU_NAME or llvm.get_host_cpu_name()
    wanted = features()
    host = llvm.get_host_cpu_features()
    text = ",".join(f"{'+' if name in wanted else '-'}{name}" for name in sorted(host) if name not in BASELINE)
    return llvm.get_default_triple(), cpu, text


_MACHINES: dict[tuple[Any, ...], list[Any]] = {}  # those that nobody uses, by level and processor


@contextmanager
def _compiling(level: int) -> Iterator[Any]:
    """A machine that modules are compiled for, by one thread at a time.

    A new one takes a millisecond and a half to begin: to learn what the processor can do, which it notes for the next.
    """
    free = _MACHINES.setdefault((level, *target()), [])
    try:
        machine = free.pop()
    except IndexError:
        machine = _machine(level)
    try:
        yield machine
    finally:
        free.append(machine)


def _machine(level: int) -> Any:
    llvm = binding()
    triple, cpu, features = target()
    return llvm.Target.from_triple(triple).create_target_machine(opt=level, cpu=cpu, features=features, jit=True)


LOOPS = -1


class Levels(NamedTuple):
    """How far LLVM optimises: a module's text, and its machine code.

    text: 1 and 2 are LLVM's.  None for vector instructions that are as they should be: only variables are put into
    registers, and instructions joined.  0 for a large coroutine: the same, and what is never reached is left out.
    LOOPS for scalar code with loops: the same, and what is known already is not computed again.
    alone: the module is one function, and what LLVM has for modules of several is left out (see `_optimise_alone`).
    waits: the level for a coroutine's text before LLVM divides it at its waits.
    """

    text: int | None = 2
    code: int = 2
    alone: bool = False
    waits: int | None = 2


def compile_text(
    text: str, level: int | None = 2, code_level: int = 2, alone: bool = False, waits: int | None = 2
) -> bytes:
    """An object file of a module's text, optimised as far as `Levels` says."""
    levels = Levels(level, code_level, alone, waits)

    own = emission.context()
    with LOCK:
        module = _optimised(text, levels, own)
    return _checked(module, own, lambda changed: _optimised(changed(text), levels, emission.context()), levels)


class SharedFunction(NamedTuple):
    """A function of which LLVM makes machine code together with others: how modules declare it; its module, optimised.

    One by one, a millisecond and a half of each was for what LLVM sets up before it begins.
    """

    name: str
    text: str
    levels: Levels
    declaration: str
    module: Any


def optimised(name: str, text: str, levels: Levels, context: Any) -> SharedFunction:
    """The function of a module's text; context: that of all with which it becomes machine code."""
    with LOCK:
        module = _optimised(text, levels, context)
        return SharedFunction(name, text, levels, _declaration(str(module.get_function(name))), module)


def joined(functions: Sequence[SharedFunction], own: Any) -> Callable[[], bytes]:
    """What makes one object file of functions, on any thread; their modules and context can't be used any more."""
    levels = functions[0].levels

    def linked(modules: list[Any]) -> Any:
        for other in modules[1:]:
            modules[0].link_in(other)
        return modules[0]

    def changed_to(changed: Callable[[str], str]) -> Any:
        other = emission.context()
        return linked([_optimised(changed(f.text), f.levels, other) for f in functions])

    with LOCK:
        module = linked([f.module for f in functions])
    return lambda: _checked(module, own, changed_to, levels)


def _checked(module: Any, own: Any, make: Callable[[Callable[[str], str]], Any], levels: Levels) -> bytes:
    """Machine code of a module, which ends with its context, or of what `make` gives for changed texts if that has a
    wrong instruction."""
    code = _emitted(module, levels)
    if code is None:
        with LOCK:
            plain = make(masked_logic.with_plain_choices)
        code = _emitted(plain, levels)
    if code is None:
        raise RuntimeError("LLVM compiled a choice by a mask to an instruction that it is known to encode wrongly")
    emission.end(module, own)
    return code


def _optimised(text: str, levels: Levels, context: Any) -> Any:
    """A module of a text."""
    module = binding().parse_assembly(text, context)
    with _compiling(levels.code) as machine:
        module.triple = target()[0]
        module.data_layout = str(machine.target_data)
        module.verify()
        if levels.alone and levels.text != 0:
            _optimise_alone(module, machine, levels, suspends="@llvm.coro." in text or '@"llvm.coro.' in text)
        else:
            _optimise(module, machine, levels.text)
    return module


def _emitted(module: Any, levels: Levels) -> bytes | None:
    """Machine code of a module; None where an instruction may be a wrong one (see `masked_logic`)."""
    with _compiling(levels.code) as machine:
        code = object_file(machine, module)
        wrong = masked_logic.may_hold(code) and masked_logic.holds(machine.emit_assembly(module))
    return None if wrong else code


def _declaration(definition: str) -> str:
    """How other modules declare a function, with all that LLVM found out about it."""
    found = _DEFINED.search(definition)
    if found is None:
        raise RuntimeError(f"LLVM writes a function otherwise than is known: {definition[:200]!r}")
    return f"declare {found['head']} {found['attributes'] or ''}"


# LLVM's passes for vector instructions that are as they should be; the first inlines what `masked_logic` hides choices
# in.
FEW = ("always_inliner", "sroa", "instruction_combine")
# A vector sum took 1.2 times as long where the loop that runs warps was not rotated; with all of level 1 that loop is
# 8 % more code, and LLVM takes three times as long.
ONCE = (*FEW[:2], "loop_rotate", "new_gvn", "simplify_cfg", "instruction_combine", "simplify_cfg")
# Around the lowering of a coroutine, which copies the function twice: what runs before its first wait and what destroys
# it.  Once values are registers LLVM sees that hardly anything of those is ever reached; as it is left by the lowering
# it took three times as long to write machine code for (a product by segments of 2,000 blocks: 7.4 s, so 3.9 s, and
# 6.1 s with all passes of level 1).
BEFORE, AFTER = ("always_inliner", "sroa"), ("aggressive_dce", "simplify_cfg", "instruction_combine", "simplify_cfg")


def _pass_builder(machine: Any, level: int) -> Any:
    llvm = binding()
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = tuning.slp_vectorization = False  # warps are vectors already
    tuning.loop_unrolling = False
    return llvm.create_pass_builder(machine, tuning)


def _optimise(module: Any, machine: Any, level: int | None) -> None:
    builder = _pass_builder(machine, level or 0)
    before, after = {None: (FEW, ()), 0: (BEFORE, AFTER)}.get(level, ((), ()))
    named_passes(before).run(module, builder)
    if level is not None:
        builder.getModulePassManager().run(module, builder)
    named_passes(after).run(module, builder)


def _optimise_alone(module: Any, machine: Any, levels: Levels, suspends: bool) -> None:
    """The passes of a level for one function, around LLVM's lowering of coroutines.

    The pipelines of LLVM for modules run most of them twice, and a coroutine's more often.  On two dozen warps and 40
    functions that they call these took 0.6 of the time at level 2, 0.45 at level 1, for code that is as fast; only
    Collatz' loop wants level 2 (see `build`, which says also how far a coroutine is optimised before its lowering).
    """
    none = _pass_builder(machine, 0)
    if suspends:
        _function_passes(module, machine, levels.waits, none)
        none.getModulePassManager().run(module, none)
        named_passes(("aggressive_dce", "simplify_cfg")).run(module, none)
    _function_passes(module, machine, levels.text, none, last=("post_order_function_attributes",))


def _function_passes(module: Any, machine: Any, level: int | None, none: Any, last: tuple[str, ...] = ()) -> None:
    """A level's passes; last: those after them, which find out what declarations in other modules say.

    none: the builder of level 0.  A new one, and another run, takes a small function a tenth of its passes' time.
    """
    few = {None: FEW, LOOPS: ONCE}.get(level)
    if few:
        named_passes((*few, *last)).run(module, none)
        return
    builder = _pass_builder(machine, level) if level else none
    named_passes(BEFORE).run(module, builder)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    if last:
        named_passes(last).run(module, none)


def named_passes(names: tuple[str, ...]) -> Any:
    """Passes of LLVM, one after the other."""
    passes = binding().create_new_module_pass_manager()
    for name in names:
        getattr(passes, f"add_{name}_pass")()
    return passes


@cache
def _context_of_engines() -> Any:
    """Not the global one: a program in C unloads its kernels as it exits, when LLVM has ended that."""
    return emission.context()


def load(native: Native) -> Loaded:
    """Machine code in memory, ready to be called."""
    llvm = binding()
    with LOCK:
        empty = llvm.parse_assembly("", _context_of_engines())
        empty.triple = target()[0]
        engine = llvm.create_mcjit_compiler(empty, _machine(2))  # a machine of its own: engines that share one crash
        for symbol in native.about.get("absent", ()):  # LLVM would resolve no symbol at all
            llvm.add_symbol(symbol, _abort())
        for part in native.objects:
            engine.add_object_file(llvm.ObjectFileRef.from_data(part))
        engine.finalize_object()
    return Loaded(engine, native.about)


def _abort() -> int | None:
    """The address of what ends the process."""
    library = ctypes.cdll.msvcrt if os.name == "nt" else ctypes.CDLL(None)
    return ctypes.cast(library.abort, ctypes.c_void_p).value


# --- on disk ---
def cache_folder() -> Path | None:
    """Where machine code is kept: NBTC_CACHE_DIR, or a folder of this user; None when that is set to nothing."""
    chosen = os.environ.get("NBTC_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "nbtc"


def digest(*parts: str) -> str:
    """A name for what depends on these texts, the rows of number formats, this processor and this LLVM."""
    llvm = binding()
    said = (str(FORMAT), str(llvm.llvm_version_info), *target(), added_rows.digest("formats"), *parts)
    found = hashlib.sha256()
    for part in said:
        found.update(part.encode())
        found.update(b"\0")
    return found.hexdigest()


def _file(name: str) -> Path | None:
    folder = cache_folder()
    return None if folder is None else folder / name[:2] / f"{name}.o"


def fetch(name: str) -> Native | None:
    """What `keep` stored under a digest, or None."""
    path = _file(name)
    if path is None:
        return None
    try:
        raw = path.read_bytes()
        head, _, rest = raw.partition(b"\n")
        about = json.loads(head)
        if about.pop("sha256") != hashlib.sha256(rest).hexdigest():
            return None
    except (OSError, ValueError, KeyError, AttributeError):
        return None
    return Native(rest, about)


def keep(name: str, native: Native) -> None:
    """Store machine code under a digest; a disk that can't be written to is no error."""
    path = _file(name)
    if path is None or not sources.unchanged():
        return
    head = json.dumps({**native.about, "sha256": hashlib.sha256(native.object).hexdigest()})
    with suppress(OSError):
        try:
            handle, written = tempfile.mkstemp(dir=path.parent)
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle, written = tempfile.mkstemp(dir=path.parent)
        try:
            with open(handle, "wb") as file:
                file.write(head.encode() + b"\n" + native.object)
            os.replace(written, path)
        except BaseException:
            os.unlink(written)
            raise
