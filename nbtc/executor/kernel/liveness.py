"""Which registers hold values that are still to be read where lanes may have to wait."""

from __future__ import annotations

from collections.abc import Collection

from nbtc.executor.kernel.flow import Graph
from nbtc.executor.rows.uses import use_of


def live_at(graph: Graph, blocks: Collection[int]) -> frozenset[str]:
    """Names of the registers that are live where any of these blocks begins.

    A register is live where it may be read before it is written again; a write under a guard may leave the old value.
    """
    live = _live_in(graph)
    return frozenset().union(*(live[b] for b in blocks))


def _live_in(graph: Graph) -> list[frozenset[str]]:
    """The registers live at the beginning of each block."""
    needs, kills = zip(*(_first_uses(graph, b) for b in range(graph.end)), strict=True) if graph.end else ((), ())
    live: list[frozenset[str]] = [frozenset()] * graph.end
    changed = True
    while changed:
        changed = False
        for b in reversed(range(graph.end)):
            after = frozenset().union(*(live[t] for t in graph.blocks[b].targets))
            found = needs[b] | (after - kills[b])
            changed = changed or found != live[b]
            live[b] = found
    return live


def _first_uses(graph: Graph, b: int) -> tuple[frozenset[str], frozenset[str]]:
    """(registers that a block reads before it writes them, registers that it writes in any case)."""
    needs: set[str] = set()
    kills: set[str] = set()
    for instruction in graph.blocks[b].instructions:
        use = use_of(instruction)
        needs |= {r.name for r in use.reads} - kills
        if instruction.guard is None:
            kills |= {r.name for r in use.writes}
    return frozenset(needs), frozenset(kills)
