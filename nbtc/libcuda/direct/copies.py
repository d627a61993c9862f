"""Copies between allocations and memory of the host that is there."""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.libcuda.direct import layout
from nbtc.libcuda.direct.emit import I32, I64, PAGE, PTR, Body, Shared

MOST = 1 << 26  # bytes: of more, looking into the process's map by Python costs nothing
SMALL = 1 << 14  # bytes up to which the system is asked to touch the pages: 0.2 us for each (measured)
READ, WRITE = 22, 23  # MADV_POPULATE_READ, MADV_POPULATE_WRITE: an error where an access would be one
ASYNC = 1  # MS_ASYNC: nothing happens, but an error where pages aren't mapped
TARGET, SOURCE = 1, 2  # bits of which sides have to be the device's memory
KINDS = (0, TARGET, SOURCE, TARGET | SOURCE, 0)  # of cudaMemcpyKind


def _found(f: Body, address: Any) -> Any:
    """The pair of the last allocation that begins at or before an address, or the address 0."""
    b, header = f.b, f.header()
    table, count = f.load(header, layout.TABLE), f.load(header, layout.COUNT)
    head, inside, after = (f.function.append_basic_block() for _ in range(3))
    before = b.block
    b.branch(head)
    b.position_at_end(head)
    low, high = b.phi(I64), b.phi(I64)
    low.add_incoming(f.number(0), before)
    high.add_incoming(count, before)
    b.cbranch(b.icmp_unsigned("<", low, high), inside, after)
    b.position_at_end(inside)
    middle = b.lshr(b.add(low, high), f.number(1))
    begins = f.load(table, b.mul(middle, f.number(2)))
    there = f.below(begins, address)
    low.add_incoming(b.select(there, b.add(middle, f.number(1)), low), inside)
    high.add_incoming(b.select(there, high, middle), inside)
    b.branch(head)
    b.position_at_end(after)
    last = b.add(table, b.mul(b.sub(low, f.number(1)), f.number(2 * layout.WORD)))
    return b.select(f.same(low, f.number(0)), f.number(0), last)


def _side(f: Body, slot: Any, place: tuple[Any, Any, Any], advice: int) -> None:
    """Go on only where a range is all in one allocation, or memory of the host that is there."""
    b, (address, size, on_device) = f.b, place
    pair = _found(f, address)
    end = b.select(f.same(pair, f.number(0)), f.number(0), f.load(b.select(f.same(pair, f.number(0)), slot, pair), 1))
    known = b.icmp_unsigned("<", address, end)
    with b.if_else(known) as (device, host):
        with device:
            f.need(f.below(size, b.sub(end, address)))
        with host:
            f.need(f.same(on_device, f.number(0)))
            f.need(f.below(f.number(PAGE), address))
            f.need(f.below(address, f.number((1 << 47) - MOST)))
            f.outside_guards(address, size)
            on_stack = f.stack_holds(slot, address, size)
            with b.if_then(b.not_(on_stack)):
                _mapped(f, slot, address, size, advice)


def _mapped(f: Body, slot: Any, address: Any, size: Any, advice: int) -> None:
    """Go on only where pages may be read, or written."""
    b = f.b
    first = b.and_(address, f.number(-PAGE))
    last = b.and_(b.add(b.add(address, size), f.number(PAGE - 1)), f.number(-PAGE))
    start, length = b.inttoptr(first, PTR), b.sub(last, first)
    with b.if_else(f.below(size, f.number(SMALL))) as (small, large):
        with small:
            f.need(f.same(b.call(f.shared.libc["madvise"], [start, length, I32(advice)]), I32(0)))
        with large:
            inside = ir.Constant(ir.IntType(1), 0)
            for i in range(layout.MOST_REGIONS):
                low, high = (f.load(slot, layout.REGIONS + 2 * i + k) for k in range(2))
                inside = b.or_(inside, b.and_(f.below(low, address), f.below(b.add(address, size), high)))
            f.need(inside)
            f.need(f.same(b.call(f.shared.libc["msync"], [start, length, I32(ASYNC)]), I32(0)))


def copy_function(shared: Shared) -> Any:
    """A function: 0 when it has copied, 1 when Python has to: target, source, bytes, sides (bits), stream."""
    f = Body(shared, "nbtc_direct_copy", 5)
    target, source, size, sides, stream = f.args
    b, slot, header = f.b, f.thread_slot(), f.header()
    f.good_stream(slot, stream)
    f.need(f.below(size, f.number(MOST)))
    sequence = f.load(header, layout.SEQUENCE)
    f.need(f.same(b.and_(sequence, f.number(1)), f.number(0)))
    f.need(f.same(f.load(header, layout.VERSION), f.load(header, layout.TABLE_VERSION)))
    _side(f, slot, (target, size, b.and_(sides, f.number(TARGET))), WRITE)
    _side(f, slot, (source, size, b.and_(sides, f.number(SOURCE))), READ)
    f.need(f.same(f.load(header, layout.SEQUENCE), sequence))
    b.call(shared.libc["memmove"], [b.inttoptr(target, PTR), b.inttoptr(source, PTR), size])
    f.done()
    f.give_up()
    return f.function


def plain_copy(shared: Shared, copy: Any, name: str, symbol: str, sides: int, stream: bool) -> Any:
    """`cuMemcpyHtoD` and its like."""
    f = Body(shared, symbol, 4 if stream else 3)
    given = [*f.args[:3], f.number(sides), f.args[3] if stream else f.number(0)]
    f.need(f.same(f.b.call(copy, given), f.number(0)))
    f.done()
    f.pass_on(name)
    return f.function


def runtime_copy(shared: Shared, copy: Any, name: str, symbol: str, stream: bool) -> Any:
    """`cudaMemcpy`, `cudaMemcpyAsync`: the kind says which sides are the device's."""
    f = Body(shared, symbol, 5 if stream else 4)
    b, kind = f.b, f.low(f.args[3])
    f.need(f.below(kind, f.number(len(KINDS) - 1)))
    bits = f.number(sum(sides << 2 * i for i, sides in enumerate(KINDS)))
    sides = b.and_(b.lshr(bits, b.mul(kind, f.number(2))), f.number(3))
    f.need(f.same(b.call(copy, [*f.args[:3], sides, f.args[4] if stream else f.number(0)]), f.number(0)))
    f.done()
    f.pass_on(name)
    return f.function
