"""Building blocks of compiled calls: the shared memory's words, what has to be so, the way on to Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir

from nbtc.libcuda.direct import layout

I8, I32, I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
PTR = I8.as_pointer()
FS = 257  # LLVM's number of the address space that begins at the thread pointer
PAGE = 4096


class Shared:
    """What the compiled calls of a library have in common: `names` have one, in the order of their slots."""

    def __init__(self, module: ir.Module, libc: dict[str, Any], names: Sequence[str]) -> None:
        self.module, self.libc, self.names = module, libc, list(names)
        self._common: dict[Any, Any] = {}
        self.state = self._global("nbtc_direct_state", I64)  # the address of the header
        self.python = self._global("nbtc_direct_python", ir.ArrayType(I64, max(1, len(names))))
        self.slot = _slot_function(self)

    def described(self, functions: Sequence[Any]) -> Any:
        """What Python is told: the places of the state's address and of its own functions', then the functions."""
        parts = [self.state, self.python, *functions]
        kind = ir.ArrayType(I64, len(parts))
        made = ir.GlobalVariable(self.module, kind, "nbtc_direct")
        made.linkage, made.initializer = "internal", ir.Constant(kind, [p.ptrtoint(I64) for p in parts])
        return made

    def common(self, emit: Callable[[Shared], Any]) -> Any:
        """A function that others call, emitted once."""
        if emit not in self._common:
            self._common[emit] = emit(self)
        return self._common[emit]

    def _global(self, name: str, kind: Any) -> Any:
        made = ir.GlobalVariable(self.module, kind, name)
        made.linkage = "internal"
        made.initializer = ir.Constant(kind, None)
        return made


class Body:
    """A function while it is emitted; `otherwise` is where it goes when something isn't as it has to be."""

    def __init__(self, shared: Shared, name: str, count: int) -> None:
        self.shared = shared
        self.function = ir.Function(shared.module, ir.FunctionType(I64, [I64] * count), name)
        self.function.linkage = "internal"
        self.b = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.otherwise = self.function.append_basic_block("otherwise")
        self.args = list(self.function.args)

    def number(self, value: int) -> Any:
        """A constant."""
        return ir.Constant(I64, value & (1 << 64) - 1)

    def load(self, base: Any, word: int | Any = 0) -> Any:
        """A word after an address."""
        return self.b.load(self.at(base, word))

    def store(self, value: Any, base: Any, word: int | Any = 0) -> None:
        """Set a word after an address."""
        self.b.store(value, self.at(base, word))

    def at(self, base: Any, word: int | Any = 0) -> Any:
        """The place of a word after an address."""
        place = self.b.inttoptr(base, I64.as_pointer())
        return self.b.gep(place, [self.number(word) if isinstance(word, int) else word])

    def header(self) -> Any:
        """The address of the header; 0 where there is none."""
        return self.b.load(self.shared.state)

    def need(self, condition: Any) -> None:
        """Go on only where it is so."""
        on = self.function.append_basic_block()
        self.b.cbranch(condition, on, self.otherwise)
        self.b.position_at_end(on)

    def same(self, x: Any, y: Any) -> Any:
        """x == y."""
        return self.b.icmp_unsigned("==", x, y)

    def below(self, x: Any, y: Any) -> Any:
        """x <= y, unsigned."""
        return self.b.icmp_unsigned("<=", x, y)

    def low(self, x: Any) -> Any:
        """The low 32 bits: what is above them in an int's register is anyone's."""
        return self.b.and_(x, self.number(0xFFFFFFFF))

    def mixed(self, x: Any, bits: int) -> Any:
        """As `layout.mixed`."""
        return self.b.lshr(self.b.mul(x, self.number(layout.MIX)), self.number(64 - bits))

    def thread_slot(self) -> Any:
        """The thread's slot, whose context is fine."""
        found = self.b.call(self.shared.slot, [])
        self.need(self.b.icmp_unsigned("!=", found, self.number(0)))
        return found

    def stack_holds(self, slot: Any, address: Any, size: Any) -> Any:
        """Whether a range lies in what callers have put on the thread's stack, where they run on that."""
        here = self.b.ptrtoint(self.local(), I64)
        low, end = (self.load(slot, layout.STACK + i) for i in range(2))
        inside = self.b.and_(self.below(here, address), self.below(address, end))
        inside = self.b.and_(inside, self.below(low, here))
        return self.b.and_(inside, self.below(size, self.b.sub(end, address)))

    def local(self, words: int = 1) -> Any:
        """Memory of this call's own."""
        with self.b.goto_entry_block():
            return self.b.alloca(ir.ArrayType(I64, words))

    def good_stream(self, slot: Any, stream: Any) -> None:
        """Go on only with a stream that exists and isn't captured."""
        standard = self.below(stream, self.number(2))
        place = self.mixed(stream, layout.MOST_STREAMS.bit_length() - 1)
        known = self.load(slot, self.b.add(place, self.number(layout.STREAMS)))
        self.need(self.b.or_(standard, self.same(known, stream)))

    def outside_guards(self, address: Any, size: Any) -> None:
        """Go on only with memory that isn't the driver's own."""
        header, end = self.header(), self.b.add(address, size)
        for i in range(layout.MOST_GUARDS):
            low, high = (self.load(header, layout.GUARDS + 2 * i + k) for k in range(2))
            self.need(self.b.or_(self.below(high, address), self.below(end, low)))

    def loop(self, count: Any, body: Callable[[Any], None]) -> None:
        """body(i) for i below count."""
        head, inside, after = (self.function.append_basic_block() for _ in range(3))
        before = self.b.block
        self.b.branch(head)
        self.b.position_at_end(head)
        i = self.b.phi(I64)
        i.add_incoming(self.number(0), before)
        self.b.cbranch(self.b.icmp_unsigned("<", i, count), inside, after)
        self.b.position_at_end(inside)
        body(i)
        i.add_incoming(self.b.add(i, self.number(1)), self.b.block)
        self.b.branch(head)
        self.b.position_at_end(after)

    def done(self, value: Any = 0) -> None:
        """The result."""
        self.b.ret(self.number(value) if isinstance(value, int) else value)

    def pass_on(self, name: str) -> None:
        """What isn't answered here, Python answers."""
        b = ir.IRBuilder(self.otherwise)
        index = self.shared.names.index(name)
        address = b.load(b.gep(self.shared.python, [self.number(0), self.number(index)]))
        function = b.inttoptr(address, self.function.function_type.as_pointer())
        b.ret(b.call(function, self.args, tail=True))

    def give_up(self) -> None:
        """A function for others says 1 where it can't answer."""
        ir.IRBuilder(self.otherwise).ret(self.number(1))


def _slot_function(shared: Shared) -> Any:
    """A function: the slot of the calling thread if its context was fine in this epoch, or 0."""
    f = Body(shared, "nbtc_direct_slot", 0)
    b, header = f.b, f.header()
    f.need(b.icmp_unsigned("!=", header, f.number(0)))
    thread = b.load(ir.Constant(I64.as_pointer(FS), None))
    first = f.mixed(thread, layout.THREADS.bit_length() - 1)
    slots = b.add(header, f.number(layout.WORD * layout.HEADER))

    def look(i: Any) -> None:
        place = b.and_(b.add(first, i), f.number(layout.THREADS - 1))
        slot = b.add(slots, b.mul(place, f.number(layout.WORD * layout.SLOT)))
        found = f.load(slot, layout.THREAD)
        with b.if_then(f.same(found, thread)):
            f.need(f.same(f.load(slot, layout.SEEN), f.load(header, layout.EPOCH)))
            f.done(slot)
        f.need(b.icmp_unsigned("!=", found, f.number(0)))

    f.loop(f.number(layout.PROBES), look)
    b.branch(f.otherwise)
    ir.IRBuilder(f.otherwise).ret(f.number(0))
    return f.function
