"""Findings of a run as SARIF 2.1.0, which code hosts show in pull requests, and as JUnit's XML, which CI shows."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from nbtc import __version__

SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
SHOWN = 20  # lines of a summary: what a screen holds beside the command's own last lines
COMMAND = 60  # characters of a command in a summary: half a line of 120
ROOT = "%SRCROOT%"  # SARIF's name for where relative paths begin
_UNPRINTABLE = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what XML 1.0 has no way to say


def read(path: Path) -> list[dict[str, Any]]:
    """The lines that processes have added."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rule_id(title: str) -> str:
    """A finding's kind in small letters: "data-race"."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _physical(place: list[Any], root: Path) -> dict[str, Any]:
    """A file and a line, relative to the folder of the run where it lies in there."""
    file, line = Path(place[0]), int(place[1])
    whole = Path(os.path.normpath(root / file))
    inside = whole.is_relative_to(root)
    at = {"uri": whole.relative_to(root).as_posix(), "uriBaseId": ROOT} if inside else {"uri": whole.as_uri()}
    return {"artifactLocation": at, "region": {"startLine": max(1, line)}}


def _result(found: dict[str, Any], count: int, root: Path) -> dict[str, Any]:
    here: dict[str, Any] = {"logicalLocations": [{"fullyQualifiedName": found["kernel"], "kind": "function"}]}
    if found["places"]:
        here["physicalLocation"] = _physical(found["places"][0], root)
    made: dict[str, Any] = {
        "ruleId": rule_id(found["title"]),
        "level": "error",
        "message": {"text": found["message"]},
        "locations": [here],
        "occurrenceCount": count,
        "properties": {"program": found["program"]},
    }
    related = [_physical(p, root) for p in found["places"][1:]]
    if related:
        text = {"text": "the other access"}
        made["relatedLocations"] = [{"physicalLocation": p, "message": text} for p in related]
    return made


def _several(lines: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Findings by their place, however many processes came by it."""
    several: dict[Any, list[dict[str, Any]]] = {}
    for x in lines:
        if x["what"] == "finding":
            places = x["places"] or x["message"]
            several.setdefault((x["title"], x["kernel"], json.dumps(places)), []).append(x)
    return list(several.values())


def summary(lines: Iterable[dict[str, Any]]) -> str:
    """What a run found, a line for each place; empty if nothing."""
    several = _several(lines)
    if not several:
        return ""
    programs = {x["program"] for group in several for x in group}
    made = [f"nbtc: found {_count(len(several), 'fault')} in {_count(len(programs), 'program')}:"]
    for group in several[:SHOWN]:
        first = group[0]
        place = ":".join(map(str, first["places"][0][:2])) if first["places"] else "no source line (nvcc -lineinfo)"
        made.append(f"nbtc:   {place}: {first['title']} in {first['kernel']}, {_short(first['program'])}")
    if len(several) > SHOWN:
        made.append(f"nbtc:   and {len(several) - SHOWN} more: --sarif FILE and --junit FILE write them all")
    return "\n".join(made)


def _short(program: str) -> str:
    """A command's first line, as far as it fits beside the rest."""
    line = program.partition("\n")[0]
    return line if len(line) <= COMMAND else line[: COMMAND - 3] + "..."


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + "s" * (n != 1)


def sarif(lines: Iterable[dict[str, Any]], root: Path) -> dict[str, Any]:
    """A log of SARIF: each place once, however many processes came by it."""
    several = _several(lines)
    titles = dict.fromkeys(group[0]["title"] for group in several)
    rules = [{"id": rule_id(t), "shortDescription": {"text": t[:1].upper() + t[1:]}} for t in titles]
    driver = {"name": "nbtc", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "originalUriBaseIds": {ROOT: {"uri": root.as_uri() + "/"}},
        "results": [_result(group[0], len(group), root) for group in several],
    }
    return {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}


def _printable(text: str) -> str:
    return _UNPRINTABLE.sub("?", text)


def junit(lines: Iterable[dict[str, Any]]) -> str:
    """JUnit's XML: a suite for each process, a case for each kernel it launched, with what was found in it."""
    processes: dict[Any, list[dict[str, Any]]] = {}
    for x in lines:
        processes.setdefault((x["process"], x["program"]), []).append(x)
    top = ElementTree.Element("testsuites", name="nbtc")
    for (number, program), group in processes.items():
        kernels = {x["kernel"]: x for x in group if x["what"] == "kernel"}
        found = [x for x in group if x["what"] == "finding"]
        bad = len({x["kernel"] for x in found})
        name, size = _printable(program), {"tests": str(len(kernels)), "failures": str(bad)}
        suite = ElementTree.SubElement(top, "testsuite", {"name": name, "id": str(number), "errors": "0", **size})
        for kernel in kernels:
            case = ElementTree.SubElement(suite, "testcase", classname=name, name=_printable(kernel))
            for x in (x for x in found if x["kernel"] == kernel):
                if x["places"] and not case.get("file"):
                    case.set("file", str(x["places"][0][0]))
                    case.set("line", str(x["places"][0][1]))
                failure = ElementTree.SubElement(case, "failure", message=_printable(x["message"]), type=x["title"])
                failure.text = _printable(x["message"])
    for kind in ("tests", "failures"):
        top.set(kind, str(sum(int(s.get(kind, "0")) for s in top)))
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(top, encoding="unicode") + "\n"
