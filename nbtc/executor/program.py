"""PTX programs as Python objects: `load` a module, index it by a kernel's name, launch it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.cache.added_rows import changes
from nbtc.compiler.threads import check_progress, thread_count
from nbtc.errors import FormatError, OptionError, ProgramError, shown
from nbtc.executor.build import Built, build
from nbtc.executor.code.machine import BlockShape, Options
from nbtc.executor.control.device_runtime import NEED_HEAP
from nbtc.executor.coverage import FormUse, forms_of, legal
from nbtc.executor.kernel.link import const_bytes, initial_bytes, link, variables_layout
from nbtc.executor.launch import process_wide
from nbtc.executor.launch.arguments import (
    Arguments,
    Parameter,
    marshal,
    memory_list,
    own_memory,
    parameters_of,
    seconds,
)
from nbtc.executor.launch.children import Child, Children
from nbtc.executor.launch.configured import Configured
from nbtc.executor.launch.device_heap import Heap
from nbtc.executor.launch.launch import GridShape, LaunchableCode, Request, address_of, aligned, obeyed
from nbtc.executor.launch.repeated import RepeatedLaunch, repeatable
from nbtc.executor.launch.shared_memory import dynamic_bytes
from nbtc.executor.launch.system_calls import Answers
from nbtc.executor.memory.ranges import Memory
from nbtc.executor.outcome import outcome, watched_memory
from nbtc.executor.profile.result import Profile, empty
from nbtc.executor.summary import summary
from nbtc.executor.text.data import PtxModule as Parsed
from nbtc.executor.text.kernels import kernel_texts, with_bodies
from nbtc.executor.text.names import full_name, plain_name, signature
from nbtc.executor.text.parse import parse
from nbtc.executor.text.source import text_of
from nbtc.formats.arrays import as_flag
from nbtc.isa.archs import arch as find_arch
from nbtc.isa.archs import gpu as find_gpu
from nbtc.isa.archs import of_target

if TYPE_CHECKING:
    from nbtc.executor.watch.memory import WatchedLaunch

MOST_GEOMETRIES = 1 << 10  # of launches that a module remembers


def load(source: str | os.PathLike[str], arch: str | int | None = None) -> Module:
    """A PTX module, from its text or the path of a file.

    arch: the architecture whose arithmetic it has ("sm_80", "H100"; default: what `.target` says, so that text for
    sm_80 computes as an A100).  PTX ISA 6.0 to 9.x is read.  Raises SourceError if there is no such file; ParseError,
    with the line, for text that is not PTX; IllegalProgramError for what ptxas refuses: an operand of the wrong type, a
    name that is not declared, an instruction that the text's `.target` or `.version` does not have.

    Kernels are compiled when they are first launched.  An instruction that can't run does not disturb the module's
    other kernels: ProgramError names it with its line when a kernel that reaches it is launched, before anything runs,
    and `nbtc.coverage` lists all of them at once.

    >>> m = load(".version 8.0 .target sm_80 .address_size 64 .visible .entry k() { ret; }")
    >>> m.kernels, m.target
    (('k',), 'sm_80')
    >>> m["k"][1, 32]()
    """
    return Module(text_of(source), arch)


def _arch_name(name: str | int) -> str:
    return find_arch(name).name


def _together(arch: str, g: GridShape, code: LaunchableCode, dynamic: int) -> int:
    """How many blocks of a launch that may wait for each other are on a GPU of an architecture at once."""
    return find_gpu(arch).resident_blocks(g.threads, code.shared_bytes + dynamic) if code.spins else 0


class Module:
    """A loaded PTX module; its `.global` variables last from launch to launch."""

    def __init__(self, text: str, arch: str | int | None = None, by_kernel: bool = False) -> None:
        """by_kernel: read the body of a kernel when it is first asked for; what is wrong with it is said then."""
        self._bodies = kernel_texts(text) if by_kernel else []
        self._parts: dict[str, Parsed] = {}  # what has been read, by kernel
        self.text: str = text
        self.ptx: Parsed = parse(with_bodies(text, self._bodies) if self._bodies else text)
        legal(self.ptx)
        self.arch: str = _arch_name(arch) if arch is not None else of_target(self.ptx.target).name
        self._layout, size = variables_layout(self.ptx)
        self.variables: NDArray[np.uint8] = aligned(max(size, 1), 256)
        self.variables_at: int = address_of(self.variables)  # asked for here: NumPy takes 2 us of each launch to say it
        self.variables[:size] = np.frombuffer(initial_bytes(self.ptx, self.variables.ctypes.data), np.uint8)
        self.own_memory: tuple[Memory, Memory] = own_memory(self.variables, const_bytes(self.ptx))
        self.built: dict[tuple[str, BlockShape, Options, int], Built] = {}
        self.geometries: dict[tuple[str, int, int], GridShape] = {}
        self.lock: threading.Lock = threading.Lock()
        self.names: dict[str, str] = {}  # further names of kernels, such as instances of templates
        self.parameters: dict[str, tuple[str, ...]] = {}  # what kernels' sources call their parameters
        self.pointees: dict[str, tuple[str, ...]] = {}  # and the numbers of C that these point to
        self.heap: Heap | None = Heap() if self.ptx.functions.keys() & NEED_HEAP else None

    def __reduce__(self) -> tuple[Any, ...]:
        """By its text: the variables of a copy, in another process or in this one, begin anew."""
        kept = {"names": self.names, "parameters": self.parameters, "pointees": self.pointees}
        return type(self), (self.text, self.arch, bool(self._bodies)), kept

    def part(self, kernel: str) -> Parsed:
        """The module with the body of a kernel and of all functions."""
        if not self._bodies:
            return self.ptx
        found = self._parts.get(kernel)
        if found is None:
            found = parse(self.part_text(kernel))
            legal(found)
            self._parts[kernel] = found
        return found

    def part_text(self, kernel: str) -> str:
        """The text of that."""
        return with_bodies(self.text, self._bodies, kernel) if self._bodies else self.text

    @property
    def kernels(self) -> tuple[str, ...]:
        """Names of the kernels."""
        return tuple(f.name for f in self.ptx.functions.values() if f.entry and f.body is not None)

    @property
    def target(self) -> str:
        """What `.target` says."""
        return self.ptx.target

    @property
    def version(self) -> tuple[int, int]:
        """The PTX ISA version of the text."""
        return self.ptx.version

    @property
    def globals(self) -> Globals:
        """The module's variables as writable uint8 arrays, by name; x of a function f is "f::x"."""
        return Globals(self)

    def __getitem__(self, name: str) -> Program:
        """The kernel of this name: mangled, or as C++ spells it where that is unambiguous ("axpy", "axpy<float>",
        "axpy<float>(float, float const*)")."""
        matches = self._called(name) if isinstance(name, str) else []
        if len(matches) != 1:
            known, named = (", ".join(map(signature, kernels)) for kernels in (self.kernels, matches))
            several = f"is ambiguous ({named})" if matches else "is not a kernel of this module"
            raise ProgramError(f"{shown(name)} {several}; kernels: {known or 'none'}")
        return Program(self, matches[0], self.arch)

    def __getattr__(self, name: str) -> NoReturn:
        """Kernels are no attributes: their names would hide the module's own."""
        kernel = self._called(name) if name[:1] != "_" else []  # copy and pickle ask for those before there is a module
        hint = f": a kernel is called by module[{name!r}][grid, block](...)" if kernel else ""
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def _called(self, name: str) -> list[str]:
        """Kernels of this name: mangled, with types, with template arguments, or plain."""
        exact = [k for k in self.kernels if k in (name, self.names.get(name))]
        spellings: tuple[Callable[[str], str], ...] = (signature, full_name, plain_name)
        return exact or next((m for f in spellings if (m := [k for k in self.kernels if f(k) == name])), [])

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __repr__(self) -> str:
        major, minor = self.version
        return f"<PTX {major}.{minor} module for {self.target}: {', '.join(map(signature, self.kernels))}>"

    def compiled(self, kernel: str, shape: BlockShape, options: Options) -> Built:
        """Machine code of a kernel, made once."""
        key = (kernel, shape, options, changes())
        found = self.built.get(key)
        if found is None:
            with self.lock:
                found = self.built.get(key)
                if found is None:
                    read = partial(self.part, kernel)
                    found = self.built[key] = build(read, self.part_text(kernel), kernel, shape, options)
        return found


class Globals(Mapping[str, NDArray[np.uint8]]):
    """A module's variables by name."""

    def __init__(self, module: Module) -> None:
        self._module = module

    def __getitem__(self, name: str) -> NDArray[np.uint8]:
        place = self._module._layout.get(name)
        if place is None:
            raise KeyError(f"{shown(name)} is no variable of this module; variables: {', '.join(self) or 'none'}")
        return self._module.variables[place.offset : place.offset + place.bytes]

    def __iter__(self) -> Iterator[str]:
        return iter(self._module._layout)

    def __len__(self) -> int:
        return len(self._module._layout)


class Program:
    """One kernel of a module for one architecture: `k[grid, block, stream, shared_bytes](*args)`, or `k.launch`."""

    def __init__(self, module: Module, name: str, arch: str, instrument: str = "") -> None:
        self.module: Module = module
        self.name: str = name
        self.arch: str = arch
        self.instrument: str = instrument

    @property
    def params(self) -> tuple[Parameter, ...]:
        """(name, PTX type, bytes, alignment) of each parameter."""
        return parameters_of(self.module.ptx.functions[self.name])

    @property
    def forms(self) -> tuple[FormUse, ...]:
        """The instruction forms it uses, with their lines; for approximate functions also what backs their bits."""
        return forms_of(link(self.module.part(self.name), self.name))

    def on(self, arch: str | int) -> Program:
        """The same kernel with another architecture's arithmetic."""
        return Program(self.module, self.name, _arch_name(arch), self.instrument)

    @property
    def checked(self) -> Program:
        """The same kernel with every access, barrier and asynchronous operation watched.

        >>> m = load('''.version 8.0 .target sm_80 .address_size 64
        ... .visible .entry k() { .shared .b32 s[2]; .reg .b32 r;
        ... ld.shared.b32 r, [s]; st.shared.b32 [s+4], r; ret; }''')
        >>> m["k"].checked[1, 32]()  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        nbtc.errors.ProgramError: k: uninitialised shared memory: line 3: ld.shared.b32: ...
        """
        return Program(self.module, self.name, self.arch, "watch")

    @property
    def profile(self) -> Program:
        """The same kernel, whose launches return a `Profile`: warp instructions by opcode and line, divergence, bank
        conflicts of shared memory, sectors of global memory.

        >>> m = load('''.version 8.0 .target sm_80 .address_size 64
        ... .visible .entry k() { .shared .b32 s[1024]; .reg .b32 a, r; mov.u32 a, %tid.x; shl.b32 a, a, 4;
        ... st.shared.b32 [a], a; ret; }''')
        >>> found = m["k"].profile[1, 32]()
        >>> found.total.executed, found.total.active, found.total.conflicts
        (4, 32.0, 3)
        """
        return Program(self.module, self.name, self.arch, "profile")

    def __call__(self, *_: Any, **__: Any) -> NoReturn:
        """A kernel without a configuration is not launched."""
        name = full_name(self.name)
        raise FormatError(f"{name} is a kernel: launch it, module[{name!r}][grid, block](...)")

    def __getitem__(self, configuration: Any) -> Configured:
        """Bind a launch configuration, in Numba's order."""
        parts = configuration if isinstance(configuration, tuple) else (configuration,)
        if not 2 <= len(parts) <= 4:
            raise OptionError(f"{shown(configuration)}: pass [grid, block], then stream and shared_bytes if need be")
        return Configured(self.launch, parts[0], parts[1], shared=parts[3] if len(parts) == 4 else 0)

    def launch(
        self,
        grid: Any,
        block: Any,
        args: Sequence[Any] | Arguments,
        *,
        shared: int = 0,
        cluster: Any = None,
        cooperative: bool = False,
        memory: Sequence[Any] = (),
        arch: str | int | None = None,
        threads: int | None = None,
        checked: bool | str = False,
        progress: object = False,
        contract: str = "ptxas",
        timeout: float | None = None,
    ) -> Profile | None:
        """Run a grid of blocks on the CPU and return when all have ended (a `Profile` for `k.profile`, otherwise None).

        grid, block, cluster: int or up to 3 ints.  args: a number for a scalar; an array, None or an address for a
        pointer (of an array its first element's: strides are not passed on; written in place); bytes for a struct.
        shared: dynamic shared memory in bytes.  cooperative: whether all blocks are to run at once, as barriers of
        the whole grid need.  memory: arrays that pointers inside structs and other arrays reach.  arch: as for `on`.
        threads: how many run the blocks (default: all).
        checked: True watches every access, barrier and asynchronous operation; "off" does not even check that every
        access is aligned and inside an argument, `memory`, a module variable, shared or local memory.
        contract: "ptxas" fuses plain mul and add as ptxas does, "off" does not.  timeout: seconds, from the first
        instruction on, after which the launch ends with a ProgramError that names a thread and the line where it was.
        progress: True shows a bar, a callable gets (blocks begun, all blocks) about every 50 ms and at the end.
        """
        if not isinstance(checked, bool | str) or checked not in (False, True, "off"):
            raise OptionError(f"checked={shown(checked)}: pass False (bounds are checked), True (hazards too) or 'off'")
        if not isinstance(contract, str) or contract not in ("ptxas", "off"):
            raise OptionError(f"contract={shown(contract)}: pass 'ptxas' or 'off'")
        check_progress(progress)
        if threads is not None:
            thread_count(threads)
        own = self.instrument or process_wide.instrument(checked)
        checked = checked or own == "watch"
        name = _arch_name(arch) if arch is not None else self.arch
        instrument = "watch" if checked is True else own
        options = Options(name, checked != "off", contract == "ptxas", instrument)
        kernel = self.module.ptx.functions[self.name]
        g = grid if isinstance(grid, GridShape) else self._geometry(kernel.directives, grid, block, cluster)
        source = (self.module.parameters.get(self.name, ()), self.module.pointees.get(self.name, ()))
        arguments = args if isinstance(args, Arguments) else marshal(kernel, args, *source)
        built = self.module.compiled(self.name, BlockShape.of(g.block), options)
        dynamic = dynamic_bytes(self.name, shared, built.code.shared_bytes)
        memory_ranges = [*arguments.memory, *memory_list(memory), *self.module.own_memory]
        memory_ranges += [self.module.heap.range] if self.module.heap is not None else []
        watched = watched_memory(memory_ranges) if instrument == "watch" else None
        answers = self._answers(watched, built.code.asks)
        request = Request(
            geometry=g,
            parameters=arguments.bytes,
            variables=self.module.variables_at,
            memory=memory_ranges,
            dynamic_bytes=dynamic,
            cooperative=as_flag(cooperative, "cooperative"),
            threads=threads,
            callback=answers.callback if answers else None,
            timeout=seconds(timeout),
            together=_together(name, g, built.code, dynamic),
            watched=watched,
            profile=empty(built.code.sites) if instrument == "profile" else None,
            progress=progress,
        )
        found = process_wide.noted(outcome(self.name, built, request, answers))
        if answers is not None:
            rest = {"memory": memory, "arch": arch, "threads": threads, "checked": checked, "contract": contract}
            answers.children.run(memory_ranges, partial(self._child, arguments.memory, {**rest, "timeout": timeout}))
        return found

    def _answers(self, watched: WatchedLaunch | None, asks: bool) -> Answers | None:
        """What answers the questions of a launch, if it has any."""
        heap = self.module.heap
        cells = watched.heap(heap.range, heap.sizes) if heap is not None and watched is not None else None
        return Answers(heap, cells, Children(self.module.ptx)) if asks else None

    def _child(self, memory: list[Memory], rest: dict[str, Any], child: Child) -> None:
        """Run a grid that a grid of this kernel has launched, with the same memory and options."""
        given = Arguments(child.parameters, memory)
        program = Program(self.module, child.kernel, self.arch, self.instrument)
        program.launch(child.grid, child.block, given, shared=child.shared, **rest)

    def repeated(self, g: GridShape, memory: Sequence[Memory], shared: int) -> RepeatedLaunch | None:
        """A launch that callers of compiled code can make again; None where it needs more than its code.

        memory: what it may touch besides the module's variables.  shared: as `launch` has taken it.
        """
        options = Options(self.arch, True, True, self.instrument)
        if self.instrument or not process_wide.is_plain() or self.module.heap is not None:
            return None
        built = self.module.compiled(self.name, BlockShape.of(g.block), options)
        if not repeatable(built.code, g.blocks):
            return None
        parameters = bytearray(sum(p.bytes + p.alignment for p in self.params))
        request = Request(
            geometry=g, parameters=parameters, variables=self.module.variables_at,
            memory=self.module.own_memory, dynamic_bytes=shared, cooperative=False, threads=None, callback=None,
            together=_together(self.arch, g, built.code, shared),
        )  # fmt: skip
        return RepeatedLaunch(self.name, built.sites, built.code, request)

    def _geometry(self, directives: Any, grid: Any, block: Any, cluster: Any) -> GridShape:
        """The extents of a launch, remembered by what plain numbers say."""
        if type(grid) is not int or type(block) is not int or cluster is not None:
            return obeyed(directives, grid, block, cluster)
        known = self.module.geometries
        found = known.get((self.name, grid, block))
        if found is None:
            if len(known) > MOST_GEOMETRIES:
                known.clear()
            found = known[self.name, grid, block] = obeyed(directives, grid, block, None)
        return found

    def __str__(self) -> str:
        return summary(link(self.module.part(self.name), self.name), self.arch)

    def __repr__(self) -> str:
        return f"<kernel {full_name(self.name)} on {self.arch}, {len(self.params)} parameters>"
