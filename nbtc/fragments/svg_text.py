"""Words in drawings: one font, two inks."""

from __future__ import annotations

from html import escape

FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
INK, FAINT = "#16181d", "#5d6470"


def label(x: float, y: float, words: str, size: int, fill: str, anchor: str = "middle", bold: bool = False) -> str:
    """A line of text."""
    weight = ' font-weight="600"' if bold else ""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}"'
    return f"<text {place}{weight}>{escape(words)}</text>"
