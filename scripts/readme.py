"""Write what README.md and docs/ say in numbers: coverage and models from the rows, evidence and speed from JSON.

    python scripts/readme.py [--check]

A generated part stands between `<!-- NAME -->` and `<!-- end of NAME -->`: a line in the README, tables in docs/.  With
--check nothing is written, and the exit code is 1 when a part is not what the rows and the files of benchmarks/ say.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import nbtc
from nbtc.errors import NbtcError
from nbtc.formats.table import FORMATS
from nbtc.isa.archs import ARCHS
from nbtc.numerics.models import model

TREE = Path(__file__).resolve().parents[1]
README, DOCS, BENCHMARKS = TREE / "README.md", TREE / "docs", TREE / "benchmarks"
# Parts of docs/speed.md and docs/bounds.md: a kind of kernels or of processor each.
SPEED = {"speed": "speed.json", "speed_intel": "speed_intel.json", "speed_avx2": "speed_avx2.json"}
CYCLES = {"cycles": "cycles.json", "cycles_intel": "cycles_intel.json", "cycles_avx2": "cycles_avx2.json"}
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
    data = json.loads((BENCHMARKS / "verify.json").read_text())
    rows = [[f["file"], f"{f['forms']:,}", f"{f['outputs']:,}", f"{f['mismatches']:,}"] for f in data["files"]]
    total = ["**all**", *(f"**{data[key]:,}**" for key in ("forms", "outputs", "mismatches"))]
    return table(("recording", "forms", "outputs", "mismatches"), [*rows, total])


def measured(file: str) -> dict[str, Any] | None:
    """What `scripts/speed.py` wrote, or None where nobody measured yet."""
    path = BENCHMARKS / file
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def speed(file: str) -> str:
    """All that `scripts/speed.py` measured with one kind of kernels; it leaves out what it was not asked for."""
    data = measured(file)
    if data is None:
        return "Not measured yet."
    machine, n = data["machine"], data["size"]
    parts = [
        f"{machine['processor']}, {machine['kernels']} kernels, one thread, {n}³ (b1: K = 8192); "
        f"NumPy {machine['numpy']} float32 `@` on one thread: {machine['numpy_gmas']} G multiply-adds/s."
    ]
    return "\n\n".join([*parts, *(write(data[part]) for part, write in SPEED_PARTS.items() if part in data)])


SUMMARY = {  # of docs/speed.md: parts of what was measured, the first column's head, rows
    "products": (
        "G multiply-adds/s (× NumPy float32)",
        ("f16 → f32", "tf32 → f32", "f16 → f16", "e4m3 → f32, fp8 unit", "s8 → s32", "b1 → s32, packed", "f64",
         "nvfp4 → f32, sm_120"),
    ),
    "programs": (
        "PTX program, × its reference",
        ("f16 matmul, mma", "f16 matmul, wgmma", "int8 matmul, wgmma", "attention, x its products alone",
         "vector sum, 8 elements a thread", "softmax of rows of 256", "checked f16 matmul, x unchecked"),
    ),
}  # fmt: skip


def summary() -> str:
    """The rows that most people look for, of all that was measured side by side."""
    hosts = [data for data in map(measured, SPEED.values()) if data is not None]
    tables = []
    for part, (first, names) in SUMMARY.items():
        have = [data for data in hosts if part in data]
        rows = [[name, *(in_short(data[part].get(name)) for data in have)] for name in names]
        tables.append(table((first, *(f"{maker(data)}, {data['machine']['kernels']}" for data in have)), rows))
    return "\n\n".join(tables)


def in_short(row: dict[str, float] | None) -> str:
    """A rate and its share of the reference's, or the share alone."""
    if row is None:
        return ""
    share = f"{row['ratio']:.2f}x"
    return f"{row['rate']:.1f} ({share})" if "rate" in row else share


def maker(data: dict[str, Any]) -> str:
    return str(data["machine"]["processor"]).split()[0].removesuffix("(R)")


def products(found: dict[str, dict[str, float]]) -> str:
    rows = [
        [name, f"{r['rate']:.1f}", f"**{r['ratio']:.2f}x**", floor(r), optional(r, "two_threads"), share(r)]
        for name, r in found.items()
    ]
    return table(("product", "G multiply-adds/s", "× NumPy float32", "floor", "two threads", "128³ rate"), rows)


def calls(found: dict[str, dict[str, float]]) -> str:
    rows = [[k, f"{r['rate']:.2f}", f"{r['ratio']:.2f}x", duration(r["ns"])] for k, r in found.items()]
    return table(("one call", "G multiply-adds/s", "× NumPy float32", "each"), rows)


def results(head: tuple[str, str], found: dict[str, float]) -> str:
    return table(head, [[f"`{k}`", f"{v:.2f}"] for k, v in found.items()])


def executed(found: dict[str, dict[str, float]]) -> str:
    """PTX programs beside their references, and what starting them costs."""
    rows = [
        [k, f"**{r['ratio']:.2f}x**", f"{r['floor']:.2g}x", optional(r, "two_threads")]
        if "ratio" in r
        else [k, f"**{duration(1e9 * r['seconds'])}**", f"at most {duration(1e9 * r['most'])}", ""]
        for k, r in found.items()
    ]
    return table(("PTX program", "× its reference", "floor", "two threads"), rows)


def waits(s: dict[str, float]) -> str:
    first = f"the first product of a fresh install {s['first_fresh']:.1f} s"
    begin = f"`import nbtc` takes {1000 * s['import']:.0f} ms, {first}"
    cached = f"of a process that finds its code in the cache {s['first_cached']:.2f} s"
    peak = f"An f16 product of {s['peak_size']}³ peaks at {s['peak']:.1f} times its operands and result"
    return f"{begin}, {cached}. {peak}."


SPEED_PARTS: dict[str, Callable[[Any], str]] = {  # of what was measured, in the page's order
    "products": products,
    "instructions": calls,
    "dpx": partial(results, ("DPX, 65,536 elements, `out=`", "G results/s")),
    "quantize": partial(results, ("quantize float32 to", "G elements/s")),
    "programs": executed,
    "startup": waits,
}


def cycles(file: str) -> str:
    """What `scripts/kernel_cycles.py` measured."""
    data = measured(file)
    if data is None:
        return "Not measured yet."
    kernels = [
        [name, f"{r['bound']:.1f}", f"{r['took']:.1f}", f"{r['bound'] / r['took']:.0%}"]
        for name, r in data["kernels"].items()
    ]
    costs: dict[str, list[str]] = {}
    for name, cost in data["operations"].items():
        costs.setdefault(f"{max(0, round(cost, 1)):.1f}", []).append(name)
    rows = sorted(([", ".join(names), cost] for cost, names in costs.items()), key=lambda row: -float(row[1]))
    bits = data.get("bits", 512)
    parts = [f"Measured on `{data['cpu']}`, in multiply-adds of {bits} bits, {data['multiply_add_ns']:.3f} ns each:"]
    sums = {256: "eight", 512: "sixteen"}[bits]
    return "\n\n".join(
        [
            *parts,
            table((f"kernel, {sums} sums", "bound", "took", "of bound"), kernels),
            table(("operation beside multiply-adds", "adds"), rows),
        ]
    )


def coverage_line() -> str:
    """What there is, in a line."""
    found = nbtc.instructions()
    runs = sum(i.executable for i in found)
    names = len({i.family for i in found})
    forms = f"**{len(found):,} forms of {names} instruction families** parse and list"
    return f"{forms}, {runs:,} of them run: [what there is](docs/coverage.md)."


def models_line() -> str:
    """Which architectures, and what backs them, in a line."""
    backed = [a.name for a in ARCHS.values() if a.validated]
    others = [a.name for a in ARCHS.values() if not a.validated]
    return (
        f"Recordings or published vectors of the chip itself back {', '.join(backed)}; published models alone back "
        f"{', '.join(others)}."
    )


def recordings_line() -> str:
    """What was replayed, in a line."""
    data = json.loads((BENCHMARKS / "verify.json").read_text())
    return (
        f"**{data['outputs']:,} recorded outputs of {data['forms']:,} forms, {data['mismatches']} mismatches** in the "
        "full set of recordings of an H200: [why believe it](docs/evidence.md), [how to record](docs/recordings.md)."
    )


def speed_line() -> str:
    """How fast products are on each class of hosts, in a line."""
    shown = ("f16 → f32", "tf32 → f32", "e4m3 → f32, fp8 unit", "s8 → s32", "f64")
    hosts = []
    for data in filter(None, map(measured, SPEED.values())):
        rates = ", ".join(f"{name} {data['products'][name]['ratio']:.2g}x" for name in shown)
        hosts.append(f"{maker(data)}, {data['machine']['kernels']}: {rates}")
    return f"**Relative to NumPy's float32 `@` on the same core**, {'; '.join(hosts)}; [speed](docs/speed.md)."


def floor(row: dict[str, float]) -> str:
    return f"{row['floor']:g}x" if row["floor"] else ""


def optional(row: dict[str, float], key: str) -> str:
    return f"{row[key]:.2f}x" if key in row else ""


def share(row: dict[str, float]) -> str:
    return f"{row['small']:.0%}" if "small" in row else ""


def duration(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.1f} {unit}"
    return f"{ns:.0f} ns"


PARTS: dict[Path, dict[str, Callable[[], str]]] = {
    README: {
        "coverage": coverage_line,
        "models": models_line,
        "recordings": recordings_line,
        "speed": speed_line,
    },
    DOCS / "coverage.md": {"coverage": coverage, "models": models},
    DOCS / "evidence.md": {"recordings": recordings},
    DOCS / "speed.md": {"speed_summary": summary, **{part: partial(speed, file) for part, file in SPEED.items()}},
    DOCS / "bounds.md": {part: partial(cycles, file) for part, file in CYCLES.items()},
}
PICTURES = {
    DOCS / "m16n8k16.svg": "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
    DOCS / "wmma_a.svg": "wmma.load.a.sync.aligned.row.m16n16k16.f16",
}


def fill(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    for name, make in PARTS[path].items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        if not pattern.search(text):
            sys.exit(f"{path.name} has no place for {name}: add <!-- {name} --> and <!-- end of {name} -->")
        body = make() + "\n"
        text = pattern.sub(lambda m, body=body: m.group(1) + body + m.group(2), text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a table has drifted")
    check = parser.parse_args().check
    pages = {path: fill(path) for path in PARTS}
    pages |= {path: nbtc.instruction(name)._repr_svg_() for path, name in PICTURES.items()}
    for path, new in pages.items():
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(new, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != new:
            sys.exit(f"{path.name} has drifted from the rows or from benchmarks/*.json: run python scripts/readme.py")
    print(f"{sum(map(len, PARTS.values()))} parts, {len(PICTURES)} pictures: {'as generated' if check else 'written'}")


if __name__ == "__main__":
    main()
