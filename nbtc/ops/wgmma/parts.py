"""Parts of warpgroup products as machine code of their own: each is compiled once, whatever forms it serves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from nbtc.compiler.builder import VectorBuilder
from nbtc.compiler.cache.sources import source_digest
from nbtc.compiler.cpu import lowering
from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.machine_code.emitted import Emitted, Named, machine_code
from nbtc.compiler.machine_code.native import Loaded

_LOADED: list[Loaded] = []  # for the life of the process: callers hold the addresses
_stamp = cache(source_digest)


def part(file: str, arguments: type, write: Callable[[VectorBuilder, Named], Any], *key: object) -> int:
    """The address of what `write` emits for `arguments`; file and key: where it is written, and all it depends on."""
    texts = _stamp(Path(file).resolve()), arguments.__name__, *map(str, key), str(lowering.host())
    loaded = in_default_float_mode(machine_code)({"part": Emitted(arguments, write)}, *texts)
    _LOADED.append(loaded)
    return loaded.address("part")
