"""A hook of mkdocs: README.md, CONTRIBUTING.md and CHANGELOG.md become pages, their links pointing inside the site;
sessions of Python are marked as such; and search ranks guides before reference before history."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

TREE = Path(__file__).resolve().parents[1]
PAGES = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
SESSION = re.compile(r"^```python(?=\n>>> )", re.MULTILINE)

# How much a page's hits count for search; 1 where it isn't named. "race" is to find "Checked runs", "matmul" a guide.
BOOSTS = {
    "changelog.md": 0.05,
    "architecture.md": 0.2,
    "adding.md": 0.2,
    "contributing.md": 0.2,
    "recipes.md": 2.0,
    "tutorial-kernels.md": 3.0,
    "checked.md": 4.0,
    "cuda.md": 3.0,
    "pytest.md": 3.0,
    "wgmma.md": 2.0,
    "reference/products.md": 3.0,
    "dask.md": 0.5,
    "reference/dask.md": 0.1,
    "reference/errors.md": 0.5,
    "jax.md": 0.5,
}


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


def on_page_markdown(markdown: str, page: Any, **more: Any) -> str:
    """Blocks that start with a prompt are sessions: prompts and output look different, and are not copied."""
    page.meta.setdefault("search", {"boost": BOOSTS.get(page.file.src_uri, 1.0)})
    return SESSION.sub("```pycon", markdown)
