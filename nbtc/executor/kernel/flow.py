"""The control-flow graph of a function: its blocks in an order in which lanes meet again, and who dominates whom.

Blocks are laid out so that, but for back edges to loop headers, every edge leads to a block of a higher number, that
a loop's blocks stand together, and that a loop has one latch after all of its other blocks.  Then lanes that took
different ways meet where their ways join if the lowest pending block always runs first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from nbtc.errors import ParseError
from nbtc.executor.emit.context import END
from nbtc.executor.text.data import Function, Instruction, Symbol

LEAVES = ("ret", "exit")
ENDS = ("bra", "brx", "call", *LEAVES)

Edges = Mapping[int, Sequence[int]]


class Block(NamedTuple):
    """Instructions of which only the last may branch.

    jumps: where its labels lead.  falls: the block after it, if lanes may get there.  Either may be END, where lanes
    end the function.
    """

    instructions: tuple[Instruction, ...]
    jumps: tuple[int, ...]
    falls: int | None

    @property
    def ways(self) -> tuple[int, ...]:
        """Where lanes may go, END included."""
        return tuple(dict.fromkeys((*self.jumps, *(() if self.falls is None else (self.falls,)))))

    @property
    def targets(self) -> tuple[int, ...]:
        """Blocks that lanes may go to."""
        return tuple(t for t in self.ways if t != END)

    @property
    def leaves(self) -> bool:
        """Whether some lanes may end the function here."""
        return END in self.ways

    def moved(self, place: Mapping[int, int]) -> Block:
        """The block with other numbers for its targets."""
        falls = None if self.falls is None else place.get(self.falls, END)
        return self._replace(jumps=tuple(place.get(t, END) for t in self.jumps), falls=falls)


class Graph(NamedTuple):
    """Blocks in order.  In `post_dominator`, `end` (their number) stands for the function's end.

    post_dominator[b]: the immediate one, the first block that all lanes leaving b without ending pass.
    dominator[b]: the last block that all ways to b pass.  loop[b]: the header of the innermost loop around b, or -1;
    outer[h]: the header of the loop around the loop with header h, or -1.
    """

    blocks: tuple[Block, ...]
    post_dominator: tuple[int, ...]
    dominator: tuple[int, ...]
    loop: tuple[int, ...]
    outer: Mapping[int, int]

    @property
    def end(self) -> int:
        """The number that stands for the function's end."""
        return len(self.blocks)

    def dominates(self, a: int, b: int) -> bool:
        """Whether every way to b passes a."""
        while b > a:
            b = self.dominator[b]
        return a == b

    def loops(self, block: int) -> list[int]:
        """Headers of the loops around a block, the innermost first."""
        found, header = [], self.loop[block]
        while header >= 0:
            found.append(header)
            header = self.outer[header]
        return found

    def behind_loops(self) -> frozenset[int]:
        """Blocks outside of all loops that a loop leads to."""
        inside = [b for b in range(self.end) if self.loop[b] >= 0]
        return frozenset(t for b in inside for t in self.blocks[b].targets if t >= 0 and self.loop[t] < 0)

    def region(self, block: int) -> set[int]:
        """Blocks that lanes may be in between diverging at a block's end and meeting again."""
        seen: set[int] = set()
        todo = list(self.blocks[block].targets)
        while todo:
            b = todo.pop()
            if b not in seen and b != self.post_dominator[block]:
                seen.add(b)
                todo.extend(self.blocks[b].targets)
        return seen


def graph(function: Function, waits: Callable[[Instruction], bool]) -> Graph:
    """The graph of a function's body; an instruction that may wait begins a block of its own."""
    blocks = _split(function, waits)
    order, headers = _layout(blocks)
    place = {old: new for new, old in enumerate(order)}
    end = len(order)
    laid = tuple(blocks[old].moved(place) for old in order)
    parents = {place[h]: (-1 if p < 0 else place[p]) for h, p in headers.parents.items()}
    loop = tuple(place[h] if (h := headers.loop.get(old, -1)) >= 0 else -1 for old in order)
    successors = {i: b.targets for i, b in enumerate(laid)}
    return Graph(laid, _post_dominators(successors, end), _dominators(successors, end), loop, parents)


def _split(function: Function, waits: Callable[[Instruction], bool]) -> list[Block]:
    body = function.body or ()
    starts = {0, *function.labels.values()}
    for at, instruction in enumerate(body):
        if instruction.opcode in ENDS:
            starts.add(at + 1)
        elif waits(instruction):
            starts |= {at}
    begins = sorted(s for s in starts if s < len(body))
    number = {s: n for n, s in enumerate(begins)}
    blocks = []
    for n, begin in enumerate(begins):
        end = begins[n + 1] if n + 1 < len(begins) else len(body)
        instructions = body[begin:end]
        last = instructions[-1]
        jumps = [number.get(function.labels[t], END) for t in _targets(function, last)]
        if last.opcode in LEAVES:
            jumps.append(END)
        falls = None
        if last.opcode not in ("bra", "brx", *LEAVES) or last.guard is not None:
            falls = n + 1 if n + 1 < len(begins) else END
        blocks.append(Block(instructions, tuple(jumps), falls))
    return _without_bare_exits(blocks, function.entry)


def _targets(function: Function, last: Instruction) -> tuple[str, ...]:
    """Labels that a block's last instruction may branch to."""
    if last.opcode not in ("bra", "brx"):
        return ()
    operand = last.operands[-1] if last.operands else None
    if not isinstance(operand, Symbol):
        raise ParseError(f"line {last.line}: {last.mnemonic} needs a label")
    names = function.tables.get(operand.name, ()) if last.opcode == "brx" else (operand.name,)
    unknown = [name for name in names if name not in function.labels]
    if unknown or not names:
        raise ParseError(f"line {last.line}: there is no label {(unknown or [operand.name])[0]}")
    return names


def _without_bare_exits(blocks: list[Block], entry: bool) -> list[Block]:
    """Branches to a block that does nothing but end the thread end it themselves: the other lanes stay together."""
    bare = {
        n: END
        for n, b in enumerate(blocks)
        if len(b.instructions) == 1 and b.leaves and b.instructions[0].guard is None
        if entry or b.instructions[0].opcode == "exit"
    }
    same = {n: n for n in range(len(blocks))}
    return [b.moved(same | bare) if len(b.ways) > 1 else b for b in blocks]


class _Headers(NamedTuple):
    parents: dict[int, int]  # header -> header of the loop around it, or -1
    loop: dict[int, int]  # block -> header of its innermost loop


def _layout(blocks: list[Block]) -> tuple[list[int], _Headers]:
    """Reachable blocks in order; latches are appended to `blocks`."""
    headers = _Headers({}, {})
    edges = {n: list(b.targets) for n, b in enumerate(blocks)}
    reached = _reachable(edges, 0)

    def latch(header: int, sources: list[int]) -> int:
        number = len(blocks)
        blocks.append(Block((), (header,), None))
        for s in sources:
            blocks[s] = blocks[s].moved({t: number if t == header else t for t in blocks[s].ways})
        return number

    def arrange(nodes: set[int], entry: int, cut: int, parent: int) -> list[int]:
        """Nodes in order; edges to `cut`, the header of the loop they are, don't count."""
        inner = {n: [t for t in edges[n] if t in nodes and t != cut] for n in nodes}
        found: list[int] = []
        for component in _components(inner, entry):
            if len(component) == 1 and component[0] not in inner[component[0]]:
                headers.loop[component[0]] = parent
                found.append(component[0])
                continue
            members = set(component)
            header = component[0]
            headers.parents[header] = parent
            sources = [n for n in component if header in edges[n]]
            body = arrange(members, header, header, header)
            if len(sources) > 1 or body[-1] != sources[0]:
                body.append(latch(header, sources))
                headers.loop[body[-1]] = header
            found += body
        return found

    return arrange(reached, 0, -1, -1), headers


def _reachable(edges: Edges, start: int) -> set[int]:
    seen, todo = {start}, [start]
    while todo:
        for t in edges[todo.pop()]:
            if t not in seen:
                seen.add(t)
                todo.append(t)
    return seen


def _components(edges: Edges, entry: int) -> list[list[int]]:
    """Strongly connected components in topological order (Tarjan, without recursion), each by when it was reached.

    The first of a component is the block by which a walk from the entry came in: a loop's header.
    """
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in (entry, *edges):
        if root in index:
            continue
        work = [(root, iter(edges[root]))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            step = next(rest, None)
            if step is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    component = stack[at:]
                    del stack[at:]
                    on_stack.difference_update(component)
                    found.append(component)
            elif step not in index:
                index[step] = low[step] = len(index)
                stack.append(step)
                on_stack.add(step)
                work.append((step, iter(edges[step])))
            elif step in on_stack:
                low[node] = min(low[node], index[step])
    return found[::-1]


def _immediate(order: list[int], before: Edges, root: int) -> dict[int, int]:
    """Immediate dominators (Cooper, Harvey and Kennedy); `order` is a reverse post-order from the root."""
    rank = {n: i for i, n in enumerate(order)}
    idom = {root: root}
    changed = True
    while changed:
        changed = False
        for n in order:
            if n == root:
                continue
            known = [p for p in before[n] if p in idom]
            new = known[0]
            for p in known[1:]:
                while new != p:
                    while rank[new] > rank[p]:
                        new = idom[new]
                    while rank[p] > rank[new]:
                        p = idom[p]
            if idom.get(n) != new:
                idom[n] = new
                changed = True
    return idom


def _post_order(edges: Edges, root: int) -> list[int]:
    seen, found, work = {root}, [], [(root, iter(edges[root]))]
    while work:
        node, rest = work[-1]
        step = next(rest, None)
        if step is None:
            work.pop()
            found.append(node)
        elif step not in seen:
            seen.add(step)
            work.append((step, iter(edges[step])))
    return found


def _reversed(edges: Edges, nodes: Iterable[int]) -> dict[int, list[int]]:
    back: dict[int, list[int]] = {n: [] for n in nodes}
    for n, targets in edges.items():
        for t in targets:
            back[t].append(n)
    return back


def dominators(successors: Edges) -> dict[int, int]:
    """The immediate dominator of each block that can be reached from block 0, whose own is itself."""
    reached = _reachable(successors, 0) if successors else set()
    edges = {n: successors[n] for n in reached}
    return _immediate(_post_order(edges, 0)[::-1], _reversed(edges, edges), 0) if edges else {}


def _dominators(successors: Edges, end: int) -> tuple[int, ...]:
    found = dominators(successors)
    return tuple(found[n] for n in range(end))


def _post_dominators(successors: Edges, end: int) -> tuple[int, ...]:
    """Immediate post-dominators; what can't reach the end (an endless loop) is taken to lead there from everywhere."""
    edges = {n: list(ts) or [end] for n, ts in successors.items()} | {end: []}
    reaches = _reachable(_reversed(edges, edges), end)
    for n in edges.keys() - reaches:
        edges[n].append(end)
    back = _reversed(edges, edges)
    idom = _immediate(_post_order(back, end)[::-1], edges, end)
    return tuple(idom[n] for n in range(end))
