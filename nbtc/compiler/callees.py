"""Kernels as other kernels call them: optimised IR that the caller's code takes in, without machine code of its own.

Numba makes of every function that another one calls what Python would need of it too: a wrapper, and machine code,
which nobody runs.  Here a kernel has a second dispatcher for compiled callers, whose functions end as IR.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import llvmlite.binding as llvm
from numba import extending
from numba.core import compiler, lowering
from numba.core.caching import NullCache
from numba.core.compiler_machinery import register_pass
from numba.core.registry import CPUDispatcher
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import BaseNativeLowering

from nbtc.compiler.cache.code_cache import CodeCache, Impl, cache_of
from nbtc.compiler.library import CalleeLibrary
from nbtc.compiler.pipeline import with_lowering
from nbtc.errors import CompilerError

# Some kernels name an instruction in text.  LLVM ends the process if it finds such text without its parser, and IR
# comes from disk too, so that the process that compiles a caller may not be the one that wrote the text.
llvm.initialize_native_asmparser()


def symbol() -> Any:
    """Stands for a function where Numba looks for its implementation: one of C, as dispatchers want, never called."""
    return [].append


@register_pass(mutates_CFG=True, analysis_only=False)
class _CalleeLowering(BaseNativeLowering):  # type: ignore[misc]
    _name = "nbtc_callee_lowering"

    @property
    def lowering_class(self) -> Any:
        return lowering.Lower

    def run_pass(self, state: Any) -> bool:
        state.library = CalleeLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.flags.no_compile = state.flags.no_cpython_wrapper = state.flags.no_cfunc_wrapper = True
        super().run_pass(state)
        lowered, stand_in = state["cr"], symbol()
        if lowered.env.consts:  # nothing would fill them in before a caller runs
            raise CompilerError(f"{state.func_id.func_qualname} uses Python objects, which kernels have none of")
        state.targetctx.insert_user_function(stand_in, lowered.fndesc, [state.library])
        state.reload_init.extend(getattr(state.library, "_reload_init", ()))  # Numba 0.62 has none
        state["cr"] = lowered._replace(cfunc=stand_in)
        return True


PIPELINE = with_lowering(_CalleeLowering)


class _Impl(Impl):
    """IR instead of machine code."""

    def reduce(self, compiled: Any) -> tuple[Any, ...]:
        about = compiled.fndesc
        about.typemap = about.calltypes = None  # large, and some can't be pickled
        library = compiled.library
        code = library.name, bytes(library.written_module().as_bitcode()), library.emitted
        return code, about, compiled.environment, compiled.signature, compiled.reload_init

    def rebuild(self, target: Any, entry: tuple[Any, ...]) -> Any:
        code, about, environment, signature, reload_init = entry
        for function in reload_init:
            function()
        return compiler.compile_result(
            target_context=target, typing_context=target.typing_context, entry_point=symbol(), fndesc=about,
            library=CalleeLibrary.of(target.codegen(), *code), environment=environment, signature=signature,
            objectmode=False, lifted=(), reload_init=reload_init, referenced_envs=[],
        )  # fmt: skip


class _Cache(CodeCache):
    """IR on disk, beside the machine code of what Python calls."""

    _impl_class = _Impl

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        return "callee", *super()._index_key(sig, codegen)


class Callee(CPUDispatcher):  # type: ignore[misc]
    """A kernel's dispatcher for compiled callers; where Python called the kernel before, they take what it has."""

    def __init__(self, kernel: Any, cached: bool) -> None:
        super().__init__(kernel.py_func, {}, kernel.targetoptions, PIPELINE)
        self._compiling_counter = kernel._compiling_counter  # by which a recursion is known
        self._cache: Any = (cached and cache_of(kernel.py_func, _Cache)) or NullCache()

    def add_overload(self, compiled: Any) -> None:
        """Keep a function, for compiled callers alone."""
        self.overloads[tuple(compiled.signature.args)] = compiled


class Caller:
    """What Numba asks a kernel for when compiled code calls it.

    in_mode: what a compilation runs in.
    """

    def __init__(self, kernel: Any, cached: bool, in_mode: Callable[[Any], Any]) -> None:
        self.kernel, self.cached, self.in_mode = kernel, cached, in_mode
        self.template, self.overload = kernel.get_call_template, kernel.get_overload

    @cached_property
    def callee(self) -> Callee:
        """Made at the first call."""
        found = Callee(self.kernel, self.cached)
        found.compile = self.in_mode(found.compile)
        return found

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """The types of a call, which is compiled for them."""
        _, folded = self.kernel.fold_argument_types(args, kws)
        if tuple(folded) in self.kernel.overloads:
            return self.template(args, kws)
        return self.callee.get_call_template(args, kws)

    def get_overload(self, sig: Any) -> Any:
        """What stands for the function."""
        args, _ = normalize_signature(sig)
        return (self.overload if tuple(args) in self.kernel.overloads else self.callee.get_overload)(sig)


def serve_callers(kernel: Any, *, cached: bool, in_mode: Callable[[Any], Any]) -> None:
    """Have compiled callers take IR of a kernel."""
    asked = kernel.for_callers = Caller(kernel, cached, in_mode)
    kernel.get_call_template, kernel.get_overload = asked.get_call_template, asked.get_overload


def code_of(function: Any, args: tuple[Any, ...]) -> Any:
    """What compiled callers take of a compiled function, a kernel or anyone's, for arguments of these types."""
    found = function.overloads.get(args)
    return found or function.for_callers.callee.overloads[args]


def overload(function: Any, **options: Any) -> Any:
    """Numba's `overload` of a function for compiled callers: what it returns gets no machine code of its own either.

    Compiling a user's functions with instructions in them took 12 % longer with it (tests of numba_door, warp and dpx).
    """
    return extending.overload(function, jit_options={"pipeline_class": PIPELINE}, **options)
