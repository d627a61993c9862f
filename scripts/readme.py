"""Write the generated tables of README.md: coverage and numerics models from the rows, evidence and speed from JSON.

    python scripts/readme.py [--check]

A table stands between `<!-- NAME -->` and `<!-- end of NAME -->`.  With --check nothing is written, and the exit code
is 1 when a table is not what the rows and the files of benchmarks/ say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbtc
from nbtc.errors import NbtcError
from nbtc.formats.table import FORMATS
from nbtc.isa.archs import ARCHS
from nbtc.numerics.models import model

TREE = Path(__file__).resolve().parents[1]
README = TREE / "README.md"
MARKS = {"recorded": "●", "public vectors": "◐", "literature": "○"}


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *([str(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def coverage() -> str:
    """One line a family: formats, shapes, forms, the first architecture, how many forms run."""
    families: dict[str, list[Any]] = {}
    for i in nbtc.instructions():
        families.setdefault(i.family, []).append(i)
    rows = []
    for family, members in families.items():
        formats = unique(str(f) for i in members for f in operand_formats(i))
        first = min(members, key=lambda i: ARCHS[i.min_arch.rstrip("af")].number).min_arch
        runs = sum(i.executable for i in members)
        rows.append([f"`{family}`", " ".join(formats), shapes(members), len(members), runs, first])
    return table(("family", "formats", "shapes", "forms", "run", "from"), rows)


def operand_formats(i: Any) -> list[Any]:
    found = [x.format for x in (i.a, i.b) if x is not None] or [x.format for x in (i.c, i.d) if x is not None]
    return sorted(found, key=lambda f: f.code)


def shapes(members: list[Any]) -> str:
    """Shapes of a family; one entry where many N differ."""
    by_mk: dict[tuple[int, int], set[int]] = {}
    for i in members:
        if i.shape is None:  # cvt and movmatrix move or convert whatever their registers hold
            continue
        m, n, k = i.shape
        by_mk.setdefault((m, k), set()).add(n)
    return " ".join(
        f"m{m}n{{{min(ns)}…{max(ns)}}}k{k}" if len(ns) > 4 else " ".join(f"m{m}n{n}k{k}" for n in sorted(ns))
        for (m, k), ns in sorted(by_mk.items())
    )


def unique(items: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(items))


def models() -> str:
    """Which evidence backs the arithmetic of each architecture and multiplicand format."""
    names = ("f16", "bf16", "tf32", "e4m3", "f64", "s8", "s4", "b1")
    rows = []
    for arch in ARCHS.values():
        have = {f for i in nbtc.instructions(arch=arch.name) if i.executable for f in operand_formats(i)}
        rows.append([arch.name, *(evidence(arch, FORMATS[n]) if FORMATS[n] in have else "" for n in names)])
    return table(("", "f16", "bf16", "tf32", "fp8", "f64", "int8", "int4", "b1"), rows)


def evidence(arch: Any, fmt: Any) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            row = model(arch.numerics, "mma", fmt)
        except NbtcError:
            return ""
    # another chip's row stands in for an architecture without vectors of its own
    if fmt.kind != "float":
        return "exact"
    return MARKS[row.evidence if arch.validated else "literature"]


def recordings() -> str:
    data = json.loads((TREE / "benchmarks" / "verify.json").read_text())
    rows = [[f["file"], f"{f['forms']:,}", f"{f['outputs']:,}", f"{f['mismatches']:,}"] for f in data["files"]]
    total = ["**all**", *(f"**{data[key]:,}**" for key in ("forms", "outputs", "mismatches"))]
    return table(("recording", "forms", "outputs", "mismatches"), [*rows, total])


def speed() -> str:
    path = TREE / "benchmarks" / "speed.json"
    if not path.is_file():
        return "Not measured yet."
    data = json.loads(path.read_text())
    machine, n = data["machine"], data["size"]
    rows = [
        [name, f"{r['rate']:.1f}", f"**{r['ratio']:.2f}x**", f"{r['floor']:g}x", optional(r, "two_threads"), share(r)]
        for name, r in data["products"].items()
    ]
    head = ("product", "G multiply-adds/s", "× NumPy float32", "floor", "two threads", "128³ rate")
    parts = [
        f"{machine['processor']}, {machine['kernels']} kernels, one thread, {n}³ (b1: K = 8192); "
        f"NumPy {machine['numpy']} float32 `@` on one thread: {machine['numpy_gmas']} G multiply-adds/s.",
        table(head, rows),
    ]
    if "instructions" in data:
        rows = [
            [k, f"{r['rate']:.2f}", f"{r['ratio']:.2f}x", duration(r["ns"])] for k, r in data["instructions"].items()
        ]
        parts.append(table(("one call", "G multiply-adds/s", "× NumPy float32", "each"), rows))
    if "dpx" in data:
        parts.append(
            table(
                ("DPX, 65,536 elements, `out=`", "G results/s"),
                [[f"`{k}`", f"{v:.2f}"] for k, v in data["dpx"].items()],
            )
        )
    if "startup" in data:
        s = data["startup"]
        first = f"the first product of a fresh install {s['first_fresh']:.1f} s"
        waits = f"`import nbtc` takes {1000 * s['import']:.0f} ms, {first}"
        cached = f"of a process that finds its code in the cache {s['first_cached']:.2f} s"
        peak = f"An f16 product of {s['peak_size']}³ peaks at {s['peak']:.1f} times its operands and result"
        parts.append(f"{waits}, {cached}. {peak}.")
    return "\n\n".join(parts)


def optional(row: dict[str, float], key: str) -> str:
    return f"{row[key]:.2f}x" if key in row else ""


def share(row: dict[str, float]) -> str:
    return f"{row['small']:.0%}" if "small" in row else ""


def duration(ns: float) -> str:
    return f"{ns / 1000:.1f} µs" if ns >= 1000 else f"{ns:.0f} ns"


TABLES: dict[str, Callable[[], str]] = {
    "coverage": coverage,
    "models": models,
    "recordings": recordings,
    "speed": speed,
}


PICTURES = {TREE / "docs" / "m16n8k16.svg": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"}


def fill(text: str) -> str:
    for name, make in TABLES.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"README.md has no place for the table {name}: add <!-- {name} --> and <!-- end of {name} -->")
        body = make() + "\n"
        text = pattern.sub(lambda m, body=body: m.group(1) + body + m.group(2), text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a table has drifted")
    check = parser.parse_args().check
    pages = {README: fill(README.read_text(encoding="utf-8"))}
    pages |= {path: nbtc.instruction(name)._repr_svg_() for path, name in PICTURES.items()}
    for path, new in pages.items():
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(new, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != new:
            sys.exit(f"{path.name} has drifted from the rows or from benchmarks/*.json: run python scripts/readme.py")
    print(f"{len(TABLES)} tables, {len(PICTURES)} picture: {'as generated' if check else 'written'}")


if __name__ == "__main__":
    main()
