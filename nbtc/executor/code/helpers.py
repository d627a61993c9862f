"""Functions that the code of warps calls, and the loop that runs warps: emitted once for all programs with a setting.

A body depends on its name and on the setting, never on a program, so what builds one is handed the `Helpers` and knows
of no program.  Their machine code is found by their text (`nbtc.compiler.machine_code.split`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, VectorBuilder
from nbtc.compiler.machine_code.native import target
from nbtc.compiler.machine_code.split import Functions
from nbtc.executor.code import scheduler, worker
from nbtc.executor.emit.errors import ErrorKind, Stop
from nbtc.executor.emit.fields import field_at, load_field
from nbtc.executor.emit.instrument import Instrument

if TYPE_CHECKING:
    from nbtc.executor.code.machine import Options

POINTER = I8.as_pointer()
VOID = ir.VoidType()
WARP = 32
WARP_CODE = ir.FunctionType(POINTER, [POINTER, I32])  # block, index of the warp; a coroutine's frame


class HelperSetting(NamedTuple):
    """What bodies may depend on besides their names.

    suspends: warps are coroutines.  reserved: first bytes of shared memory that are not a program's.
    """

    options: Options
    suspends: bool
    reserved: int


class Helpers:
    """The functions of a setting."""

    def __init__(self, setting: HelperSetting, instrument: Instrument) -> None:
        self.checked, self.suspends, self.reserved = setting.options.checked, setting.suspends, setting.reserved
        self.instrument = instrument
        self.module = ir.Module(name="helpers")
        self.module.triple = target()[0]
        self.functions = Functions(self.module)
        warp = ir.Function(self.module, WARP_CODE, "warp")
        warp.attributes.add("nounwind")
        scheduler.emit(self, warp)

    def function(
        self, name: str, result: ir.Type, arguments: tuple[ir.Type, ...], build: Callable[[Any, Any], None]
    ) -> Any:
        """The function of a name, made on first use: `build(v, arguments)` emits its body, `ret` included."""
        found = self.module.globals.get(name)
        if found is not None:
            return found
        function = ir.Function(self.module, ir.FunctionType(result, arguments), name)
        function.attributes.add("noinline")
        function.attributes.add("nounwind")
        build(VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry"))), function.args)
        return function

    def record(self, v: VectorBuilder, launch: Any, where: tuple[Any, Any], what: tuple[Any, Any, Any, Any]) -> None:
        """Call what notes the first error of a launch: (block, warp), (site, kind, lane, address)."""
        f = self.function("record", VOID, (POINTER, POINTER, POINTER, I32, I32, I32, I64), _record)
        v.b.call(f, [launch, *where, *what])

    @property
    def note_stop(self) -> Any:
        """The function (launch, block, warp, site, mask, stop) that notes where lanes were when their time was over."""
        return self.function("note_stop", VOID, (POINTER, POINTER, POINTER, I32, I32, I32), self._note_stop)

    def _note_stop(self, v: VectorBuilder, args: Any) -> None:
        launch, block, warp, site, mask, stop = args
        with v.b.if_then(v.b.icmp_unsigned("==", stop, ir.Constant(I32, Stop.TIME_LIMIT))):
            lane = v.call("llvm.cttz.i32", I32, mask, ir.Constant(I1, 0))
            kind = ir.Constant(I32, ErrorKind.TIME_LIMIT)
            self.record(v, launch, (block, warp), (site, kind, lane, v.int(0)))
        v.b.ret_void()

    @property
    def frame_memory(self) -> Any:
        """The function that gives a coroutine its memory."""
        return self.function("frame_memory", POINTER, (POINTER, I64), worker.frame_memory)


_HELPERS: dict[HelperSetting, Helpers] = {}


class _State:
    """Whose turn it is to emit a program."""

    def __init__(self) -> None:
        self.lock = RLock()

    def in_child(self) -> None:
        """After a fork: a thread that was emitting is not there, nor what it would have finished."""
        self.lock = RLock()
        _HELPERS.clear()


_STATE = _State()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_STATE.in_child)


@contextmanager
def emitting() -> Iterator[None]:
    """Programs are emitted and compiled one at a time; one that fails leaves no half of a function behind."""
    with _STATE.lock:
        try:
            yield
        except BaseException:
            _HELPERS.clear()
            raise


def helpers_of(setting: HelperSetting, instrument: type[Instrument]) -> Helpers:
    """The functions of a setting."""
    found = _HELPERS.get(setting)
    if found is None:
        found = _HELPERS[setting] = Helpers(setting, instrument())
    return found


def _record(v: VectorBuilder, args: Any) -> None:
    """Note an error if it is the launch's first, and stop the launch."""
    b = v.b
    launch, block, warp, site, kind, lane, address = args

    def field(name: str) -> Any:
        return field_at(v, "launch", launch, name)

    claim = b.bitcast(field("failed"), I32.as_pointer())
    pair = b.cmpxchg(claim, ir.Constant(I32, 0), ir.Constant(I32, 1), "seq_cst", "seq_cst")
    with b.if_then(b.extract_value(pair, 1)):
        thread = b.add(b.mul(load_field(v, "warp", warp, "index"), ir.Constant(I32, WARP)), lane)
        block_index = b.trunc(load_field(v, "block", block, "index"), I32)
        for name, value in (
            ("error_site", site),
            ("error_kind", kind),
            ("error_block", block_index),
            ("error_thread", thread),
            ("error_address", address),
        ):
            v.store(value, field(name), 4)
        b.store_atomic(ir.Constant(I32, 1), b.bitcast(field("stop"), I32.as_pointer()), "release", 4)
    b.ret_void()
