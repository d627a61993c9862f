"""All forms that act on warps, memory and control flow: one table a family, looked up by an instruction's name."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType

from nbtc.executor.control import barriers, cluster, control, fences, warp
from nbtc.executor.emit.action import Action
from nbtc.executor.matrix import matrix, matrix_moves, tensor_memory, warpgroup, wmma_moves
from nbtc.executor.memory import alloca, atomics, memory, moves, multimem
from nbtc.executor.texture import texture
from nbtc.executor.transfer import bulk, bulk_tensor, cluster_launch_control, copies, mbarrier, remote_stores

FAMILIES = (
    control, moves, memory, barriers, warp, atomics, fences, copies, matrix, matrix_moves, wmma_moves, warpgroup,
    mbarrier, bulk, bulk_tensor, remote_stores, cluster, alloca, tensor_memory, cluster_launch_control, multimem,
    texture,
)  # fmt: skip
TABLES: tuple[tuple[Action, ...], ...] = tuple(family.ACTIONS for family in FAMILIES)


@cache
def by_opcode() -> MappingProxyType[str, tuple[Action, ...]]:
    """The rows of every opcode."""
    rows: dict[str, tuple[Action, ...]] = {}
    for action in (action for table in TABLES for action in table):
        rows[action.opcode] = (*rows.get(action.opcode, ()), action)
    return MappingProxyType(rows)


def find(opcode: str, modifiers: tuple[str, ...]) -> Action | None:
    """The row of an instruction, or None when there is none."""
    return next((action for action in by_opcode().get(opcode, ()) if action.matches(modifiers)), None)
