"""Every error and warning nbtc raises: one taxonomy, one file.

All of them subclass the built-in a caller would already catch (`ValueError` for a wrong value, `TypeError` for a wrong
kind of object), so `except ValueError` keeps working.  A message says what was given, the rule it breaks, and what
would work.
"""

from __future__ import annotations

import difflib
import operator
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path

_INSIDE = str(Path(__file__).parent)


class NbtcError(Exception):
    """Base of everything nbtc raises on purpose."""


class ShapeError(NbtcError, ValueError):
    """Array shapes that do not fit together, or do not fit the instruction."""


class FormatError(NbtcError, TypeError):
    """A dtype or number format that the operation does not take."""


class RangeError(NbtcError, ValueError):
    """A value outside the range of its format, immediate or field."""


class AlignmentError(NbtcError, ValueError):
    """An address, offset or leading dimension that breaks an alignment rule."""


class BoundsError(NbtcError, ValueError):
    """An access that would leave the memory it was given."""


class ArchError(NbtcError, ValueError):
    """An architecture nbtc does not know."""


class OptionError(NbtcError, ValueError):
    """A keyword or immediate operand with a value that is not legal here."""


class ParseError(NbtcError, ValueError):
    """Text that is not a legal PTX form; the message names the nearest legal one."""


class SourceError(NbtcError, FileNotFoundError):
    """A string that is neither the text of a program nor the path of a file that can be read."""


class UnsupportedInstructionError(NbtcError, ValueError):
    """A legal form that the chosen architecture lacks, or whose arithmetic nobody has recorded."""


class UnsupportedOperationError(NbtcError, NotImplementedError):
    """An operation of a model, or a form of one, that compiled models do not have; the message says what works."""


class DescriptorError(NbtcError, ValueError):
    """A wgmma matrix descriptor with an illegal field."""


class MetadataError(NbtcError, ValueError):
    """Sparsity metadata or a selector outside the legal set."""


class RecordingError(NbtcError, ValueError):
    """A file of recordings that cannot be read, or whose arrays do not fit their instruction."""


class LayoutError(NbtcError, ValueError):
    """A register image that is laid out for another architecture than the one that reads it."""


class HazardError(NbtcError, RuntimeError):
    """A program that breaks the ordering rules of an asynchronous instruction."""


class CompilerError(NbtcError, RuntimeError):
    """Compilation is needed but switched off, or a function is called from where it does not work: one of kernels from
    Python, or one of Python from a compiled function."""


class KernelError(NbtcError, TypeError):
    """A kernel in Python that can't be compiled; the message names its line."""


class ProgramError(NbtcError, RuntimeError):
    """A PTX program that can't run, or that did something that no program may do; the message names the place.

    kind: what the launch found, such as "LOAD_BOUNDS" or "ASSERT"; empty if it was found before or after it ran.
    title: the same in words ("data race").  places: file and line of the source, if the text has them, of what went
    wrong, then of the earlier access that it conflicts with.
    """

    def __init__(
        self, message: str = "", kind: str = "", title: str = "", places: Iterable[tuple[str, int]] = ()
    ) -> None:
        super().__init__(message)
        self.kind: str = kind
        self.title: str = title
        self.places: tuple[tuple[str, int], ...] = tuple(places)


class IllegalProgramError(ParseError, ProgramError):
    """PTX text that ptxas refuses: operand types, undeclared names, instructions newer than `.target` or `.version`."""


class DeviceError(NbtcError, RuntimeError):
    """A GPU or its driver is needed but missing, or the driver refuses what it was asked."""


class GoldenMismatch(NbtcError, AssertionError):
    """Two arrays whose bits differ (raised by `nbtc.testing`)."""


class NbtcWarning(UserWarning):
    """Base of nbtc's warnings."""


class UnvalidatedModelWarning(NbtcWarning):
    """A numerics model that no hardware recording backs was used (once for each model and architecture)."""


class UntestedVersionWarning(NbtcWarning):
    """A tool has a version that nbtc was not tested with: private names that nbtc uses may have moved."""


class UncompiledWarning(NbtcWarning):
    """A part of a compiled model runs outside its compiled graphs, with the CPU's bits."""


class GuessedOrderWarning(NbtcWarning):
    """The order in which a library sums was guessed, because nobody has recorded it for this shape."""


def whole_number(x: object) -> int | None:
    """`x` as a Python integer, in whose arithmetic nothing wraps around; None for what is not an integer.

    >>> whole_number(5), whole_number(True), whole_number(5.0)
    (5, None, None)
    """
    if isinstance(x, bool) or not hasattr(x, "__index__"):
        return None
    try:
        return operator.index(x)  # arrays have an index if they hold one integer
    except TypeError:
        return None


def shown(x: object, most: int = 90) -> str:
    """`repr(x)` as a message quotes it: in one line, and cut where it is long.

    >>> shown("abc" * 500, 20), shown(10**5000)
    ("'abcabcabcabcabca...", 'an integer of 16610 bits')
    """
    if isinstance(x, int) and x.bit_length() > 300:  # Python refuses to write very long ones
        return f"an integer of {x.bit_length()} bits"
    text = " ".join((repr(x[: 2 * most]) if isinstance(x, str) else repr(x)).split())
    return text if len(text) <= most else text[: most - 3] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: the nearest one, however its words are joined."""
    bare = {word.replace("_", "").lower(): word for word in known}  # CUDA's threadIdx is thread_idx here
    near = difflib.get_close_matches(name.replace("_", "").lower(), bare, 1, 0.75)
    return f": did you mean {bare[near[0]]}?" if near else ""


class MissingExtraError(NbtcError, ImportError):
    """A package that an optional part of nbtc needs is not installed."""


class RechunkWarning(NbtcWarning):
    """Chunks of a dask array do not end at whole instruction steps and are copied into other chunks."""


def warn(text: str, category: type[Warning]) -> None:
    """A warning that points at the line which called nbtc, however deep inside it arises."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
