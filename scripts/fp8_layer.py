"""The worked example of the README: one FP8 layer, four ways to sum it, and the error of each over K.

python scripts/fp8_layer.py [--out docs/fp8_layer.svg] [--longest 16384]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import matplotlib
import numpy as np

import nbtc

OUT = Path(__file__).resolve().parents[1] / "docs" / "fp8_layer.svg"
TOKENS, FEATURES = 64, 128
WAYS = {
    "H100 fp8 unit (wgmma)": {"instruction": "wgmma"},
    "H100 mma.sync": {"instruction": "mma"},
    "fp8 unit, promoted every 128": {"instruction": "wgmma", "k_split": 128},
}


def layer(k: int) -> tuple[np.ndarray, np.ndarray]:
    """Activations (tokens, k) and weights (k, features) in e4m3, as a quantised layer holds them."""
    rng = np.random.default_rng(k)
    x = np.maximum(rng.standard_normal((TOKENS, k), np.float32), 0)  # after a ReLU
    w = rng.standard_normal((k, FEATURES), np.float32)
    return tuple(nbtc.convert(v * np.float32(448 / np.abs(v).max()), "e4m3") for v in (x, w))


def error(d: np.ndarray, exact: np.ndarray) -> float:
    """Root mean square error relative to the root mean square output."""
    return float(np.sqrt(np.mean((d - exact) ** 2) / np.mean(exact**2)))


def sweep(lengths: list[int]) -> dict[str, list[float]]:
    curves: dict[str, list[float]] = {name: [] for name in (*WAYS, "float32 (NumPy)")}
    for k in lengths:
        a, b = layer(k)
        exact = a.astype(np.float64) @ b.astype(np.float64)
        for name, keywords in WAYS.items():
            curves[name].append(error(nbtc.matmul(a, b, arch="sm_90", **keywords), exact))
        curves["float32 (NumPy)"].append(error(a.astype(np.float32) @ b.astype(np.float32), exact))
        print(f"K = {k:>6}: " + ", ".join(f"{name} {values[-1]:.2e}" for name, values in curves.items()), flush=True)
    return curves


def draw(lengths: list[int], curves: dict[str, list[float]], out: Path) -> None:
    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nbtc"  # the same picture gives the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.2), layout="constrained")
    for (name, values), marker in zip(curves.items(), "osD^", strict=True):
        axes.loglog(lengths, values, marker=marker, markersize=5, label=name)
    axes.set_xscale("log", base=2)
    axes.set_xlabel("K, elements summed in one output")
    axes.set_ylabel("relative RMS error of the sum")
    axes.set_title("One e4m3 layer: what the summing costs, beyond the quantisation")
    axes.grid(True, which="both", alpha=0.25)
    axes.legend()
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--longest", type=int, default=16384)
    args = parser.parse_args()
    lengths = [k for k in (2**n for n in range(5, 20)) if k <= args.longest]
    draw(lengths, sweep(lengths), args.out)


if __name__ == "__main__":
    main()
