"""How asynchronous copies and their barriers become PTX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import copies
from nbtc.dialect.vocabulary.addresses import global_address, shared_address
from nbtc.numba_door.constants import constant_of

HERE = copies.__name__
SIZES = {4: "ca", 8: "ca", 16: "cg"}  # bytes of a copy, and the cache that it may stay in
I1, I64 = ir.IntType(1), ir.IntType(64)
SHARED, DEVICE, NUMBER = "shared", "global", "number"


def _number(c: Any, b: Any, kind: Any, value: Any) -> Any:
    return c.cast(b, value, kind, types.uint32)


ADDRESSES: dict[str, Callable[..., Any]] = {SHARED: shared_address, DEVICE: global_address, NUMBER: _number}


def _check(name: str, parameters: dict[str, str], kinds: tuple[Any, ...]) -> None:
    for (label, what), kind in zip(parameters.items(), kinds, strict=True):
        plain = types.unliteral(kind)
        if what == NUMBER and not isinstance(plain, types.Integer | types.Boolean):
            words.refuse(f"{name}: {label} is a whole number, not {plain}")
        if what != NUMBER and not isinstance(plain, types.Array):
            words.refuse(f"{name}: {label} is an array in {what} memory, or a part of one, not {plain}")


def _copying(name: str, text: str, result: Any = types.none, **parameters: str) -> None:
    """A word that is one instruction on addresses and numbers: `$0` its result, if any, then the parameters."""

    def typed(context: Any, *kinds: Any) -> Any:
        _check(name, parameters, kinds)

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            given = [ADDRESSES[w](c, b, k, v) for w, k, v in zip(parameters.values(), kinds, args, strict=True)]
            outputs = {types.none: [], types.boolean: [I1], types.uint64: [I64]}[result]
            found = words.inline(b, text, outputs, given, memory=True)
            return found[0] if found else c.get_dummy_value()

        return signature(result, *kinds), emit

    typed.__name__ = name
    words.word(f"{HERE}.{name}")(words.with_parameters(typed, list(parameters)))


_copying("cp_async_bulk_commit_group", "cp.async.bulk.commit_group;")
_copying("cp_async_commit_group", "cp.async.commit_group;")
_copying("cp_async_wait_all", "cp.async.wait_all;")
_copying("fence_mbarrier_init", "fence.mbarrier_init.release.cluster;")
_copying("mbarrier_init", "mbarrier.init.shared::cta.b64 [$0], $1;", bar=SHARED, count=NUMBER)
_copying("mbarrier_inval", "mbarrier.inval.shared::cta.b64 [$0];", bar=SHARED)
_copying("mbarrier_arrive", "mbarrier.arrive.shared::cta.b64 $0, [$1];", types.uint64, bar=SHARED)
_copying(
    "mbarrier_arrive_expect_tx", "mbarrier.arrive.expect_tx.shared::cta.b64 $0, [$1], $2;", types.uint64,
    bar=SHARED, size=NUMBER,
)  # fmt: skip
_copying(
    "mbarrier_try_wait", "mbarrier.try_wait.parity.shared::cta.b64 $0, [$1], $2;", types.boolean,
    bar=SHARED, parity=NUMBER,
)  # fmt: skip
_copying(
    "cp_async_bulk", "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
    dst=SHARED, src=DEVICE, size=NUMBER, bar=SHARED,
)  # fmt: skip
_copying(
    "cp_async_bulk_store", "cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;",
    dst=DEVICE, src=SHARED, size=NUMBER,
)  # fmt: skip


@words.word(f"{HERE}.mbarrier_arrive_cluster")
def _mbarrier_arrive_cluster(context: Any, bar: Any, rank: Any, release: Any = True) -> Any:
    kind = {True: ".release.cluster", False: ""}.get(constant_of(release))
    if kind is None:
        words.refuse(f"mbarrier_arrive_cluster: release is True or False, written out; it is {release}")
    _check("mbarrier_arrive_cluster", {"bar": SHARED, "rank": NUMBER}, (bar, rank))
    text = (
        "{ .reg .b32 there; mapa.shared::cluster.u32 there, $0, $1; "
        f"mbarrier.arrive{kind}.shared::cluster.b64 _, [there]; }}"
    )

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        words.inline(b, text, [], [shared_address(c, b, bar, args[0]), _number(c, b, rank, args[1])], memory=True)
        return c.get_dummy_value()

    return signature(types.none, bar, rank, release), emit


def _wait(bar, parity):
    while not copies.mbarrier_try_wait(bar, parity):
        pass


words.function(f"{HERE}.mbarrier_wait", _wait)


def _moved(c: Any, b: Any, address: Any, array: Any, kind: Any, value: Any) -> Any:
    """An address and so many elements more."""
    size = c.get_abi_sizeof(c.get_data_type(array.dtype))
    count = c.cast(b, value, kind, types.int64 if address.type == I64 else types.int32)
    return b.add(address, b.mul(count, ir.Constant(address.type, size)))


@words.word(f"{HERE}.cp_async")
def _cp_async(context: Any, dst: Any, src: Any, size: Any = 16, dst_offset: Any = 0, src_offset: Any = 0) -> Any:
    count = constant_of(size)
    if count not in SIZES:
        words.refuse(f"cp_async: size is 4, 8 or 16 bytes, written out; it is {size}")
    wanted = {"dst": SHARED, "src": DEVICE, "dst_offset": NUMBER, "src_offset": NUMBER}
    _check("cp_async", wanted, (dst, src, dst_offset, src_offset))
    text = f"cp.async.{SIZES[count]}.shared.global [$0], [$1], {count};"

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        there, here = shared_address(c, b, dst, args[0]), global_address(c, b, src, args[1])
        given = [_moved(c, b, there, dst, dst_offset, args[3]), _moved(c, b, here, src, src_offset, args[4])]
        words.inline(b, text, [], given, memory=True)
        return c.get_dummy_value()

    return signature(types.none, dst, src, size, dst_offset, src_offset), emit


def _pending(name: str, n: Any) -> int:
    pending = constant_of(n)
    if not isinstance(pending, int) or pending < 0:
        words.refuse(f"{name}: how many groups may be under way is a constant; it is {n}")
    return pending


def _doing(text: str) -> Any:
    """What emits an instruction without operands or results."""

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        words.inline(b, text, [], [], memory=True)
        return c.get_dummy_value()

    return emit


@words.word(f"{HERE}.cp_async_wait_group")
def _cp_async_wait_group(context: Any, n: Any) -> Any:
    return signature(types.none, n), _doing(f"cp.async.wait_group {_pending('cp_async_wait_group', n)};")


@words.word(f"{HERE}.cp_async_bulk_wait_group")
def _cp_async_bulk_wait_group(context: Any, n: Any, read: Any = False) -> Any:
    kind = {True: ".read", False: ""}.get(constant_of(read))
    if kind is None:
        words.refuse(f"cp_async_bulk_wait_group: read is True or False, written out; it is {read}")
    pending = _pending("cp_async_bulk_wait_group", n)
    return signature(types.none, n, read), _doing(f"cp.async.bulk.wait_group{kind} {pending};")
