"""Where in a model each generated kernel is from: "file:line"."""

from __future__ import annotations

import json
import os
import re
from hashlib import sha256
from pathlib import Path
from typing import Any

_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_COMMENT = re.compile(r"#\s+\S+ => (.+)")
_ASSIGNED = re.compile(r"(\w+) = async_compile\.triton\(")


def digest(graph: Any) -> str:
    """Of the lines that the nodes of Dynamo's graph are from: the same graph written elsewhere has another."""
    lines = "\n".join(_frame(node.meta.get("stack_trace")) for node in graph.graph.nodes)
    return sha256(lines.encode()).hexdigest()[:16]


def origins(path: str, lines: str, graph: Any) -> dict[str, str]:
    """The places of a wrapper's kernels.

    They are read from a graph and kept beside the wrapper, for processes that load it without making its graph again;
    lines: the model's, as `digest` gives them, which say whose places these are.
    """
    kept = Path(path).with_suffix(f".{lines}.json")
    if graph is not None:
        found = _read(Path(path).read_text(encoding="utf-8"), graph)
        written = kept.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(found), encoding="utf-8")
        os.replace(written, kept)
        return found
    return dict(json.loads(kept.read_text(encoding="utf-8"))) if kept.exists() else {}


def _read(wrapper: str, graph: Any) -> dict[str, str]:
    """From the comments that inductor writes."""
    lines = {node.name: _frame(node.meta.get("stack_trace")) for node in graph.graph.nodes}
    found: dict[str, str] = {}
    names: list[str] = []
    for line in wrapper.splitlines():
        if match := _COMMENT.match(line):
            names += [name.strip() for name in match[1].split(",")]
        elif match := _ASSIGNED.match(line):
            places = dict.fromkeys(lines[name] for name in names if lines.get(name))
            found[match[1]] = ", ".join(list(places)[:3]) + (", ..." if len(places) > 3 else "")
            names = []
    return found


def _frame(trace: str | None) -> str:
    """The innermost frame of a stack trace as "file:line"."""
    frames = _FRAME.findall(trace or "")
    return f"{Path(frames[-1][0]).name}:{frames[-1][1]}" if frames else ""
