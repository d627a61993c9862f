"""Launches that a thread has made before, with other arguments: the machine's structures are set from copies, the
arguments read from the caller, the kernel's code called.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.libcuda.direct import layout
from nbtc.libcuda.direct.emit import I32, I64, PTR, Body, Shared

CLOCK = 1  # CLOCK_MONOTONIC
SECOND = 10**9


def _now(f: Body) -> Any:
    time = f.local(2)
    f.b.call(f.shared.libc["clock_gettime"], [I32(CLOCK), f.b.bitcast(time, PTR)])
    at = f.b.ptrtoint(time, I64)
    return f.b.add(f.b.mul(f.load(at), f.number(SECOND)), f.load(at, 1))


def _read(f: Body, slot: Any, target: Any, source: Any, size: Any) -> None:
    """Bytes of the caller's: from its stack, or by the system, which says so where there are none."""
    b = f.b
    with b.if_else(f.stack_holds(slot, source, size)) as (on_stack, elsewhere):
        with on_stack:
            f.b.call(f.shared.libc["memcpy"], [b.inttoptr(target, PTR), b.inttoptr(source, PTR), size])
        with elsewhere:
            f.outside_guards(source, size)
            vectors = b.ptrtoint(f.local(4), I64)
            for i, value in enumerate((target, size, source, size)):
                f.store(value, vectors, i)
            process = b.trunc(f.load(f.header(), layout.PROCESS), I32)
            one = f.number(1)
            pair = [b.inttoptr(vectors, PTR), one, b.inttoptr(b.add(vectors, f.number(16)), PTR), one]
            moved = b.call(f.shared.libc["process_vm_readv"], [process, *pair, f.number(0)])
            f.need(f.same(moved, size))


def _arguments(f: Body, slot: Any, record: Any, pointers: Any) -> None:
    b, count = f.b, f.load(record, layout.PARAMETER_COUNT)
    places = b.ptrtoint(f.local(layout.MOST_PARAMETERS), I64)
    with b.if_then(b.icmp_unsigned("!=", count, f.number(0))):
        _read(f, slot, places, pointers, b.mul(count, f.number(layout.WORD)))
    to = f.load(record, layout.PARAMETERS)

    def one(i: Any) -> None:
        field = b.add(record, b.mul(i, f.number(2 * layout.WORD)))
        offset, size = (f.load(field, layout.FIELDS + k) for k in range(2))
        _read(f, slot, b.add(to, offset), f.load(places, i), size)

    f.loop(count, one)


def _run(f: Body, record: Any) -> None:
    """Set the machine's structures and call the kernel's code."""
    b = f.b

    def copy(i: Any) -> None:
        entry = b.add(record, b.mul(i, f.number(3 * layout.WORD)))
        target, source, size = (f.load(entry, layout.COPIES + k) for k in range(3))
        b.call(f.shared.libc["memcpy"], [b.inttoptr(target, PTR), b.inttoptr(source, PTR), size])

    f.loop(f.load(record, layout.COPY_COUNT), copy)
    code = b.inttoptr(f.load(record, layout.RUN), ir.FunctionType(ir.VoidType(), [I64]).as_pointer())
    limit, start = f.load(record, layout.LIMIT), _now(f)
    b.call(code, [f.load(record, layout.WORKER)])
    took = b.sub(_now(f), start)
    with b.if_then(b.and_(b.icmp_unsigned("!=", limit, f.number(0)), b.icmp_unsigned("<", limit, took))):
        over = b.add(f.load(record, layout.OVER), f.number(1))
        f.store(over, record, layout.OVER)
        with b.if_then(b.icmp_unsigned("<", f.number(layout.MOST_OVER), over)):
            f.store(f.number(0), record, layout.RECORD_SEEN)  # blocks that take so long are for several threads
    failed = b.load(b.inttoptr(f.load(record, layout.FAILURE), I32.as_pointer()))
    with b.if_then(b.icmp_unsigned("!=", failed, I32(0))):
        tell = b.inttoptr(f.load(f.header(), layout.FAILED), ir.FunctionType(I64, [I64]).as_pointer())
        b.call(tell, [f.load(record, layout.NUMBER)])


def launch_function(shared: Shared) -> Any:
    """A function: 0 when it has launched, 1 when Python has to.  Arguments: the key, the stream, the pointers."""
    f = Body(shared, "nbtc_direct_launch", layout.KEYS + 2)
    key, (stream, pointers) = f.args[: layout.KEYS], f.args[layout.KEYS :]
    b, slot = f.b, f.thread_slot()
    f.good_stream(slot, stream)
    place = f.mixed(b.xor(b.xor(key[0], key[1]), b.shl(key[3], f.number(7))), layout.MOST_RECORDS.bit_length() - 1)
    record = f.load(slot, b.add(place, f.number(layout.RECORDS)))
    f.need(b.icmp_unsigned("!=", record, f.number(0)))
    for i, word in enumerate(key):
        f.need(f.same(f.load(record, layout.KEY + i), word))
    header = f.header()
    f.need(f.same(f.load(record, layout.RECORD_SEEN), f.load(header, layout.EPOCH)))
    f.need(f.same(f.load(record, layout.RECORD_VERSION), f.load(header, layout.VERSION)))
    _arguments(f, slot, record, pointers)
    _run(f, record)
    f.done()
    f.give_up()
    return f.function


def _finish(f: Body, launch: Any, name: str, arguments: list[Any]) -> None:
    f.need(f.same(f.b.call(launch, arguments), f.number(0)))
    f.done()
    f.pass_on(name)


def _pair(f: Body, x: Any, y: Any) -> Any:
    return f.b.or_(f.low(x), f.b.shl(y, f.number(32)))


def driver_launch(shared: Shared, launch: Any, name: str, symbol: str) -> Any:
    """`cuLaunchKernel`."""
    f = Body(shared, symbol, 11)
    function, gx, gy, gz, bx, by, bz, size, stream, pointers, extra = f.args
    f.need(f.same(extra, f.number(0)))
    words = [function, _pair(f, gx, gy), _pair(f, gz, size), _pair(f, bx, by), f.low(bz)]
    _finish(f, launch, name, [*words, stream, pointers])
    return f.function


def runtime_launch(shared: Shared, launch: Any, name: str, symbol: str) -> Any:
    """`cudaLaunchKernel`: each dim3 comes as its first two numbers in one word, the third in the next."""
    f = Body(shared, symbol, 8)
    function, grid, gz, block, bz, pointers, size, stream = f.args
    f.need(f.below(size, f.number(0xFFFFFFFF)))
    words = [function, grid, _pair(f, gz, size), block, f.low(bz)]
    _finish(f, launch, name, [*words, stream, pointers])
    return f.function
