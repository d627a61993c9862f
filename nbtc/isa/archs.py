"""One row per GPU architecture: its name, its order among the others, and whose recorded arithmetic it uses."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from nbtc.compiler.cache.added_rows import Rows
from nbtc.errors import ArchError, shown
from nbtc.isa.gpus import BY_KEY, CAPABILITIES, GPU, GPUS, key_of


@dataclass(frozen=True)
class Arch:
    """A compute architecture.

    name: "sm_90".  number: 90, the order in which features appear.  numerics: the architecture whose numerics rows it
    uses.  validated: recordings of this very architecture (or published vectors of it) back those rows.  suffixes: of
    the PTX targets beside the plain one: "a" has the forms of this architecture alone, "f" those of its family.
    """

    name: str
    number: int
    numerics: str
    validated: bool = True
    suffixes: str = ""


@dataclass(frozen=True)
class Target:
    """A PTX target, as `.target` names one: an architecture and the suffix, "a", "f" or ""."""

    arch: Arch
    suffix: str = ""

    def __str__(self) -> str:
        return self.arch.name + self.suffix


_ROWS = (
    Arch("sm_70", 70, "sm_70"),
    Arch("sm_72", 72, "sm_70", validated=False),
    Arch("sm_75", 75, "sm_75", validated=False),
    Arch("sm_80", 80, "sm_80"),
    Arch("sm_86", 86, "sm_80"),
    Arch("sm_87", 87, "sm_80", validated=False),
    Arch("sm_89", 89, "sm_89"),
    Arch("sm_90", 90, "sm_90", suffixes="a"),
    Arch("sm_100", 100, "sm_100", suffixes="af"),
    Arch("sm_103", 103, "sm_100", validated=False, suffixes="af"),
    Arch("sm_110", 110, "sm_100", validated=False, suffixes="af"),
    Arch("sm_120", 120, "sm_120", validated=False, suffixes="af"),
    Arch("sm_121", 121, "sm_120", validated=False, suffixes="af"),
)
ARCHS: Rows[str, Arch] = Rows("architectures", {a.name: a for a in _ROWS})


class ArchNames(tuple[str, ...]):
    """Names of architectures; `in` takes every spelling of one.

    >>> "sm_90a" in ArchNames(["sm_90"]), 90 in ArchNames(["sm_90"]), "sm_91" in ArchNames(["sm_90"])
    (True, True, False)
    """

    __slots__ = ()

    def __contains__(self, name: object) -> bool:
        try:
            return super().__contains__(arch(name).name)
        except ArchError:
            return False


def arch(name: object) -> Arch:
    """The row of an architecture named "sm_90", "sm_90a", "compute_90", "90", 90 or as a GPU: "H100", "RTX 4090".

    Case and spaces don't matter; all targets of an architecture, and all its GPUs, have the same arithmetic.

    >>> arch("sm_90a").name, arch(90).name, arch("h200").name, arch("RTX 4090").name
    ('sm_90', 'sm_90', 'sm_90', 'sm_89')
    """
    return name if isinstance(name, Arch) else target(name).arch


def of_target(target: str) -> Arch:
    """The architecture that a text is for: what `.target` says, or the oldest there is where that is older.

    Targets from before there were tensor cores, such as "sm_52", are what older compilers write unless told otherwise;
    what such a text can say is the same on all architectures.
    """
    if re.fullmatch(r"sm_[2-6]\d", target):
        return min(ARCHS.values(), key=lambda a: a.number)
    return arch(target)


def gpu(name: object) -> GPU:
    """The GPU that an `arch=` names; an architecture stands for the first of its GPUs: "sm_90" for an H100 SXM.

    >>> gpu("sm_90").name, gpu("H200").multiprocessors, gpu("A100 40GB").capability.shared_block_optin
    ('NVIDIA H100 80GB HBM3', 132, 166912)
    """
    if isinstance(name, GPU):
        return name
    found = BY_KEY.get(key_of(name)) if isinstance(name, str) else None
    if found is not None:
        return found
    row = arch(name)
    for candidate in GPUS:
        if candidate.arch == row.name:
            return candidate
    raise ArchError(f"arch={shown(name)}: no GPU of {row.name} is described; known: {', '.join(g.name for g in GPUS)}")


def target(name: object) -> Target:
    """The PTX target of that name: which forms it may contain depends on the suffix (`Row.legal_on`).

    A GPU's name stands for the target with all forms of its architecture.

    >>> str(target("sm_120f")), target("sm_120a").arch.number, str(target("H100"))
    ('sm_120f', 120, 'sm_90a')
    """
    if isinstance(name, bool) or not isinstance(name, int | str):
        raise ArchError(f'arch={shown(name)} is not an architecture: pass one such as "sm_90" or 90; known: {_known()}')
    text = name if isinstance(name, str) else f"{name:d}" if 0 <= name < 10**6 else ""
    found = _targets().get(text)
    return found if found and ARCHS.get(found.arch.name) is found.arch else _named(text, name)


def _known() -> str:
    return ", ".join(ARCHS)


@cache
def _targets() -> dict[str, Target]:
    """Every target by its name, with and without the first letters."""
    every = [Target(row, suffix) for row in ARCHS.values() for suffix in ("", *row.suffixes)]
    return {str(t)[start:]: t for t in every for start in (0, len("sm_"))}


def _named(text: str, name: object) -> Target:
    """A target in a less usual spelling, of a GPU or of a table that has changed since; or what is wrong with it."""
    key = key_of(text)
    if key in BY_KEY:
        row = ARCHS[BY_KEY[key].arch]
        return Target(row, row.suffixes[:1])
    match = re.fullmatch(r"(?:sm|compute)?(\d+)([af]?)", key)
    found = ARCHS.get(f"sm_{match.group(1)}") if match else None
    if match is None or found is None:
        gpus = ", ".join(shown(g.aliases[0] if g.aliases else g.name) for g in GPUS)
        raise ArchError(
            f"arch={shown(name)} is not an architecture nbtc knows; known: {_known()}, and the GPUs {gpus}. "
            'Try arch="sm_90".'
        )
    suffix = match.group(2)
    if suffix not in found.suffixes:
        have = ", ".join(found.name + s for s in ("", *found.suffixes))
        raise ArchError(f"arch={text!r} is not a target: {found.name} has no suffix {suffix!r}; its targets are {have}")
    return Target(found, suffix)


if not CAPABILITIES.keys() == ARCHS.keys():
    raise ValueError(f"architectures without limits: {ARCHS.keys() ^ CAPABILITIES.keys()}")
