"""A Numba target for device code: functions typed and lowered as for the CPU, kept as LLVM text for another back end.

By Numba's own extension point for targets (`numba.core.target_extension`): a child of the CPU target, whose overloads
and intrinsics all apply, with another code generator and another calling convention.  Nothing of Numba is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba.core import callconv, cgutils, codegen, compiler, cpu, types, typing
from numba.core.compiler_lock import global_compiler_lock
from numba.core.descriptors import TargetDescriptor
from numba.core.dispatcher import Dispatcher
from numba.core.imputils import Registry, RegistryLoader, builtin_registry
from numba.core.options import TargetOptions
from numba.core.registry import cpu_target
from numba.core.runtime import rtsys
from numba.core.target_extension import (
    CPU,
    JitDecorator,
    dispatcher_registry,
    jit_registry,
    target_override,
    target_registry,
)
from numba.core.typing.templates import Registry as TypingRegistry

from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.machine_code.native import binding
from nbtc.dialect import assertions, folding, loop_metadata
from nbtc.errors import CompilerError

NAME = "nbtc_ptx"
TRIPLE = "nvptx64-nvidia-cuda"

lowering_registry = Registry("nbtc.dialect")  # how words and types of the dialect become LLVM
typing_registry = TypingRegistry()  # and how they are typed
values: list[Callable[[Any], Any]] = []  # each may put what Numba knows in the place of a constant that kernels name


models: Any = None  # how values of each type are kept; set by `narrow`


class Typed:
    """Stands for a constant that is nothing but its type."""

    def __init__(self, numba_type: Any) -> None:
        self._numba_type_ = numba_type


class PtxTarget(CPU):  # type: ignore[misc]
    """Device code."""


target_registry[NAME] = PtxTarget


@cache
def machine(processor: str, features: str) -> Any:
    """LLVM's back end for a processor ("sm_90") and features ("+ptx80")."""
    binding()
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=processor, features=features, opt=3)


@cache
def layout() -> str:
    """The data layout of device code."""
    return str(machine("sm_80", "+ptx80").target_data)


class PtxLibrary(codegen.CodeLibrary):  # type: ignore[misc]
    """Modules as text, and the libraries that they call."""

    def __init__(self, owner: PtxCodegen, name: str) -> None:
        super().__init__(owner, name)
        self.texts: list[str] = []
        self.linked: list[PtxLibrary] = []

    def add_ir_module(self, module: ir.Module) -> None:
        """Keep a module."""
        loop_metadata.close(module)
        self.texts.append(str(module))

    def add_linking_library(self, library: PtxLibrary) -> None:
        """Note what this one calls."""
        if library is not self and library not in self.linked:
            self.linked.append(library)

    def finalize(self) -> None:
        """Nothing more will be added."""
        self._finalized = True

    def get_llvm_str(self) -> str:
        """The modules' text."""
        return "\n".join(self.texts)

    def get_asm_str(self) -> str:
        """None: a library alone has no machine code."""
        return ""

    def get_function(self, name: str) -> Any:
        """Not part of a library of text."""
        raise CompilerError(f"{name} is in no library of PTX text: it has no machine code")

    def every(self) -> Iterator[PtxLibrary]:
        """This library and all that it calls, once each."""
        seen: list[PtxLibrary] = []
        todo = [self]
        while todo:
            library = todo.pop()
            if library not in seen:
                seen.append(library)
                todo += library.linked
        return iter(seen)


class PtxCodegen(codegen.Codegen):  # type: ignore[misc]
    """Makes empty modules for the device."""

    _library_class = PtxLibrary

    def __init__(self, name: str) -> None:
        self._data_layout = layout()
        self._target_data = llvm.create_target_data(self._data_layout)

    def _create_empty_module(self, name: str) -> ir.Module:
        module = ir.Module(cgutils.normalize_ir_text(name))
        module.triple = TRIPLE
        module.data_layout = self._data_layout
        return module

    def _add_module(self, module: Any) -> None:
        pass

    def magic_tuple(self) -> tuple[str, ...]:
        """What machine code depends on."""
        return (TRIPLE,)

    @property
    def target_data(self) -> Any:
        """Sizes and alignments."""
        return self._target_data


class PtxCallConv(callconv.MinimalCallConv):  # type: ignore[misc]
    """Functions return a code and their result by pointer; an exception ends the launch where it is raised."""

    def return_user_exc(
        self, builder: Any, exc: Any, exc_args: Any = None, loc: Any = None, func_name: str | None = None
    ) -> None:
        """End the launch, saying what was raised, and return for the compiler's sake."""
        name = exc.__name__ if exc is not None else "RuntimeError"
        said = ", ".join(str(a) for a in exc_args or ())
        assertions.fail(builder, f"{name}: {said}" if said else name, loc, func_name or "")
        self._return_errcode_raw(builder, 1)

    def return_dynamic_user_exc(
        self, builder: Any, exc: Any, exc_args: Any, nb_types: Any, loc: Any = None, func_name: str | None = None
    ) -> None:
        """The same, for arguments that only the running kernel knows."""
        self.return_user_exc(builder, exc, None, loc, func_name)


class PtxTyping(typing.Context):  # type: ignore[misc]
    """Types the constants of a kernel: words, and functions compiled for other targets."""

    def load_additional_registries(self) -> None:
        """Add the CPU's and the dialect's own."""
        super().load_additional_registries()
        self.install_registry(typing_registry)

    def resolve_value_type(self, val: Any) -> Any:
        """The type of a constant; words of the dialect stand for their implementations."""
        for known in values:
            found = known(val)
            if found is not None:
                val = found
                break
        if isinstance(val, Dispatcher) and not isinstance(val, PtxDispatcher):
            val = device_function(val.py_func)
        return super().resolve_value_type(val)


class PtxContext(cpu.CPUContext):  # type: ignore[misc]
    """The CPU's lowering, without its run time: no Python objects, no memory management."""

    allow_dynamic_globals = False  # arrays that kernels close over become part of the text, not addresses
    strict_alignment = True

    @global_compiler_lock
    def init(self) -> None:
        """Set up the code generator."""
        self.is32bit = False
        self.data_model_manager = models
        self._internal_codegen = PtxCodegen("nbtc.dialect")
        self._refreshing = False

    def refresh(self) -> None:
        """Take in what was declared since; once at a time.

        Numba asks for it at each declaration that typing takes in, of which there are hundreds: a fifth of a second.
        """
        if self._refreshing:
            return
        self._refreshing = True
        self._registries.setdefault(builtin_registry, RegistryLoader(builtin_registry))  # where typing's belong
        try:
            super().refresh()
            self.load_additional_registries()  # what typing has added
            self.install_registry(builtin_registry)
        finally:
            self._refreshing = False

    def load_additional_registries(self) -> None:
        """Add the CPU's, then the dialect's, which come first where both fit."""
        # The CPU's registries set up the run time, which has to be the CPU's.  Its whole refresh does so too, but took
        # 6 to 9 % of a first kernel's time: a dozen times over, for what only the CPU's own functions need.
        rtsys.initialize(cpu_target.target_context)
        super().load_additional_registries()
        self.install_registry(lowering_registry)

    def get_constant_generic(self, builder: Any, ty: Any, val: Any) -> Any:
        """A constant; functions are known by their types alone."""
        if isinstance(ty, types.Dispatcher):
            return self.get_dummy_value()
        return super().get_constant_generic(builder, ty, val)

    @property
    def call_conv(self) -> PtxCallConv:
        """How functions call each other."""
        return PtxCallConv(self)

    def post_lowering(self, module: Any, library: Any) -> None:
        """Nothing to add."""

    def create_cpython_wrapper(self, *_: Any, **__: Any) -> None:
        """Python never calls device code."""

    def create_cfunc_wrapper(self, *_: Any, **__: Any) -> None:
        """Nor does C."""

    def get_executable(self, library: Any, fndesc: Any, env: Any) -> object:
        """Device code alone runs nowhere: an object by which callers know the function."""
        return object()


class PtxOptions(TargetOptions):  # type: ignore[misc]
    """Flags of every function: lines for error messages, NumPy's division, no Python objects, no allocation."""

    def finalize(self, flags: Any, options: dict[str, Any]) -> None:
        """Set them."""
        flags.enable_pyobject = False
        flags.enable_looplift = False
        flags.enable_pyobject_looplift = False
        flags.no_cpython_wrapper = True
        flags.no_cfunc_wrapper = True
        flags.nrt = False
        flags.error_model = "numpy"
        flags.debuginfo = True
        flags.dbg_directives_only = True
        flags.dbg_extend_lifetimes = False
        flags.boundscheck = False


def flags() -> compiler.Flags:
    """The flags of a kernel."""
    found = compiler.Flags()
    PtxOptions.parse_as_flags(found, {})
    return found


class PtxDescriptor(TargetDescriptor):  # type: ignore[misc]
    """Ties typing and lowering to the target's name."""

    options = PtxOptions

    @cached_property
    def _typing(self) -> PtxTyping:
        return PtxTyping()

    @cached_property
    def _context(self) -> PtxContext:
        return PtxContext(self.typing_context, self._target_name)

    @property
    def target_context(self) -> PtxContext:
        """Lowering."""
        return self._context

    @property
    def typing_context(self) -> PtxTyping:
        """Typing."""
        return self._typing


_current = ["sm_90"]  # the architecture that is compiled for; changed under the compiler's lock alone


@cache
def _descriptor_of(arch: str) -> PtxDescriptor:
    return PtxDescriptor(NAME)


def descriptor() -> PtxDescriptor:
    """Typing and lowering for the current architecture; what was compiled for one is unknown to the others."""
    return _descriptor_of(_current[-1])


def arch() -> str:
    """The architecture that is compiled for, "sm_90": words whose text depends on it ask here when they emit."""
    return _current[-1]


@contextmanager
def compiling_for(arch: str) -> Iterator[PtxDescriptor]:
    """Numba compiles for this target and architecture inside; under Numba's compiler lock."""
    _current.append(arch)
    try:
        with target_override(NAME):
            yield descriptor()
    finally:
        _current.pop()


class _Descriptor:
    """The descriptor a dispatcher was made for; of the class, the current one."""

    def __get__(self, dispatcher: Any, owner: Any) -> PtxDescriptor:
        return descriptor() if dispatcher is None else dispatcher.descriptor


class PtxDispatcher(Dispatcher):  # type: ignore[misc]
    """A function of device code."""

    targetdescr = _Descriptor()

    def __init__(self, function: Callable[..., Any], **_: Any) -> None:
        self.descriptor = descriptor()
        super().__init__(function, {}, {}, folding.Compiler)

    @rarely_collected
    def compile(self, sig: Any) -> Any:
        """Compile for argument types."""
        with target_override(NAME):
            return super().compile(sig)

    def add_overload(self, cres: Any) -> None:
        """Note what was compiled; there is no entry that Python could call."""
        self.overloads[tuple(cres.signature.args)] = cres


dispatcher_registry[PtxTarget] = PtxDispatcher


class _Jit(JitDecorator):  # type: ignore[misc]
    """What Numba calls for implementations of overloaded functions."""

    def __init__(self, *arguments: Any, **_: Any) -> None:
        self._arguments = arguments

    def __call__(self, *arguments: Any) -> PtxDispatcher:
        return PtxDispatcher((arguments or self._arguments)[0])


jit_registry[PtxTarget] = _Jit

_functions: dict[Any, PtxDispatcher] = {}


def device_function(function: Callable[..., Any]) -> PtxDispatcher:
    """The device code of a Python function for the current architecture, made once."""
    key = function, arch()
    found = _functions.get(key)
    if found is None:
        found = _functions[key] = PtxDispatcher(function)
    return found
