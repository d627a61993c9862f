"""How copies of boxes by tensor maps become PTX (PTX ISA, "cp.async.bulk.tensor", "prefetch")."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.datamodel import models
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.narrow import MODELS
from nbtc.dialect.parameters import TensorMapType
from nbtc.dialect.vocabulary import copies
from nbtc.dialect.vocabulary.addresses import shared_address
from nbtc.executor.transfer.tensor_map import MOST_DIMS

HERE = copies.__name__
I64 = ir.IntType(64)

MODELS.register(TensorMapType, models.OpaqueModel)


def _check(name: str, tensor_map: Any, coords: Any = None, **places: Any) -> None:
    if not isinstance(tensor_map, TensorMapType):
        words.refuse(f"{name}: tensor_map is an argument of the kernel, an nbtc.TensorMap, not {tensor_map}")
    for label, kind in places.items():
        if not isinstance(kind, types.Array):
            words.refuse(f"{name}: {label} is an array in shared memory, or a part of one, not {kind}")
    if coords is None:
        return
    if not isinstance(coords, types.BaseTuple) or not 1 <= len(coords) <= MOST_DIMS:
        words.refuse(f"{name}: coords is a tuple of 1 to {MOST_DIMS} whole numbers, innermost first, not {coords}")
    if not all(isinstance(types.unliteral(part), types.Integer) for part in coords):
        words.refuse(f"{name}: coords are whole numbers, not {coords}")


def _address(b: Any, tensor_map: Any) -> Any:
    return b.ptrtoint(tensor_map, I64)


def _place(c: Any, b: Any, kind: Any, value: Any) -> list[Any]:
    """Coordinates as 32-bit numbers."""
    return [c.cast(b, b.extract_value(value, n), part, types.int32) for n, part in enumerate(kind)]


def _box(first: int, count: int) -> str:
    """The operand of a box: its map and coordinates, operands from `first` on."""
    return f"[${first}, {{{', '.join(f'${first + 1 + n}' for n in range(count))}}}]"


@words.word(f"{HERE}.tma_load")
def _tma_load(context: Any, dst: Any, tensor_map: Any, coords: Any, bar: Any, multicast: Any = None) -> Any:
    _check("tma_load", tensor_map, coords, dst=dst, bar=bar)
    several, count = not isinstance(multicast, types.NoneType), len(coords)
    if several and not isinstance(types.unliteral(multicast), types.Integer):
        words.refuse(f"tma_load: multicast is a mask of blocks, a whole number, not {multicast}")
    text = (
        f"cp.async.bulk.tensor.{count}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        f"{'.multicast::cluster' if several else ''} [$0], {_box(1, count)}, [${count + 2}]"
        f"{f', ${count + 3}' if several else ''};"
    )

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = [shared_address(c, b, dst, args[0]), _address(b, args[1]), *_place(c, b, coords, args[2])]
        given.append(shared_address(c, b, bar, args[3]))
        if several:
            given.append(c.cast(b, args[4], multicast, types.uint16))
        words.inline(b, text, [], given, memory=True)
        return c.get_dummy_value()

    return signature(types.none, dst, tensor_map, coords, bar, multicast), emit


@words.word(f"{HERE}.tma_store")
def _tma_store(context: Any, tensor_map: Any, coords: Any, src: Any) -> Any:
    _check("tma_store", tensor_map, coords, src=src)
    count = len(coords)
    text = f"cp.async.bulk.tensor.{count}d.global.shared::cta.tile.bulk_group {_box(0, count)}, [${count + 1}];"

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = [_address(b, args[0]), *_place(c, b, coords, args[1]), shared_address(c, b, src, args[2])]
        words.inline(b, text, [], given, memory=True)
        return c.get_dummy_value()

    return signature(types.none, tensor_map, coords, src), emit


@words.word(f"{HERE}.tma_prefetch")
def _tma_prefetch(context: Any, tensor_map: Any) -> Any:
    _check("tma_prefetch", tensor_map)

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        words.inline(b, "prefetch.tensormap [$0];", [], [_address(b, args[0])], memory=True)
        return c.get_dummy_value()

    return signature(types.none, tensor_map), emit
