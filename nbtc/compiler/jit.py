"""The jit decorator: the only file that names Numba flags.

`jit` compiles a naked kernel: no Python objects, no fast-math, no contraction, the GIL released, NumPy division rules,
machine code kept on disk (`code_cache`).  Called from Python, a kernel runs in the default floating-point mode, and the
caller's comes back (`float_mode`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from llvmlite import ir
from numba import njit
from numba.core import config, lowering
from numba.core.callwrapper import PyCallWrapper
from numba.core.ccallback import CFunc
from numba.core.compiler_lock import global_compiler_lock
from numba.core.compiler_machinery import register_pass
from numba.core.sigutils import normalize_signature
from numba.core.typed_passes import BaseNativeLowering

from nbtc.compiler.announce import announced
from nbtc.compiler.cache.code_cache import DeferredCache, cache_of, name_apart
from nbtc.compiler.callees import serve_callers
from nbtc.compiler.cpu.float_mode import DEFAULT, KEEP, framed
from nbtc.compiler.garbage import rarely_collected
from nbtc.compiler.library import KernelLibrary
from nbtc.compiler.machine_code.python_calls import DISABLED, calls
from nbtc.compiler.pipeline import with_lowering
from nbtc.errors import CompilerError
from nbtc.forks import taken_by_forks

F = TypeVar("F", bound=Callable[..., Any])
POLL = 0.1  # seconds between looks at the clock of a wait that some systems can't interrupt otherwise

taken_by_forks("compiler", global_compiler_lock.acquire, global_compiler_lock.release)


class _Lower(lowering.Lower):  # type: ignore[misc]
    """Numba's lowering, but what Python calls is the native function in its floating-point mode."""

    def create_cpython_wrapper(self, release_gil: bool = False) -> None:
        context, fndesc = self.context, self.fndesc
        module = context.create_module("wrapper")
        kind = context.call_conv.get_function_type(fndesc.restype, fndesc.argtypes)
        callee = framed(context, ir.Function(module, kind, fndesc.llvm_func_name))
        PyCallWrapper(
            context, module, callee, fndesc, self.env, call_helper=self.call_helper, release_gil=release_gil
        ).build()
        self.library.add_ir_module(module)


@register_pass(mutates_CFG=True, analysis_only=False)
class _Lowering(BaseNativeLowering):  # type: ignore[misc]
    _name = "nbtc_native_lowering"

    @property
    def lowering_class(self) -> type:
        return _Lower

    def run_pass(self, state: Any) -> bool:
        state.library = KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return bool(super().run_pass(state))


PIPELINE = with_lowering(_Lowering)


def jit(
    function: F | None = None, *, inline: bool = False, cached: bool = True, framed: bool = True, expanded: bool = False
) -> Any:
    """Compile `function` with nbtc's flags.

    inline: merge into the caller's LLVM (small helpers; they are never cached by themselves).  cached: keep machine
    code on disk; switch off for functions built at run time.  framed: calls from Python set the floating-point mode.
    expanded: for compiled callers alone, which take in the body before they are compiled: nothing is compiled twice.
    """
    if function is None:
        return lambda f: jit(f, inline=inline, cached=cached, framed=framed, expanded=expanded)
    name_apart(function)
    options: dict[str, Any] = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
    if expanded:
        return njit(inline="always", **options)(function)
    if inline:
        options["forceinline"] = True
    if framed:
        options["pipeline_class"] = PIPELINE
    if config.DISABLE_JIT:
        return _uncompiled(function, options)
    dispatcher = njit(**options)(function)
    in_mode = _compiling if framed else rarely_collected
    dispatcher.compile = in_mode(dispatcher.compile)
    if framed:
        dispatcher._compile_for_args = _uninterrupted(dispatcher._compile_for_args)
    if cached and not inline:
        dispatcher._cache = DeferredCache(function)
    serve_callers(dispatcher, cached=cached and not inline, in_mode=in_mode)
    return cast(F, dispatcher)


def _uncompiled(function: F, options: dict[str, Any]) -> F:
    """What a kernel is under NUMBA_DISABLE_JIT: a function that says why it can't be called."""

    @wraps(function)
    def kernel(*_: Any) -> Any:
        raise CompilerError(DISABLED)

    kernel.py_func = function  # type: ignore[attr-defined]
    kernel._compile_for_args = kernel  # type: ignore[attr-defined]
    kernel.targetoptions = options  # type: ignore[attr-defined]
    return cast(F, kernel)


def _uninterrupted(compile_for_args: F) -> F:
    """A first call's compilation on a thread of its own: Ctrl-C ends the call, not a compilation that is half done.

    Only the main thread is interrupted.  In the middle of another compilation, which holds the lock, there is no
    choice: that one is interrupted too.
    """

    def compiled(*args: Any) -> Any:
        if threading.current_thread() is not threading.main_thread() or global_compiler_lock.is_locked():
            return compile_for_args(*args)
        results: list[Any] = []
        errors: list[BaseException] = []
        finished = threading.Event()

        def work() -> None:
            try:
                results.append(compile_for_args(*args))
            except BaseException as error:  # raised again in the caller's thread
                errors.append(error)
            finished.set()

        try:
            threading.Thread(target=work, name="nbtc-compile").start()
        except RuntimeError:  # no thread to be had
            return compile_for_args(*args)
        while not finished.wait(POLL):
            pass
        if errors:
            raise errors[0]
        return results[0]

    return cast(F, compiled)


_MACHINE_CODE: dict[tuple[Any, object], Callable[..., Any]] = {}


def call(kernel: Any, types: object, *arguments: Any) -> Any:
    """kernel(*arguments) without a look at each argument's type, which takes a small product as long as its arithmetic.

    types: all that the arguments' Numba types depend on beside the kernel, such as an array's dtype.  The first call
    with it compiles, or loads; later ones trust it: arguments of other types would be misread.
    """
    return machine_code(kernel, types, *arguments)(*arguments)


def machine_code(kernel: Any, types: object, *arguments: Any) -> Callable[..., Any]:
    """What `call` calls, for those who keep it."""
    key = kernel, types
    found = _MACHINE_CODE.get(key)
    if found is None:
        found = _MACHINE_CODE[key] = kernel._compile_for_args(*arguments)
    return found


def control_word(word: int) -> int:
    """The thread's floating-point control word before it became `word`."""
    return calls().control_word(word)


def in_default_float_mode(function: F) -> F:
    """A function whose arithmetic, Python's and NumPy's, runs in the default floating-point mode of its thread.

    The word is read and written by one call each, and nothing can be interrupted between a call's return and the next.
    """

    @wraps(function)
    def inside(*args: Any, **options: Any) -> Any:
        word = calls().control_word
        before = word(KEEP)
        try:
            word(DEFAULT)
            return function(*args, **options)
        finally:
            word(before)

    return cast(F, inside)


def _compiling(compile_: F) -> F:
    """What a kernel's compilation runs in."""
    return in_default_float_mode(announced(rarely_collected(compile_)))


def c_function(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function that native code calls by its `.address`; machine code is kept on disk, as kernels' is.

    It runs in the floating-point mode of its caller.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        name_apart(function)
        found = CFunc(function, normalize_signature(signature), locals={}, options={"error_model": "numpy"})
        found._cache = cache_of(function) or found._cache
        rarely_collected(found.compile)()
        return found

    return compiled
