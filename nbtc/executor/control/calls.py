"""Calls (PTX ISA 9.7.12, "call"): direct and indirect, to functions of the module and to what the host provides.

A call hands its lanes over to the callee's first block; each lane notes which call site it returns to.  Arguments and
results in .param variables are copied between the threads' local memories, those in registers between registers.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I32, vector
from nbtc.executor.control import system_calls
from nbtc.executor.emit.action import Action, yes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.emit.values import resize
from nbtc.executor.memory.stack import OFFSETS, WORDS, Stack
from nbtc.executor.text.data import Function, Group, Immediate, Operand, Register, Sink, Symbol, Variable

LANES = 32
ZERO = ir.Constant(I32, 0)
WORD_BYTES = 8


class CallSite(NamedTuple):
    """Where a call returns to: the caller, the number of the block after the call, and what takes the results."""

    caller: Any  # Frame
    number: int
    results: tuple[Operand, ...]


class _Parts(NamedTuple):
    results: tuple[Operand, ...]
    callee: Operand
    arguments: tuple[Operand, ...]
    targets: str  # the label of a list of functions or of a prototype


def parts(operands: tuple[Operand, ...]) -> _Parts:
    """`call (results), callee, (arguments), targets`, each but the callee left out at will."""
    rest = list(operands)
    results = _taken_group(rest)
    callee = rest.pop(0)
    arguments = _taken_group(rest)
    label = rest[0].name if rest and isinstance(rest[0], Symbol) else ""
    return _Parts(results, callee, arguments, label)


def _taken_group(rest: list[Operand]) -> tuple[Operand, ...]:
    """The parameter list that stands next, taken away; none if there is none."""
    group = rest[0] if rest else None
    if not isinstance(group, Group):
        return ()
    del rest[0]
    return group.elements


def call(lanes: Lanes) -> None:
    """call: lanes whose guard doesn't hold wait after it."""
    frame, b = lanes.frame, lanes.b
    found = parts(lanes.operands)
    group = frame.group()
    taken, rest = _guarded(lanes, group)
    if isinstance(found.callee, Symbol) and _known(lanes, found.callee.name) is None:
        with b.if_then(b.icmp_unsigned("!=", taken, ZERO)):
            lanes.active, lanes.full = taken, lanes.full and rest is None
            system_calls.call(lanes, found.callee.name, found.arguments, found.results)
        return
    with b.if_then(b.icmp_unsigned("!=", taken, ZERO)):
        _call(lanes, taken, found)
    if rest is not None:
        with b.if_then(b.icmp_unsigned("!=", rest, ZERO)):
            frame.code.defer(frame.next_block, rest)
    frame.poll(group)
    b.branch(frame.code.dispatch)


def _guarded(lanes: Lanes, group: Any) -> tuple[Any, Any]:
    """Masks of the lanes whose guard holds, and of the others (None without a guard)."""
    b, guard = lanes.b, lanes.instruction.guard
    if guard is None:
        return group, None
    value = lanes.frame.guard(guard)
    if value.type.width == 1:
        value = b.select(value, ir.Constant(I32, -1), ZERO)
    taken = b.and_(value, group)
    return taken, b.xor(taken, group)


def _known(lanes: Lanes, name: str) -> Function | None:
    """A function of the module that has a body."""
    module = lanes.machine.linked.module
    function = module.functions.get(module.aliases.get(name, name))
    return function if function is not None and function.body is not None else None


def _call(lanes: Lanes, mask: Any, found: _Parts) -> None:
    if not isinstance(found.callee, Symbol):
        _indirect(lanes, mask, found)
        return
    function = _known(lanes, found.callee.name)
    if function is not None:
        enter(lanes, function, mask, found)


def _indirect(lanes: Lanes, mask: Any, found: _Parts) -> None:
    """Each lane goes to the function whose address it holds."""
    b, machine = lanes.b, lanes.machine
    addresses = lanes.read(found.callee, "u64", lanes=True)
    names = lanes.frame.function.tables.get(found.targets, machine.linked.taken)
    rest = mask
    for name in names:
        function = _known(lanes, name)
        address = machine.linked.function_address(name)
        if function is None or not _fits(function, found):
            continue
        same = b.icmp_unsigned("==", addresses, lanes.spread(lanes.v.int(address or 0)))
        here = b.and_(lanes.mask(same), rest)
        rest = b.xor(here, rest)
        with b.if_then(b.icmp_unsigned("!=", here, ZERO)):
            enter(lanes, function, here, found)
    with b.if_then(b.icmp_unsigned("!=", rest, ZERO), likely=False):
        lanes.fail(ErrorKind.BAD_CALL, rest, addresses)


def _fits(function: Function, found: _Parts) -> bool:
    p = function.prototype
    return len(p.arguments) == len(found.arguments) and len(p.results) == len(found.results)


def enter(lanes: Lanes, function: Function, mask: Any, found: _Parts) -> None:
    """Lanes become pending at a function's first block, with their arguments and their way back."""
    frame, machine = lanes.frame, lanes.machine
    callee = machine.frames[function.name]
    if not _fits(function, found):
        lanes.refuse(f"{function.name} takes {len(function.prototype.arguments)} arguments and gives "
                     f"{len(function.prototype.results)} results")  # fmt: skip
    base = _push_frame(lanes, callee, mask)
    for formal, actual in zip(function.prototype.arguments, found.arguments, strict=True):
        _pass(lanes, mask, (callee, formal, base), actual)
    number = frame.next_block
    callee.sites.append(CallSite(frame, number, found.results))
    if base is not None:
        _put(lanes.b, callee.base_slot, base, mask)
    _put(lanes.b, callee.return_to, ir.Constant(OFFSETS, [number] * LANES), mask)
    frame.code.defer(callee.base, mask)


def _put(b: Any, slot: Any, value: Any, mask: Any) -> None:
    """Store into a variable of 32 lanes, for some of them."""
    chosen = b.bitcast(mask, vector(ir.IntType(1), LANES))
    b.store(b.select(chosen, value, b.load(slot)), slot)


def _pass(lanes: Lanes, mask: Any, formal: tuple[Any, Variable, Any], actual: Operand) -> None:
    """One argument."""
    callee, variable, base = formal
    if variable.space == "reg":
        register = Register(variable.name, variable.type)
        _put(lanes.b, callee.slot(register), lanes.spread(lanes.read(actual, variable.type)), mask)
        return
    stack = Stack(lanes.frame)
    place = lanes.machine.linked.places[callee.function.name, variable.name]
    to = _bytes(place.offset) if base is None else lanes.b.add(base, _bytes(place.offset))
    if isinstance(actual, Symbol):
        stack.copy(mask, to, lanes.frame.local_offsets(actual.name), variable.bytes)
    elif isinstance(actual, Register | Immediate):
        stack.push(mask, to, lanes.spread(resize(lanes.v, lanes.read(actual, variable.type), 64)))
    else:
        lanes.refuse("an argument is a variable, a register or a number")


def _push_frame(lanes: Lanes, callee: Any, mask: Any) -> Any:
    """Where the callee's variables begin (None: where they always are); a recursive caller's registers are kept."""
    machine, frame, b = lanes.machine, lanes.frame, lanes.b
    if callee.base_slot is None:
        return None
    stack, top_slot = Stack(frame), frame.code.stack_top()
    top, saved = b.load(top_slot), _kept(frame)
    variables = machine.linked.frame_bytes[callee.function.name]
    limit = b.sub(lanes.get("launch", "local_bytes"), ir.Constant(I32, WORD_BYTES * len(saved) + variables))
    over = b.and_(lanes.mask(b.icmp_signed(">", top, lanes.spread(limit))), mask)
    with b.if_then(b.icmp_unsigned("!=", over, ZERO), likely=False):
        lanes.fail(ErrorKind.STACK_OVERFLOW, over)
        b.branch(frame.code.done)
        b.position_at_end(frame.code.function.append_basic_block("never"))
    for i, slot in enumerate(saved):
        stack.push(mask, b.add(top, _bytes(WORD_BYTES * i)), resize(lanes.v, b.load(slot), 64))
    base = b.add(top, _bytes(WORD_BYTES * len(saved)))
    _put(b, top_slot, b.add(base, _bytes(variables)), mask)
    return base


def _bytes(n: int) -> Any:
    return ir.Constant(OFFSETS, [n] * LANES)


def _kept(frame: Any) -> list[Any]:
    """What an invocation of a recursive function must find again after a call: registers, base, way back."""
    if frame.base_slot is None:
        return []
    return [*(frame.slot(r) for r in frame.registers_kept()), frame.base_slot, frame.return_to]


def ret(lanes: Lanes) -> None:
    """ret from a function: lanes go on after the call they came from."""
    frame, b = lanes.frame, lanes.b
    going, staying = _guarded(lanes, frame.group())
    if staying is not None:
        with b.if_then(b.icmp_unsigned("!=", staying, ZERO)):
            frame.code.defer(frame.next_block, staying)
    b.store(going, frame.returning)
    b.branch(frame.way_out)


def emit_ways_out(frame: Any) -> None:
    """Where a function's `ret` leads: back to each call site, with the results.  Emitted when all sites are known."""
    b, code = frame.b, frame.code
    b.position_at_end(frame.way_out)
    mask = b.load(frame.returning)
    for site in frame.sites:
        here = ir.Constant(OFFSETS, [site.number] * LANES)
        same = b.bitcast(b.icmp_unsigned("==", b.load(frame.return_to), here), I32)
        back = b.and_(same, mask)
        with b.if_then(b.icmp_unsigned("!=", back, ZERO)):
            _return(frame, site, back)
            code.defer(site.number, back)
            rest = b.and_(b.load(frame.returning), b.not_(back))  # a recursive caller has its own way back again
            b.store(rest, frame.returning)
        mask = b.load(frame.returning)
    b.branch(code.dispatch)


def _return(frame: Any, site: CallSite, mask: Any) -> None:
    """Give the caller its registers back and hand it the results."""
    b, stack = frame.b, Stack(frame)
    sources = [_result(frame, variable) for variable in frame.function.prototype.results]
    if frame.base_slot is not None:
        saved = _kept(site.caller)
        top = b.sub(b.load(frame.base_slot), _bytes(WORD_BYTES * len(saved)))
        _put(b, frame.code.stack_top(), top, mask)
        for i, slot in enumerate(saved):
            words = stack.pop(mask, b.add(top, _bytes(WORD_BYTES * i)), ir.Constant(WORDS, None))
            _put(b, slot, resize(frame.v, words, slot.type.pointee.element.width), mask)
    for variable, source, target in zip(frame.function.prototype.results, sources, site.results, strict=True):
        if isinstance(target, Sink):
            continue
        if isinstance(target, Symbol):
            stack.copy(mask, site.caller.local_offsets(target.name), source, variable.bytes)
        elif isinstance(target, Register):
            if variable.space == "param":
                source = stack.pop(mask, source, ir.Constant(WORDS, None))
            _put(b, site.caller.slot(target), resize(frame.v, source, target.bits), mask)


def _result(frame: Any, variable: Variable) -> Any:
    """A result: the value of its register, or its place in local memory."""
    if variable.space == "reg":
        return frame.b.load(frame.slot(Register(variable.name, variable.type)))
    return frame.local_offsets(variable.name)


ACTIONS = (Action("call", slots("uni?"), call, varying=yes),)
