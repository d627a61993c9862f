"""The page on block formats: a linear layer in MXFP8, MXFP6, MXFP4 and NVFP4, and its error as outliers grow.

python scripts/block_formats.py [--out docs/block_formats.svg]
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path

import matplotlib
import numpy as np

import nbtc

OUT = Path(__file__).resolve().parents[1] / "docs" / "block_formats.svg"
TOKENS, FEATURES, DEPTH = 64, 128, 1024
FORMATS = ("mxfp8", "mxfp6", "mxfp4", "nvfp4")
OUTLIERS = [2.0**n for n in range(9)]  # what one channel in 128 is multiplied by


def layer(outlier: float) -> tuple[np.ndarray, np.ndarray]:
    """Activations (tokens, depth), some of whose channels are large, and weights (depth, features)."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((TOKENS, DEPTH)).astype(np.float32)
    x[:, ::128] *= np.float32(outlier)
    return x, (rng.standard_normal((DEPTH, FEATURES)) / np.sqrt(DEPTH)).astype(np.float32)


def linear(x: np.ndarray, w: np.ndarray, name: str) -> np.ndarray:
    """x @ w as sm_120 computes it on operands quantized along K."""
    a, scale_a, *tensor_a = nbtc.mx.quantize(x, name)
    b, scale_b, *tensor_b = nbtc.mx.quantize(w, name, axis=0)
    d = nbtc.matmul(a, b, arch="sm_120", scale_a=scale_a, scale_b=scale_b)
    for scale in (*tensor_a, *tensor_b):
        d = d * scale
    return d


def sweep() -> dict[str, list[float]]:
    curves: dict[str, list[float]] = {name: [] for name in FORMATS}
    for outlier in OUTLIERS:
        x, w = layer(outlier)
        exact = x.astype(np.float64) @ w.astype(np.float64)
        for name in FORMATS:
            error = np.sqrt(np.mean((linear(x, w, name) - exact) ** 2) / np.mean(exact**2))
            curves[name].append(float(error))
        print(f"x {outlier:>4.0f}: " + ", ".join(f"{name} {v[-1]:.4f}" for name, v in curves.items()), flush=True)
    return curves


def draw(curves: dict[str, list[float]], out: Path) -> None:
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nbtc"  # the same picture gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for (name, values), marker in zip(curves.items(), "osD^", strict=True):
        axes.loglog(OUTLIERS, values, marker=marker, markersize=5, label=name.upper())
    axes.set_xscale("log", base=2)
    axes.set_xlabel("size of the outlier channels (one in 128)")
    axes.set_ylabel("relative RMS error of the layer")
    axes.set_title(f"A linear layer, K = {DEPTH}: both operands quantized in blocks along K")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    warnings.simplefilter("ignore", nbtc.errors.UnvalidatedModelWarning)
    draw(sweep(), parser.parse_args().out)


if __name__ == "__main__":
    main()
