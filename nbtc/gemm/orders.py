"""The orders in which library kernels sum over K: chains of instruction steps, and how their results are added.

An order is data: where K is cut into parts, how a part is dealt to chains, which elements a chain takes first.  `RULES`
names every kind of order that a recording shows, one row each.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from nbtc.errors import OptionError
from nbtc.errors import shown as quoted
from nbtc.gemm.tails import Tail

Segment = tuple[int, int]  # elements start..stop of K, padded with zeros to whole steps
Chain = tuple[Segment, ...]
T = TypeVar("T")
SHOWN = 6  # parts or steps that a picture shows before it says "..."


@dataclass(frozen=True)
class Order:
    """An order of summation over K.

    part: elements of a part of K (None: all of K).  parts: how many parts there must be.  group, ways: in every `group`
    elements the first group / ways go to one chain, the next to a second and so on.  residue: a chain takes its leading
    length mod `residue` elements first, as steps of their own.  step: K of the instruction, where it is not the default
    one.  unit: `parts` parts of whole units, the last ones a unit longer where there is a rest.  tail: the tiles of the
    result that these parts are of; the others are one chain.  fused: float32 multiply-adds without tensor cores, whose
    operands are not rounded first; element k of a part goes to lane k mod `lanes`, or each lane takes as many
    neighbours (`runs`); after every `each` elements of a part a lane adds its chain to its sum; a tree adds the lanes'
    sums, or one after the other (`serial`).  folded: as `_folded` says.  Each chain starts from zero; their results are
    added in ascending order in the accumulator type (floats to nearest even), those of units in pairs, c last.  An
    order of one chain starts from c.  evidence: where a library's order comes from.

    >>> order("split3x8").chains(20)
    (((0, 8),), ((8, 16),), ((16, 20),))
    """

    name: str
    part: int | None = None
    parts: int | None = None
    group: int | None = None
    ways: int = 1
    residue: int | None = None
    step: int | None = None
    unit: int | None = None
    tail: Tail | None = None
    fused: bool = False
    lanes: int = 1
    runs: bool = False
    serial: bool = False
    each: int | None = None
    folded: bool = False
    evidence: str = ""

    @property
    def one_chain(self) -> bool:
        """True where all of K is one chain, which then starts from c."""
        return self.part is None and self.group is None and self.unit is None and not self.fused

    @property
    def sequential(self) -> bool:
        """True where that chain also takes K in ascending order without a residue of its own."""
        return self.one_chain and self.residue is None

    @property
    def recorded(self) -> bool:
        """True where a recording of the library's own result shows this order for this shape."""
        return self.evidence.startswith("recorded")

    def check(self, k: int) -> None:
        """Raise OptionError where the order does not fit K."""
        if self.unit:
            units = max(1, -(-k // self.unit))
            if self.parts and self.parts > units:
                raise OptionError(
                    f"order={self.name!r} has {self.parts} parts, but K = {k} has {units} times {self.unit} elements: "
                    f'pass order="segment{units}x{self.unit}"'
                )
            return
        have = -(-k // self.part) if self.part else 1
        if self.parts is not None and have != self.parts:
            raise OptionError(
                f"order={self.name!r} has {self.parts} parts of {self.part} elements, but K = {k} makes {have} of "
                f'them: pass order=("split", {have}, {self.part}), or k_split={self.part} for any K'
            )

    def chains(self, k: int) -> tuple[Chain, ...]:
        """The segments of K that each chain takes, in the order it takes them.  Raises OptionError as `check`."""
        self.check(k)
        if self.unit and self.parts:
            each, rest = divmod(-(-k // self.unit), self.parts)
            ends = [each * n + max(0, n + rest - self.parts) for n in range(self.parts + 1)]
            return tuple(((self.unit * start, min(k, self.unit * stop)),) for start, stop in pairwise(ends))
        part = self.part or max(k, 1)
        cuts = [(start, min(k, start + part)) for start in range(0, k, part)] or [(0, 0)]
        return tuple(chain for cut in cuts for chain in self._within(*cut))

    def added(self, results: Iterable[T], add: Callable[[T, T], T]) -> T:
        """The sum of the chains' results: one after the other, or neighbours in pairs from the last one on.

        >>> order("segment3x32").added(["s0", "s1", "s2"], lambda x, y: f"({x} + {y})")
        '((s2 + s1) + s0)'
        """
        if self.folded:
            return reduce(add, (reduce(add, own) for own in _folded([*results], self.ways)))
        if not self.unit:
            return reduce(add, results)
        left = [*results][::-1]
        while len(left) > 1:
            left = [reduce(add, left[i : i + 2]) for i in range(0, len(left), 2)]
        return left[0]

    def lanes_text(self) -> str:
        """How fused multiply-adds are dealt, in words."""
        part = f" of every {self.part} elements" if self.part else ""
        anew = f", a new chain every {self.each}" if self.each else ""
        if self.lanes == 1:
            parts = f", a chain for each part{part}" if self.part else ""
            if self.group:
                how = ", the upper half added to the lower one first" * self.folded
                parts = f", {self.ways} chains that take {self.group // self.ways} elements in turn{how}"
            return f"d = fused multiply-adds in float32, one a step{parts}{anew}"
        which = "neighbours" if self.runs else f"elements k, k + {self.lanes} ..."
        how = "one after the other" if self.serial else "as a tree, the upper half to the lower one"
        return f"d = fused multiply-adds in float32: {self.lanes} lanes{part}{anew}, each of {which}, added {how}"

    def _within(self, start: int, stop: int) -> list[Chain]:
        """The chains of one part."""
        if self.group:
            width = self.group // self.ways
            firsts = range(start, min(stop, start + self.group), width)
            return [tuple((g, min(stop, g + width)) for g in range(f, stop, self.group)) for f in firsts]
        leading = (stop - start) % self.residue if self.residue else 0
        if leading and leading < stop - start:
            return [((start, start + leading), (start + leading, stop))]
        return [((start, stop),)]

    def steps(self, k: int, step: int) -> int:
        """Instruction steps of one output."""
        return sum(-(-(stop - start) // step) for chain in self.chains(k) for start, stop in chain)

    def tree(self, k: int, step: int = 16) -> str:
        """The summation tree of one output over K elements, in steps of the instruction's K, as text.

        >>> print(order("slice64/2").tree(128, step=32))
        slice64/2, K = 128, steps of 32
        d = s0 + s1
        s0 = [0..31] -> [64..95]
        s1 = [32..63] -> [96..127]
        """
        chains = self.chains(k)
        names = [f"s{i}" for i in range(len(chains) if self.unit else min(len(chains), SHOWN))]
        total = self.added(names, lambda x, y: f"({x} + {y})")
        total = total[1:-1] if len(names) > 1 else total
        if self.unit:
            where = f" in the last {self.tail.count} tiles, one chain elsewhere" if self.tail else ""
            return "\n".join([f"{self.name}, K = {k}, steps of {step}", f"d = {total}{where}", *_shown(chains, step)])
        if self.fused:
            return "\n".join([f"{self.name}, K = {k}", self.lanes_text()])
        more = f" + ... + s{len(chains) - 1}" if len(chains) > SHOWN else ""
        lines = [f"{self.name}, K = {k}, steps of {step}", f"d = {total}{more}"]
        return "\n".join([*lines, *_shown(chains, step)])


def _folded(results: list[T], ways: int) -> list[list[T]]:
    """Chains' results that are added first: of the lower half each but the last with one of the upper half, the first
    with the very last one too.  Chains that got no elements have no result.

    >>> _folded(["s0", "s1", "s2", "s3", "s4", "s5"], 6)
    [['s0', 's3', 's5'], ['s1', 's4'], ['s2']]
    """
    half = -(-ways // 2)
    pairs = max(1, ways - 1 - half)
    groups = [[lower, *range(half + lower, ways, pairs)] for lower in range(pairs)]
    groups += [[lower] for lower in range(pairs, half)]
    kept = ([results[i] for i in group if i < len(results)] for group in groups)
    return [own for own in kept if own]


def _shown(chains: Sequence[Chain], step: int) -> Iterator[str]:
    """A line for each of the first chains: the elements of its steps."""
    for i, chain in enumerate(chains[:SHOWN]):
        every = [(s, min(s + step, stop) - 1) for start, stop in chain for s in range(start, stop, step)]
        shown = [f"[{s}..{e}]" for s, e in every[:SHOWN]] + (["..."] if len(every) > SHOWN else [])
        yield f"s{i} = {' -> '.join(shown) or '0'}"


@dataclass(frozen=True)
class Rule:
    """A kind of order: how it is written (numbers and words in groups of the pattern), its fields, what it means."""

    pattern: str
    example: str
    fields: Callable[..., dict[str, Any]]
    meaning: str


RULES = (
    Rule("seq", "seq", dict, "one chain in ascending k"),
    Rule(
        r"split(\d+)x(\d+)",
        "split12x4",
        lambda parts, part: {"parts": parts, "part": part},
        "a new chain every so many elements of K, the parts added in ascending order (split-K)",
    ),
    Rule(
        r"promote(\d+)",
        "promote128",
        lambda part: {"part": part},
        "a new chain every 128 elements of K, the parts added in float32: fp8 without fast accumulation",
    ),
    Rule(
        r"segment(\d+)x(\d+)",
        "segment4x32",
        lambda parts, unit: {"parts": parts, "unit": unit},
        "so many parts of whole 32 elements, the last ones the longer, added in pairs (segment-K)",
    ),
    Rule(
        r"last(\d+)of(\d+)x(\d+)by(\d+)x(\d+)(rows|columns)(\d+)",
        "segment2x32:last48of256x128by1x2rows8",
        lambda count, rows, columns, high, wide, axis, band: {
            "tail": Tail(count, (rows, columns), (high, wide), axis, band)
        },
        "segments only of the last so many tiles, in clusters, which are taken in bands of rows or columns",
    ),
    Rule("fma", "fma:lanes16", lambda: {"fused": True}, "fused multiply-adds in float32, without tensor cores"),
    Rule(
        r"each(\d+)",
        "fma:lanes16serial:each512",
        lambda each: {"each": each},
        "a lane starts a new chain every so many elements of K",
    ),
    Rule(
        r"(lanes|runs)(\d+)(serial)?",
        "fma:lanes16",
        lambda word, count, serial: {"lanes": count, "runs": word == "runs", "serial": serial is not None},
        "every 16th element goes to the same lane (runs: neighbours do), and the lanes' sums are a tree",
    ),
    Rule("promo4", "promo4", lambda: {"part": 128}, "promote128, counted in steps of 32"),
    Rule(
        r"slice(\d+)/(\d+)",
        "slice64/2",
        lambda group, ways: {"group": group, "ways": ways},
        "in every 64 of K the first 32 go to one chain and the others to a second, which are then added (sliced K)",
    ),
    Rule(
        "folded",
        "fma:slice40/5:folded",
        lambda: {"folded": True},
        "the upper half of the slices' chains is added to the lower one before those are added",
    ),
    Rule(
        r"resfirst(\d+)",
        "resfirst16",
        lambda multiple: {"residue": multiple},
        "one chain that takes the K mod 16 leading elements first, as one padded step",
    ),
)
_WRITTEN = ", ".join(repr(example) for example in dict.fromkeys(rule.example for rule in RULES))


def order(spec: object) -> Order:
    """The order of summation that a name or tuple means.

    spec: an `Order`; a name such as "seq", "promote128", "split12x4", "slice64/2" or "resfirst16", two of them joined
    by a colon ("split2x72:resfirst16": the residue first inside each part), with "k8:" in front for an instruction with
    that K; or a tuple ("split", parts, elements), ("slice", elements, ways), ("resfirst", multiple).
    Raises OptionError for anything else.

    >>> order(("split", 4, 128)).name, order("k8:split9x16").step
    ('split4x128', 8)
    """
    if isinstance(spec, Order):
        return spec
    text = _tuple_name(spec) if isinstance(spec, tuple) else spec
    if not isinstance(text, str):
        raise _unknown(spec)
    made = Order(text)
    for word in text.split(":"):
        made = replace(made, **_fields(word, spec))
    if (made.tail and not made.unit) or ((made.lanes > 1 or made.each) and not made.fused):
        raise OptionError(
            f'order={spec!r}: "last..." says which tiles have segments and lanes are of fused multiply-adds; '
            'order="segment2x32:last48of256x128by1x2rows8" and "fma:lanes16" work'
        )
    if made.fused and (made.unit or made.residue or made.step or (made.group and made.lanes > 1)):
        raise OptionError(
            f"order={spec!r}: fused multiply-adds are dealt to parts, slices or lanes; "
            'order="fma:split4x128", "fma:slice64/8" and "fma:lanes16" work'
        )
    if made.folded and not (made.fused and made.group):
        raise OptionError(f'order={spec!r}: slices of fused multiply-adds are folded; "fma:slice40/5:folded" works')
    if made.unit and (made.part or made.group or made.residue):
        raise OptionError(f'order={spec!r}: segments are cut no further; order="segment4x32" works')
    if made.group and (made.residue or made.group % made.ways):
        raise OptionError(
            f"order={spec!r}: a slice deals whole elements to its chains and takes no residue first; "
            'order="slice64/2" works'
        )
    return made


def _tuple_name(spec: tuple[Any, ...]) -> str:
    kind, *numbers = spec or ("",)
    if not all(isinstance(n, int | np.integer) and not isinstance(n, bool) for n in numbers):
        raise _unknown(spec)
    between = {"split": "x", "slice": "/"}.get(kind, "")
    return f"{kind}{between.join(str(n) for n in numbers)}"


def _fields(word: str, spec: object) -> dict[str, Any]:
    """What one word of a name says."""
    if found := re.fullmatch(r"k([1-9]\d*)", word):
        return {"step": int(found[1])}
    for rule in RULES:
        if found := re.fullmatch(rule.pattern, word):
            values = [int(g) if g and g.isdigit() else g for g in found.groups()]
            if 0 in values:
                break
            return rule.fields(*values)
    raise _unknown(spec)


def _unknown(spec: object) -> OptionError:
    return OptionError(
        f'order={quoted(spec)} names no order of summation: pass one such as {_WRITTEN}, ("split", '
        "parts, elements), two "
        'joined by ":" as in "split2x72:resfirst16", or what nbtc.library(...).order(...) returns'
    )


def every(part: int) -> Order:
    """The order of k_split: a new chain every so many elements, for any K."""
    return Order(f"every{part}", part=part)
