"""asv takes a smaller number for a better one: everything it tracks is a cost, and says in what unit."""

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "asv_bench" / "benchmarks"
FILES = sorted(FOLDER.glob("*.py"))
KINDS = ("time_", "track_", "peakmem_", "mem_")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_numbers_are_costs(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    tracked = {f.name for f in ast.walk(tree) if isinstance(f, ast.FunctionDef) and f.name.startswith("track_")}
    units = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "unit":
                    units[ast.unparse(target.value)] = ast.literal_eval(node.value)
    assert set(units) == tracked
    assert all(u == "seconds" or u.startswith("of ") for u in units.values()), (
        units
    )  # seconds, or seconds of something's


def test_there_are_benchmarks():
    names = [
        f.name
        for p in FILES
        for f in ast.walk(ast.parse(p.read_text(encoding="utf-8")))
        if isinstance(f, ast.FunctionDef) and f.name.startswith(KINDS)
    ]
    assert len(names) > 20
