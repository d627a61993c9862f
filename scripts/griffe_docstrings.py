"""An extension of griffe, which reads docstrings for mkdocstrings: examples become blocks of Python code, brackets in
prose stay brackets, and functions that a factory makes have the signature and docstring that they have in Python."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)  # to the next empty line
CODE_OR_BRACKET = re.compile(r"```.*?```|`[^`\n]*`|\[(?![^\[\]\n]*\]\()", re.DOTALL)
SENTENCE = re.compile(r"(?<=[.!)]) {1,2}(?=(?:Returns?|Raises) )")
MADE = ("nbtc.dialect.language", "nbtc.dpx", "nbtc.warp")  # modules with functions that a factory makes


def fenced(text: str) -> str:
    """A docstring with its examples in fences.

    >>> fenced("One.\\n\\n>>> 1\\n1\\n")
    'One.\\n\\n```pycon\\n>>> 1\\n1\\n```\\n'
    """
    return EXAMPLE.sub(lambda found: f"```pycon\n{found.group().rstrip()}\n```\n", text)


def plain_brackets(text: str) -> str:
    """Brackets of prose, which Markdown would read as links, escaped; those of code and of links with an address stay.

    >>> print(plain_brackets("element [2t][g] of `x[i][j]`, see [there](page.md)"))
    element \\[2t]\\[g] of `x[i][j]`, see [there](page.md)
    """
    return CODE_OR_BRACKET.sub(lambda found: r"\[" if found.group() == "[" else found.group(), text)


def listed(text: str, names: Sequence[str]) -> str:
    """Paragraphs of the form "name: what it is. other: what that is." as lists, where these are parameters' names; what
    a function returns and raises begins a paragraph.

    >>> print(listed("Add.\\n\\nx, y: numbers. z: one\\nmore. Raises ValueError: never.", ["x", "y", "z"]))
    Add.
    <BLANKLINE>
    * **x, y**: numbers.
    * **z**: one more.
    <BLANKLINE>
    Raises ValueError: never.
    """
    if not names:
        return text
    one = "|".join(map(re.escape, names))
    start = re.compile(rf"(?:^|(?<=[.)]) +)((?:{one})(?:, (?:{one}))*): ")
    return "\n\n".join(_listed(p, start) for part in text.split("\n\n") for p in SENTENCE.split(_one_line(part)))


def _one_line(paragraph: str) -> str:
    code = paragraph.lstrip().startswith(("```", ">>>", "*", "-", "|", " "))
    return paragraph if code else " ".join(paragraph.split("\n"))


def _listed(paragraph: str, start: re.Pattern[str]) -> str:
    if paragraph.startswith("```") or not start.match(paragraph):
        return paragraph
    _, *parts = start.split(paragraph)
    return "\n".join(f"* **{name}**: {text.strip()}" for name, text in zip(parts[::2], parts[1::2], strict=True))


class Docstrings(griffe.Extension):
    """Rewrites the docstring of every object as it is read."""

    def on_instance(self, *, obj: Any, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = pretty(obj.docstring.value, names_of(obj))

    def on_module_members(self, *, mod: griffe.Module, **more: Any) -> None:
        if mod.path not in MADE:
            return
        there = import_module(mod.path)
        for name, member in list(mod.members.items()):
            made = getattr(there, name, None)
            if isinstance(member, griffe.Attribute) and not name.startswith("_") and inspect.isfunction(made):
                mod.set_member(name, function(name, made, member.lineno))


def pretty(text: str, names: Sequence[str] = ()) -> str:
    """A docstring as the reference shows it."""
    parts = re.split(r"(```pycon\n.*?```\n)", fenced(text), flags=re.DOTALL)
    return "".join(part if part.startswith("```") else plain_brackets(listed(part, names)) for part in parts)


def names_of(x: Any) -> list[str]:
    """Names of what a function takes; a class is written before its `__init__` is read, so its fields are unknown."""
    return [p.name for p in x.parameters] if isinstance(x, griffe.Function) else []


def function(name: str, made: Any, line: int | None) -> griffe.Function:
    """What griffe would have read, had the function been written out."""
    parameters = [
        griffe.Parameter(
            p.name,
            kind=griffe.ParameterKind[p.kind.name.lower()],
            annotation=None if p.annotation is p.empty else str(p.annotation),
            default=None if p.default is p.empty else repr(p.default),
        )
        for p in inspect.signature(made).parameters.values()
    ]
    text = pretty(inspect.getdoc(made) or "", list(inspect.signature(made).parameters))
    return griffe.Function(
        name, parameters=griffe.Parameters(*parameters), docstring=griffe.Docstring(text), lineno=line, endlineno=line
    )
