"""The functions that have a compiled form, and those that only look whether all is well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from nbtc.libcuda.direct import layout
from nbtc.libcuda.direct.copies import SOURCE, TARGET, copy_function, plain_copy, runtime_copy
from nbtc.libcuda.direct.emit import I32, Body, Shared
from nbtc.libcuda.direct.launches import driver_launch, launch_function, runtime_launch
from nbtc.libcuda.registry import VARIANTS
from nbtc.libcuda.rows import VERSION

NOTHING = -1


class Form(NamedTuple):
    """How a function is answered; `stream`: which of its arguments is a stream, if one is."""

    emit: Callable[..., Any]
    stream: int = NOTHING


def _nothing_to_do(count: int, stream: int) -> Callable[..., Any]:
    """A function that has nothing to wait for, since all is done at once: count of arguments."""

    def emit(shared: Shared, name: str, symbol: str) -> Any:
        f = Body(shared, symbol, count)
        slot = f.thread_slot()
        if stream != NOTHING:
            f.good_stream(slot, f.args[stream])
        f.done()
        f.pass_on(name)
        return f.function

    return emit


def _answer(value: int | None) -> Callable[..., Any]:
    """A function that puts a number, or the context, where its argument points, if that is on the stack."""

    def emit(shared: Shared, name: str, symbol: str) -> Any:
        f = Body(shared, symbol, 1)
        slot, size = f.thread_slot(), 8 if value is None else 4
        f.need(f.stack_holds(slot, f.args[0], f.number(size)))
        if value is None:
            f.store(f.load(slot, layout.CONTEXT), f.args[0])
        else:
            f.b.store(I32(value), f.b.inttoptr(f.args[0], I32.as_pointer()))
        f.done()
        f.pass_on(name)
        return f.function

    return emit


def _same_context(shared: Shared, name: str, symbol: str) -> Any:
    f = Body(shared, symbol, 1)
    f.need(f.same(f.load(f.thread_slot(), layout.CONTEXT), f.args[0]))
    f.done()
    f.pass_on(name)
    return f.function


def _first_device(shared: Shared, name: str, symbol: str) -> Any:
    f = Body(shared, symbol, 1)
    f.thread_slot()
    f.need(f.same(f.low(f.args[0]), f.number(0)))
    f.done()
    f.pass_on(name)
    return f.function


def _no_error(shared: Shared, name: str, symbol: str) -> Any:
    f = Body(shared, symbol, 0)
    f.thread_slot()
    f.need(f.same(f.load(f.header(), layout.ERRORS), f.number(0)))
    f.done()
    f.pass_on(name)
    return f.function


def _push(shared: Shared, name: str, symbol: str) -> Any:
    """`__cudaPushCallConfiguration`: six words (each dim3 in two) onto the thread's own stack."""
    f = Body(shared, symbol, layout.CONFIG)
    b, slot = f.b, f.thread_slot()
    depth = f.load(slot, layout.DEPTH)
    f.need(b.icmp_unsigned("<", depth, f.number(layout.MOST_CONFIGS)))
    base = b.add(slot, b.mul(depth, f.number(layout.CONFIG * layout.WORD)))
    for i, value in enumerate(f.args):
        f.store(value, base, layout.CONFIGS + i)
    f.store(b.add(depth, f.number(1)), slot, layout.DEPTH)
    f.done()
    f.pass_on(name)
    return f.function


def _pop(shared: Shared, name: str, symbol: str) -> Any:
    """`__cudaPopCallConfiguration`, to variables on the stack; what was pushed in Python, Python pops."""
    f = Body(shared, symbol, 4)
    b, slot = f.b, f.thread_slot()
    depth = f.load(slot, layout.DEPTH)
    f.need(b.icmp_unsigned("!=", depth, f.number(0)))
    for place, size in zip(f.args, (12, 12, 8, 8), strict=True):
        f.need(f.stack_holds(slot, place, f.number(size)))
    below = b.sub(depth, f.number(1))
    base = b.add(slot, b.mul(below, f.number(layout.CONFIG * layout.WORD)))
    words = [f.load(base, layout.CONFIGS + i) for i in range(layout.CONFIG)]
    for place, first, last in ((f.args[0], words[0], words[1]), (f.args[1], words[2], words[3])):
        f.store(first, place)
        b.store(b.trunc(last, I32), b.inttoptr(b.add(place, f.number(8)), I32.as_pointer()))
    f.store(words[4], f.args[2])
    f.store(words[5], f.args[3])
    f.store(below, slot, layout.DEPTH)
    f.done()
    f.pass_on(name)
    return f.function


def _launch(emit: Callable[..., Any]) -> Callable[..., Any]:
    return lambda shared, name, symbol: emit(shared, shared.common(launch_function), name, symbol)


def _copy(emit: Callable[..., Any], *how: Any) -> Callable[..., Any]:
    return lambda shared, name, symbol: emit(shared, shared.common(copy_function), name, symbol, *how)


DRIVER = {
    "cuDriverGetVersion": Form(_answer(VERSION)),
    "cuCtxGetCurrent": Form(_answer(None)),
    "cuCtxGetDevice": Form(_answer(0)),
    "cuCtxSetCurrent": Form(_same_context),
    "cuCtxSynchronize": Form(_nothing_to_do(0, NOTHING)),
    "cuStreamSynchronize": Form(_nothing_to_do(1, 0), 0),
    "cuStreamQuery": Form(_nothing_to_do(1, 0), 0),
    "cuLaunchKernel": Form(_launch(driver_launch), 8),
    **{
        f"cuMemcpy{kind}{end}": Form(_copy(plain_copy, sides, bool(stream)), 3 if stream else NOTHING)
        for kind, sides in (("", 0), ("HtoD", TARGET), ("DtoH", SOURCE), ("DtoD", TARGET | SOURCE))
        for stream in (False, True)
        for end in [("Async" if stream else "") + ("_v2" if kind else "")]
    },
}
RUNTIME = {
    "cudaGetLastError": Form(_no_error),
    "cudaPeekAtLastError": Form(_no_error),
    "cudaGetDevice": Form(_answer(0)),
    "cudaSetDevice": Form(_first_device),
    "cudaDeviceSynchronize": Form(_nothing_to_do(0, NOTHING)),
    "cudaStreamSynchronize": Form(_nothing_to_do(1, 0), 0),
    "cudaStreamQuery": Form(_nothing_to_do(1, 0), 0),
    "cudaMemcpy": Form(_copy(runtime_copy, False)),
    "cudaMemcpyAsync": Form(_copy(runtime_copy, True), 4),
    "cudaLaunchKernel": Form(_launch(runtime_launch), 5),
    "__cudaLaunchKernel": Form(_launch(runtime_launch), 5),
    "__cudaPushCallConfiguration": Form(_push),
    "__cudaPopCallConfiguration": Form(_pop),
}
FORMS = {"driver": DRIVER, "runtime": RUNTIME}


def form(which: str, name: str) -> Form | None:
    """The compiled form of a function, or None; a thread's default stream is the same stream."""
    table = FORMS.get(which, {})
    for end in ("", *VARIANTS):
        if name.endswith(end) and (found := table.get(name.removesuffix(end))):
            return found
    return None


def direct_names(which: str, names: Sequence[str]) -> list[str]:
    """Those functions of a library that have a compiled form."""
    return [name for name in names if form(which, name)]


def emit_all(shared: Shared, which: str) -> list[Any]:
    """The compiled forms of the functions that `shared` names."""
    made = []
    for i, name in enumerate(shared.names):
        found = form(which, name)
        if found is None:
            raise KeyError(name)
        made.append(found.emit(shared, name, f"nbtc_direct_{i}"))
    return made
