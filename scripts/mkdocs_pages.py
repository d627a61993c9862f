"""A hook of mkdocs: README.md, CONTRIBUTING.md and CHANGELOG.md become pages, their links pointing inside the site."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

TREE = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}


def inside(text: str) -> str:
    """Links of a page at the root, as a page of docs/ has them; what the site has no page of becomes plain text."""
    text = re.sub(r"\]\(docs/", "](", text)
    for source, page in PAGES.items():
        text = text.replace(f"]({source})", f"]({page})")
    return text.replace("[how to cite](CITATION.cff)", "how to cite: CITATION.cff")


def on_files(files: Files, config: Any) -> Files:
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=inside((TREE / source).read_text(encoding="utf-8"))))
    return files
