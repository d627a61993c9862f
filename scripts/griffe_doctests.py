"""An extension of griffe, which reads docstrings for mkdocstrings: examples become blocks of Python code."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)  # to the next empty line


def fenced(text: str) -> str:
    """A docstring with its examples in fences.

    >>> print(fenced("One.\\n\\n>>> 1\\n1\\n"))
    One.
    <BLANKLINE>
    ```python
    >>> 1
    1
    ```
    <BLANKLINE>
    """
    return EXAMPLE.sub(lambda found: f"```python\n{found.group().rstrip()}\n```\n", text)


class Doctests(griffe.Extension):
    """Rewrites the docstring of every object as it is read."""

    def on_instance(self, *, obj: Any, **more: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = fenced(obj.docstring.value)
