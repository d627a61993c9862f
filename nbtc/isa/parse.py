"""Mnemonics and PTX lines <-> rows: the one place that reads instruction text, and the registry of all rows.

Families are built when first needed.  `row` reads a mnemonic or a whole line, in any spelling the assembler takes;
`rows` lists what matches; `register` adds a row at run time.
"""

from __future__ import annotations

import difflib
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np

from nbtc.compiler.cache.added_rows import record
from nbtc.errors import OptionError, ParseError, UnsupportedInstructionError, shown
from nbtc.isa import cvt, dpx, lines, mma, mma_sp, move, tcgen05, warp, wgmma, wmma
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.lines import Line
from nbtc.isa.spec import Row

Key = tuple[str, ...]

_BUILDERS: dict[str, Callable[[], Iterable[Row]]] = {
    "mma": mma.rows,
    "mma.sp": mma_sp.rows,
    "wmma.load": wmma.loads,
    "wmma.mma": wmma.products,
    "wmma.store": wmma.stores,
    "ldmatrix": move.loads,
    "stmatrix": move.stores,
    "movmatrix": move.transposes,
    "wgmma.mma_async": wgmma.rows,
    "wgmma.mma_async.sp": wgmma.sparse_rows,
    "tcgen05.mma": tcgen05.rows,
    "cvt": cvt.rows,
    "dpx": dpx.rows,
    **{family: partial(warp.rows, family) for family in warp.FAMILIES},
}
# first words of a mnemonic -> family; the longest that fits decides
_HEADS: dict[str, str] = {
    **{f: f for f in _BUILDERS if f != "dpx"},
    mma_sp.ORDERED: "mma.sp",
    "match": "match.sync",
    "vote": "vote.sync",
    "wgmma": "wgmma.sync",
    "wmma": "wmma.mma",
    **dict.fromkeys(("min", "max", "add"), "dpx"),
}
FREE_ORDER = ("mma", "mma.sp", "wmma.load", "wmma.mma", "wmma.store", "wgmma.mma_async", "wgmma.mma_async.sp")
SPACES = {"wmma.load": ("global", "shared", "shared::cta"), "ldmatrix": ("shared", "shared::cta")}
SPACES["wmma.store"], SPACES["stmatrix"] = SPACES["wmma.load"], SPACES["ldmatrix"]

_SHAPE = re.compile(r"m\d{1,4}n\d{1,4}(k\d{1,4})?")
_TYPE = re.compile(r"(b|s|u|f|bf|tf)\d+(x\d+)?|u?e\dm\d(x2)?")
_AFTER = ("satfinite", "rn", "rz", "rm", "rp")
EXAMPLE = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
LISTED = 6  # differing words that a message lists
LONGEST = 200  # letters of a name that are compared with others: no mnemonic is longer
NEAR = 0.6  # names that have less in common are not worth suggesting
_added: list[Row] = []
_building = threading.RLock()


def row(text: str) -> Row:
    """The row that a mnemonic, or a whole PTX line, names.

    Spellings: shape before or after the layouts, without .aligned, .satfinite or a rounding before or after the types,
    with a state space.  A whole line ("... {d0, d1}, {a0}, ...;") is checked for operand counts, register counts and
    immediates too.  Raises ParseError, which names the nearest legal form, for anything the assembler rejects.

    >>> row("mma.sync.row.col.m16n8k8.f32.f16.f16.f32").mnemonic
    'mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32'
    """
    if not isinstance(text, str):
        raise ParseError(
            f"{shown(text)} is not text: pass a PTX line, or a mnemonic such as "
            '"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"'
        )
    return _row(text)


@lru_cache(maxsize=8192)
def _row(text: str) -> Row:
    return line(text).row


@lru_cache(maxsize=8192)
def line(text: str, version: str = "9.0") -> Line:
    """A mnemonic or whole PTX line with its operands, guard and row; errors as `row`.

    version: of the PTX ISA that a whole line is read by.
    """
    guard, name, rest = lines.split(text)
    found = mnemonic(name)
    if rest is not None and _number(found.version) > _number(version):
        raise ParseError(
            f"{name!r} is a form of PTX ISA {found.version}, but whole lines are read as version {version} has them: "
            "name it by its mnemonic alone, without operands"
        )
    return Line(found, guard, () if rest is None else lines.match(found, rest))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(v) for v in version.split(".") if v)


@lru_cache(maxsize=8192)
def mnemonic(name: str) -> Row:
    """The row a mnemonic (no operands) names; errors as `row`."""
    words = tuple(name.split("."))
    family = _family(name)
    key = _key(words, family)
    found = _index(family).get(key) if key else None
    if found is None or ("aligned" in words and ".aligned" not in found.mnemonic):
        raise ParseError(_explain(name, words, family))
    return found


def _family(name: str) -> str:
    fitting = [h for h in _HEADS if name == h or name.startswith((h + ".", h + "::"))]
    if fitting:
        return _HEADS[max(fitting, key=len)]
    first = name[:LONGEST].split(".")[0]
    kin = sorted(h for h in _HEADS if h.split(".")[0] == first)
    if kin:
        form = next(iter(_family_rows(_HEADS[kin[0]]))).mnemonic
        raise ParseError(
            f"{shown(name)} is not an instruction nbtc has: of {first} it has {', '.join(kin)} alone, such as {form!r}"
        )
    firsts = difflib.get_close_matches(first, sorted({h.split(".")[0] for h in _HEADS}), 3)
    families = {f for h, f in _HEADS.items() if h.split(".")[0] in firsts}
    near = max((nearest(name, f).mnemonic for f in sorted(families)), key=lambda x: _alike(name, x), default="")
    hint = f"Nearest: {near!r}" if _alike(name, near) > NEAR else f"None is near it; one form is {EXAMPLE!r}"
    raise ParseError(f"{shown(name)} is not an instruction nbtc has; it knows {', '.join(sorted(_BUILDERS))}. {hint}")


def _alike(name: str, near: str) -> float:
    """How much of two names is the same, from 0 to 1."""
    return difflib.SequenceMatcher(None, name[:LONGEST], near).ratio()


@lru_cache(maxsize=8192)  # the thousands of forms have a hundred words
def _kind(word: str) -> str:
    """What a word is to `_key`, if anything."""
    if word in ("row", "col", *_AFTER):
        return "after" if word in _AFTER else "layout"
    return "type" if _TYPE.fullmatch(word) else "shape" if _SHAPE.fullmatch(word) else ""


def _key(words: Key, family: str) -> Key:
    """What spellings of one form have in common; () when the order of words is not one the assembler takes."""
    words = tuple(w for w in words if w != "aligned" and w not in SPACES.get(family, ()))
    if family not in FREE_ORDER:
        return _sorted_run(words)
    kinds = list(map(_kind, words))
    types = [i for i, kind in enumerate(kinds) if kind == "type"]
    if not types or types[-1] - types[0] >= len(types):
        return ()
    first, last = types[0], types[-1]
    shapes, layouts, moved, rest = list[str](), list[str](), list[str](), list[str]()
    for i, (w, kind) in enumerate(zip(words, kinds, strict=True)):
        if kind in ("shape", "layout"):
            (layouts if kind == "layout" else shapes).append(w)
            if i > first:
                return ()
        elif kind == "after":
            moved.append(w)
            if not (i == first - 1 or i > last):
                return ()
        else:
            rest.append(w)
    return (*rest, "|", *shapes, *layouts, *moved)


def _sorted_run(words: Key) -> Key:
    """.relu and .satfinite may swap places."""
    found = list(words)
    for i in range(len(found) - 1):
        if {found[i], found[i + 1]} == {"relu", "satfinite"}:
            found[i : i + 2] = ["relu", "satfinite"]
    return tuple(found)


def _family_rows(family: str) -> tuple[Row, ...]:
    with _building:  # rows are compared by identity: two threads must not build a family each
        return _built(family)


@cache
def _built(family: str) -> tuple[Row, ...]:
    return (*_BUILDERS[family](), *(r for r in _added if r.family == family))


@cache
def _index(family: str) -> dict[Key, Row]:
    return {_key(tuple(r.mnemonic.split(".")), family): r for r in _family_rows(family)}


def nearest(name: str, family: str) -> Row:
    """The row of a family whose words have most in common with `name`."""
    words, size = Counter(_words(name)), _SHAPE.search(name)

    def score(r: Row) -> float:
        have = _words(r.mnemonic)
        return 2 * sum((words & Counter(have)).values()) - len(have) + _closeness(size and size.group(), r)

    best = sorted(_family_rows(family), key=score, reverse=True)[:6]
    return max(best, key=lambda r: (score(r), _alike(name, r.mnemonic)))


def _closeness(given: str | None, r: Row) -> float:
    """A row of the same shape is nearer than one of another, and of those one with a close n."""
    found = _SHAPE.search(r.mnemonic)
    if given is None or found is None:
        return 0.0
    if given == found.group():
        return 3.0
    (m, n, k), (rm, rn, rk) = ([*map(int, re.findall(r"\d+", s)), 0][:3] for s in (given, found.group()))
    return 1.0 - abs(n - rn) / 512 if (m, k) == (rm, rk) else 0.0


def _words(name: str) -> list[str]:
    return name.replace("aligned.", "").split(".")


def _explain(name: str, words: Key, family: str) -> str:
    near = nearest(name, family)
    if len(set(words) & set(near.mnemonic.split("."))) < 2 and _alike(name, near.mnemonic) < NEAR:
        return (
            f"{shown(name)} is not a legal form of {family}, nor near one; a form of it is {near.mnemonic!r}, and "
            f"`nbtc list --family {family}` shows all"
        )
    have, want = Counter(words), Counter(near.mnemonic.split("."))
    extra, lacks = list((have - want).elements()), [w for w in (want - have).elements() if w != "aligned"]
    extra = extra[:LISTED]
    change = f"instead of {shown('.'.join(extra))} it has {'.'.join(lacks)!r}" if lacks and extra else ""
    change = change or (
        f"it has no {shown('.'.join(extra))}" if extra else f"it also has {'.'.join(lacks)!r}" if lacks else "order"
    )
    change = "its words come in this order" if change == "order" else change
    return f"{shown(name)} is not a legal form of {family}. Nearest legal form: {near.mnemonic!r} ({change})"


def rows(
    arch: object = None, family: str | None = None, a: object = None, b: object = None, c: object = None,
    d: object = None, shape: object = None, **more: object,
) -> tuple[Row, ...]:  # fmt: skip
    """The rows that match every criterion given.

    arch: an architecture that has the form.  family: its name, or the first words of several ("wgmma", "wmma").
    a, b, c, d: formats of operands.  shape: (m, n, k) or "m16n8k16".  Other fields of `Row` work too: sparse=True,
    executable=True, a_layout="row".
    """
    target, chosen = None if arch is None else arch_row(arch), _families(family)
    formats = {n: _format_name(x, n in "ab") for n, x in zip("abcd", (a, b, c, d), strict=True) if x is not None}
    size = _size(shape)
    unknown = [n for n in more if n not in Row.__dataclass_fields__]
    if unknown:
        raise OptionError(
            f"{unknown[0]!r} is nothing a row has; filter by arch, family, a, b, c, d, shape, sparse, ordered, "
            "saturate, rounding, op, executable, a_layout, b_layout, min_arch, unit"
        )
    from nbtc.formats.arrays import as_flag

    more = {n: as_flag(x, n) if Row.__dataclass_fields__[n].type == "bool" else x for n, x in more.items()}
    return tuple(r for f in chosen for r in _family_rows(f) if _matches(r, target, formats, size, more))


def _families(name: object) -> list[str]:
    """The family of that name; else those whose names start with its words."""
    if name is None:
        return list(_BUILDERS)
    text = name if isinstance(name, str) else ""
    found = [f for f in _BUILDERS if f == text] or [f for f in _BUILDERS if f.startswith(f"{text}.")]
    if not found:
        near = difflib.get_close_matches(text[:LONGEST], list(_BUILDERS), 1)
        raise OptionError(
            f"family={shown(name)} does not exist: families are {', '.join(_BUILDERS)}, or the first words of them"
            + (f". Did you mean family={near[0]!r}?" if near else "")
        )
    return found


def _matches(r: Row, arch: Arch | None, formats: dict[str, str], size: object, more: dict[str, object]) -> bool:
    if arch is not None and not r.has(arch):
        return False
    if size is not None and r.shape != size:
        return False
    for name, fmt in formats.items():
        operand = getattr(r, name)
        if operand is None or operand.format.name != fmt:
            return False
    return all(getattr(r, name) == value for name, value in more.items())


def _format_name(x: object, multiplicand: bool) -> str:
    """The name of a format; a float32 multiplicand means tf32."""
    from nbtc.formats.arrays import as_format
    from nbtc.isa.spec import NEWER

    name = x if isinstance(x, str) and x in NEWER else as_format(x).name
    return "tf32" if multiplicand and name == "f32" else name


def _size(shape: object) -> object:
    if shape is None:
        return None
    found = re.fullmatch(r"m(\d{1,4})n(\d{1,4})k(\d{1,4})", shape) if isinstance(shape, str) else None
    if found:
        return tuple(int(v) for v in found.groups())
    if isinstance(shape, tuple | list) and len(shape) == 3:
        return tuple(shape)
    raise OptionError(f'shape={shown(shape)} is not a matrix shape: pass (16, 8, 16) or "m16n8k16" for m, n and k')


def families() -> tuple[str, ...]:
    """Names of all families."""
    return tuple(_BUILDERS)


def register(added: Row) -> None:
    """Add a row at run time: it then parses, lists and executes like the others.  (Not for use while others parse.)

    A row of an unknown family makes that family.  Raises ParseError when the form is there already.
    """
    if added.family not in _BUILDERS:
        _BUILDERS[added.family] = tuple
        _HEADS[added.family] = added.family
    key = _key(tuple(added.mnemonic.split(".")), added.family)
    if not key:
        raise ParseError(
            f"{added.mnemonic!r} would not parse: a mnemonic of {added.family} ends in types such as f32, bf16 or "
            "e4m3, which stand together, after shape and layouts; name a new format like them"
        )
    if key in _index(added.family):
        raise ParseError(
            f"{added.mnemonic!r} is already a row of {added.family} ({_index(added.family)[key].mnemonic!r}): give the "
            "new form another mnemonic, or remove the row first with nbtc.isa.parse.unregister"
        )
    _added.append(added)
    record("instructions", repr(added))
    _forget()


def unregister(added: Row) -> None:
    """Remove a row that `register` added."""
    _added.remove(added)
    record("instructions", f"{added.mnemonic} taken away")
    _forget()


def _forget() -> None:
    for cached in (_built, _index, mnemonic, _row, line):
        cached.cache_clear()


def refuse(r: Row) -> UnsupportedInstructionError:
    """The error for executing a row whose arithmetic nobody has published."""
    return UnsupportedInstructionError(
        f"no recorded arithmetic: {r.mnemonic} ({r.min_arch}) parses and lists, but no recording or published model "
        "says what it computes; nbtc.instructions(executable=True) lists the forms that run"
    )


def as_row(x: object) -> Row:
    """The row of a mnemonic, a row, or anything that carries one as `.row` (an `Instruction`)."""
    if isinstance(x, Row):
        return x
    carried = getattr(x, "row", None)
    return carried if isinstance(carried, Row) else row(x)  # type: ignore[arg-type]  # row() refuses what is no text


def immediates(source: object) -> dict[str, int]:
    """The immediates that a whole PTX line, or an `Instruction` made of one, gives its operands, by operand name."""
    if isinstance(source, str):
        return line(source).immediates
    return dict(getattr(source, "immediates", ()))


def immediate(source: object, name: str, given: Any, default: Any, argument: str = "") -> Any:
    """An operand that a line may hold: what the line says, else the argument given, else the default.

    Raises OptionError where an argument that is not None contradicts the line.
    """
    said = immediates(source).get(name)
    if said is None:
        return default if given is None else given
    if given is not None and not np.all(np.asarray(given) == said):
        raise OptionError(
            f"{argument or name}={shown(given)} contradicts the line, whose operand {name} is {said}: leave the "
            "argument out, or pass the mnemonic without operands"
        )
    return said
