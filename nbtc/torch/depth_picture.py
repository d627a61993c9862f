"""Error along the depth of a model, as an SVG picture."""

from __future__ import annotations

from html import escape
from math import floor, isfinite, log10

WIDTH, ROW, LEFT, TOP = 900, 16, 260, 40  # pixels
COLOURS = ("#c0392b", "#2471a3", "#1e8449", "#7d3c98", "#b7950b")


def depth_picture(title: str, lines: dict[str, list[tuple[str, float]]]) -> str:
    """One row a layer from the top down, errors on a logarithmic axis, one colour a line of `lines`."""
    layers = list(dict.fromkeys(name for points in lines.values() for name, _ in points))
    at = {name: TOP + ROW * (i + 1) for i, name in enumerate(layers)}
    errors = [e for points in lines.values() for _, e in points if e > 0 and isfinite(e)]
    low = floor(log10(min(errors))) if errors else -8
    high = max(low + 1, floor(log10(max(errors))) + 1) if errors else 0
    height = TOP + ROW * (len(layers) + 2)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" font-family="monospace" '
        f'font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="{LEFT}" y="16">{escape(title)}: |difference| / |outputs|</text>',
    ]

    def x(error: float) -> float:
        """Where an error stands; equal bits stand at the left edge."""
        if not error > 0:
            return LEFT
        share = (log10(error) - low) / (high - low) if isfinite(error) else 1.0
        return LEFT + 20 + (WIDTH - LEFT - 60) * share

    for power in range(low, high + 1):
        here = x(10.0**power)
        parts.append(f'<line x1="{here:.1f}" y1="{TOP}" x2="{here:.1f}" y2="{height - ROW}" stroke="#ddd"/>')
        parts.append(f'<text x="{here:.1f}" y="{TOP - 6}" text-anchor="middle">1e{power}</text>')
    for name, y in at.items():
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{escape(name[-36:])}</text>')
    for colour, (label, points) in zip(COLOURS * len(lines), lines.items(), strict=False):
        track = " ".join(f"{x(e):.1f},{at[name]}" for name, e in points)
        parts.append(f'<polyline points="{track}" fill="none" stroke="{colour}"/>')
        parts += [f'<circle cx="{x(e):.1f}" cy="{at[name]}" r="3" fill="{colour}"/>' for name, e in points]
        row = height - ROW // 2 + 3
        index = list(lines).index(label)
        parts.append(f'<text x="{LEFT + 120 * index}" y="{row}" fill="{colour}">{escape(label)}</text>')
    return "\n".join([*parts, "</svg>"])
