"""Words of the warp: exchange, votes, matches, reductions (PTX ISA 9.7.13; the CUDA C++ Programming Guide's names)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import rows, thread_words
from nbtc.isa.parse import row

I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
HERE = "nbtc.warp"
LAST_LANE = 31  # what idx, down and bfly clamp to
SEGMENT = 8  # bit from which on the operand c of shfl.sync says which bits of a lane number are its segment's


def _mask(c: Any, b: Any, value: Any, kind: Any) -> Any:
    return c.cast(b, value, kind, types.uint32)


def _number(name: str, **given: Any) -> None:
    for label, kind in given.items():
        if not isinstance(kind, types.Integer | types.Boolean):
            words.refuse(f"{name}: {label} is an integer, not {kind}")


def _moved_word(b: Any, value: Any, move: Callable[[Any], Any]) -> Any:
    """A number of 16 to 64 bits through an exchange of 32-bit words."""
    width = {"half": 16, "float": 32, "double": 64}.get(str(value.type)) or value.type.width
    bits = b.bitcast(value, ir.IntType(width)) if not isinstance(value.type, ir.IntType) else value
    if width == 64:
        low, high = b.trunc(bits, I32), b.trunc(b.lshr(bits, ir.Constant(I64, 32)), I32)
        moved = b.or_(b.zext(move(low), I64), b.shl(b.zext(move(high), I64), ir.Constant(I64, 32)))
    else:
        moved = move(bits if width == 32 else b.zext(bits, I32))
        moved = moved if width == 32 else b.trunc(moved, bits.type)
    return moved if moved.type == value.type else b.bitcast(moved, value.type)


def _shuffle(name: str, mode: str, third: str, last: int) -> None:
    """One of the four shuffles; `third` is CUDA's name of the third parameter."""
    form = row(f"shfl.sync.{mode}.b32")

    def typing(context: Any, mask: Any, var: Any, lane: Any, width: Any = 32) -> Any:
        kind = types.unliteral(var)
        if not isinstance(kind, types.Number | types.Boolean):
            words.refuse(f"{name}: var is a number, not {var}")
        _number(name, mask=mask, width=width, **{third: lane})

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            value = c.cast(b, args[1], var, kind)
            source = c.cast(b, args[2], lane, types.uint32)
            size = c.cast(b, args[3], width, types.uint32)
            outside = b.sub(ir.Constant(I32, 32), size)
            clamp = b.or_(b.shl(outside, ir.Constant(I32, SEGMENT)), ir.Constant(I32, last))
            lanes = _mask(c, b, args[0], mask)

            def move(word: Any) -> Any:
                given = {"a": word, "b": source, "c": clamp, "mask": lanes}
                return rows.emit(b, form, {"d": [I32]}, given)[0]

            return _moved_word(b, value, move)

        return signature(kind, mask, var, lane, width), emit

    typing.__name__ = name
    parameters = inspect.signature(typing).parameters.values()
    typing.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [p.replace(name=third) if p.name == "lane" else p for p in parameters]
    )
    words.word(f"{HERE}.{name}")(typing)


_shuffle("shfl_sync", "idx", "src_lane", LAST_LANE)
_shuffle("shfl_up_sync", "up", "delta", 0)
_shuffle("shfl_down_sync", "down", "delta", LAST_LANE)
_shuffle("shfl_xor_sync", "bfly", "lane_mask", LAST_LANE)


def _reduction(op: str, kinds: tuple[str, ...]) -> None:
    name = f"reduce_{op}_sync"

    def typing(context: Any, mask: Any, value: Any) -> Any:
        kind = types.unliteral(value)
        _number(name, mask=mask, value=kind)
        word = types.uint32 if kind in (types.uint32, types.uint64) else types.int32
        form = row(f"redux.sync.{op}.{kinds[word == types.int32 and len(kinds) > 1]}")

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            given = {"a": c.cast(b, args[1], value, word), "mask": _mask(c, b, args[0], mask)}
            return rows.emit(b, form, {"d": [I32]}, given)[0]

        return signature(word, mask, value), emit

    typing.__name__ = name
    words.word(f"{HERE}.{name}")(typing)


for _op in ("add", "min", "max"):
    _reduction(_op, ("u32", "s32"))
for _op in ("and", "or", "xor"):
    _reduction(_op, ("b32",))


def _vote(name: str, mnemonic: str) -> None:
    form, ballot = row(mnemonic), "ballot" in mnemonic

    def typing(context: Any, mask: Any, predicate: Any) -> Any:
        _number(name, mask=mask)

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            given = {"a": c.cast(b, args[1], predicate, types.boolean), "mask": _mask(c, b, args[0], mask)}
            found = rows.emit(b, form, {"d": [I32 if ballot else I1]}, given)[0]
            return found if ballot else b.zext(found, I32)

        return signature(types.uint32 if ballot else types.int32, mask, predicate), emit

    typing.__name__ = name
    words.word(f"{HERE}.{name}")(typing)


_vote("all_sync", "vote.sync.all.pred")
_vote("any_sync", "vote.sync.any.pred")
_vote("ballot_sync", "vote.sync.ballot.b32")


def _word_of(name: str, c: Any, b: Any, value: Any, kind: Any) -> Any:
    """A number's bits, 32 or 64."""
    plain = types.unliteral(kind)
    held = c.cast(b, value, kind, plain)
    return held if isinstance(held.type, ir.IntType) else b.bitcast(held, I64 if plain.bitwidth == 64 else I32)


def _match(name: str, which: str) -> None:
    every = which == "all"

    def typing(context: Any, mask: Any, value: Any) -> Any:
        plain = types.unliteral(value)
        if getattr(plain, "bitwidth", 0) not in (32, 64):
            words.refuse(f"{name}: value is a number of 32 or 64 bits, not {value}")
        _number(name, mask=mask)
        form = row(f"match.{which}.sync.b{plain.bitwidth}")
        result = types.Tuple([types.uint32, types.int32]) if every else types.uint32

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            given = {"a": _word_of(name, c, b, args[1], value), "mask": _mask(c, b, args[0], mask)}
            if not every:
                return rows.emit(b, form, {"d": [I32]}, given)[0]
            lanes, agree = rows.emit(b, form, {"d": [I32], "p": [I1]}, given)
            return c.make_tuple(b, result, [lanes, b.zext(agree, I32)])

        return signature(result, mask, value), emit

    typing.__name__ = name
    words.word(f"{HERE}.{name}")(typing)


_match("match_any_sync", "any")
_match("match_all_sync", "all")

words.instruction(f"{HERE}.activemask", "activemask.b32 $0;", types.uint32)
words.instruction(f"{HERE}.nanosleep", "nanosleep.u32 $0;", types.void, (types.uint32,), ("ns",))
words.VOCABULARY[f"{HERE}.syncwarp"] = words.VOCABULARY[f"{thread_words.HERE}.syncwarp"]
