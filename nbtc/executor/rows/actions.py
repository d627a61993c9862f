"""All forms that act on warps, memory and control flow: one table a family, looked up by an instruction's name.

Families that many programs do without, and that take most of the time of all imports, are imported when a program has
one of their opcodes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import MappingProxyType
from typing import Protocol

from nbtc.executor.control import barriers, cluster, control, fences, warp
from nbtc.executor.emit.action import Action
from nbtc.executor.memory import alloca, atomics, memory, moves, multimem
from nbtc.executor.transfer import copies, mbarrier, remote_stores


class Family(Protocol):
    """A module with rows."""

    @property
    def ACTIONS(self) -> tuple[Action, ...]:
        """The rows."""


FAMILIES: tuple[Family, ...] = (
    control, moves, memory, barriers, warp, atomics, fences, copies, mbarrier, remote_stores, cluster, alloca, multimem,
)  # fmt: skip


def _matrices() -> tuple[Family, ...]:
    from nbtc.executor.matrix import matrix, matrix_moves, tensor_memory, warpgroup, wmma_moves

    return matrix, matrix_moves, wmma_moves, warpgroup, tensor_memory


def _transfers() -> tuple[Family, ...]:
    from nbtc.executor.transfer import bulk, bulk_tensor, cluster_launch_control

    return bulk, bulk_tensor, cluster_launch_control


def _textures() -> tuple[Family, ...]:
    from nbtc.executor.texture import texture

    return (texture,)


# Who imports further families, and all opcodes that these have rows of.
LATER: MappingProxyType[Callable[[], tuple[Family, ...]], tuple[str, ...]] = MappingProxyType(
    {
        _matrices: ("mma", "wmma", "wgmma", "tcgen05", "ldmatrix", "stmatrix", "movmatrix"),
        _transfers: ("cp", "tensormap", "clusterlaunchcontrol"),
        _textures: ("tex", "tld4", "txq", "suld", "sust", "suq"),
    }
)


@cache
def opcodes() -> frozenset[str]:
    """Every opcode that has rows."""
    own = (action.opcode for family in FAMILIES for action in family.ACTIONS)
    return frozenset((*own, *(opcode for names in LATER.values() for opcode in names)))


@cache
def rows_of(opcode: str) -> tuple[Action, ...]:
    """The rows of an opcode."""
    later = (family for imported, names in LATER.items() if opcode in names for family in imported())
    return tuple(a for family in (*FAMILIES, *later) for a in family.ACTIONS if a.opcode == opcode)


def find(opcode: str, modifiers: tuple[str, ...]) -> Action | None:
    """The row of an instruction, or None when there is none."""
    return next((action for action in rows_of(opcode) if action.matches(modifiers)), None)
