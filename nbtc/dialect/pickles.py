"""Kernels and device functions for other processes: by name, as Python's functions are, or with their code.

`multiprocessing`, dask and joblib send what they run as pickles.  The code of a function that the other process can't
import, one of a notebook, a script or another function, goes with it, by Numba's serializer (its own copy of
cloudpickle), which Numba's compiled functions are sent by too.
"""

from __future__ import annotations

import sys
from typing import Any

from numba.core.serialize import dumps, loads


def reduced(decorated: Any, *taken: Any) -> str | tuple[Any, ...]:
    """What `__reduce__` returns.  taken: what the class takes after the function."""
    function = decorated.function
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is decorated and function.__module__ != "__main__":  # another process has another `__main__`
        return str(function.__qualname__)
    return _restored, (type(decorated), dumps(function), *taken)


def _restored(kind: Any, function: bytes, *taken: Any) -> Any:
    return kind(loads(function), *taken)
