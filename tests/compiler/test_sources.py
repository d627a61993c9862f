"""What a digest over sources covers."""

from __future__ import annotations

import ast
import os
from pathlib import Path

from nbtc.compiler.cache import sources
from nbtc.compiler.machine_code import native
from tests.processes import forked, output

ROOT = Path(sources.ROOT)


def named(file: str) -> set[str]:
    """Modules that a file's import statements name, by Python's own parser."""
    found: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "nbtc"}


def files_of(name: str) -> set[str]:
    """A module's file, if it is one of nbtc's."""
    place = ROOT.joinpath(*name.split(".")[1:])
    return {str(f.relative_to(ROOT)) for f in (place / "__init__.py", place.with_suffix(".py")) if f.is_file()}


def test_every_import_counts():
    for file in (
        "compiler/jit.py",
        "executor/build.py",
        "kernels/warps/warp.py",
        "ops/wgmma/product.py",
        "executor/rows/uses.py",
    ):
        expected = set().union(*map(files_of, named(file)))
        assert expected and sources._imports(file) == expected, file


def test_a_digest_is_of_what_is_imported_of_what_that_imports(monkeypatch):
    texts = {
        "a.py": b"from nbtc.b import (  # x\n    f,\n)\nimport os\n",
        "b.py": b"def f():\n    import nbtc.c\n",
        "c.py": b"one",
        "d.py": b"two",
    }
    texts |= {sources.FRONT: b"import nbtc.d\n"}

    now = dict(texts)
    monkeypatch.setattr(sources, "_files", lambda: frozenset(now))
    monkeypatch.setattr(sources, "_read", lambda file: now[file])

    def forget() -> None:
        sources._places.cache_clear()
        sources._imports.cache_clear()
        sources._digest.cache_clear()

    def digest(changed: dict[str, bytes]) -> str:
        forget()
        now.update(texts | changed)
        return sources.source_digest(os.path.join(sources.ROOT, "a.py"))

    try:
        first = digest({})
        assert digest({}) == first
        for name in ("a.py", "b.py", "c.py"):
            assert digest({name: texts[name] + b"\n#"}) != first, name
        assert digest({"d.py": b"three", sources.FRONT: b"four"}) == first, "the front door is left out"
    finally:
        forget()


def test_a_file_that_changed_after_the_process_began_has_a_digest_of_its_own(monkeypatch, tmp_path):
    (tmp_path / "a.py").write_bytes(b"one")
    monkeypatch.setattr(sources, "ROOT", str(tmp_path))
    text = sources._read.__wrapped__
    monkeypatch.setattr(sources, "STARTED", os.stat(tmp_path / "a.py").st_ctime)
    monkeypatch.setattr(sources, "_CHANGED", [])
    assert text("a.py") == b"one" and sources.unchanged()
    monkeypatch.setattr(sources, "STARTED", sources.STARTED - 1)
    assert text("a.py") != text("a.py") and text("a.py").startswith(b"one")
    assert not sources.unchanged()


def test_what_a_process_with_changed_files_compiles_is_not_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    for changed, kept in ((["a.py"], False), ([], True)):
        monkeypatch.setattr(sources, "_CHANGED", changed)
        native.keep("0123", native.Native(b"code", {}))
        assert (native.fetch("0123") is not None) == kept


def test_no_source_is_read_before_code_is_wanted():
    code = """
from nbtc.compiler.cache import sources
from nbtc.testing.program_speed import collatz
before = sources._read.cache_info().currsize
print(before, collatz.stats.cache_path is not None, sources._read.cache_info().currsize > 0)
"""
    assert output(forked(code)) == "0 True True"
