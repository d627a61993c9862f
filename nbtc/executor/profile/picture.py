"""The drawing of a profile: a line an instruction, its bar as long as it was executed often."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from nbtc.fragments.svg_text import FAINT, FONT, INK, label

HEIGHT, MARGIN = 18.0, 14.0  # of a line, around the picture
NAMES, BARS, NOTES = 60.0, 330.0, 560.0  # where the names, the bars and the notes begin
WIDTH = 990.0
LONGEST = NOTES - BARS - 70.0  # of a bar; its number stands after it
MOST = 44  # letters of a name
BUSY, IDLE = "#7fb3e6", "#dbe9f7"  # the part of a bar that stands for active lanes, and the rest


class Bar(NamedTuple):
    """One instruction: its line, name, how often it was executed, the active share of the lanes, a remark."""

    line: str
    name: str
    executed: int
    share: float
    note: str


def draw(title: str, summary: Sequence[str], bars: Sequence[Bar]) -> str:
    """An SVG document."""
    shapes = [label(MARGIN, MARGIN + 8, title, 13, INK, "start", True)]
    y = MARGIN + 8
    for line in summary:
        y += 16
        shapes.append(label(MARGIN, y, line, 11, FAINT, "start"))
    y += 14
    most = max((bar.executed for bar in bars), default=1)
    for bar in bars:
        shapes += _line(bar, y, most)
        y += HEIGHT
    height = y + MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {WIDTH:.0f} {height:.0f}" font-family="{FONT}" role="img">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", *shapes, "</svg>"])


def _line(bar: Bar, y: float, most: int) -> list[str]:
    width = max(1.0, LONGEST * bar.executed / most)
    name = bar.name if len(bar.name) <= MOST else bar.name[: MOST - 3] + "..."
    base = y + HEIGHT - 5
    tip = f"line {bar.line}: {bar.name}, {bar.executed:,} times, {100 * bar.share:.0f} % of the lanes"
    return [
        label(NAMES - 10, base, bar.line, 10, FAINT, "end"),
        label(NAMES, base, name, 10, INK, "start"),
        f"<g><title>{escape(tip)}</title>",
        f'<rect x="{BARS:.1f}" y="{y + 2:.1f}" width="{width:.1f}" height="{HEIGHT - 5:.1f}" fill="{IDLE}"/>',
        f'<rect x="{BARS:.1f}" y="{y + 2:.1f}" width="{width * bar.share:.1f}" height="{HEIGHT - 5:.1f}" '
        f'fill="{BUSY}"/></g>',
        label(BARS + width + 5, base, f"{bar.executed:,}", 10, FAINT, "start"),
        label(NOTES, base, bar.note, 10, INK, "start"),
    ]
