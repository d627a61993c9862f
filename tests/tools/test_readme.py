"""Pages' tables of speed: one part for each kind of kernels that was measured, all rows of what was measured."""

import importlib.util
import json
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "readme.py"
RATIOS = {"f16 → f32": 0.43, "tf32 → f32": 0.31, "e4m3 → f32, fp8 unit": 0.78, "s8 → s32": 3.93, "f64": 0.48}


@pytest.fixture
def readme(tmp_path, monkeypatch):
    """The script, with an empty folder of measurements."""
    spec = importlib.util.spec_from_file_location("readme", SCRIPT)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    monkeypatch.setattr(script, "BENCHMARKS", tmp_path)
    return script


def write(readme, part, kernels, **more):
    products = {n: {"rate": 51.3 * r, "ratio": r, "floor": r / 2} for n, r in RATIOS.items()}
    products["nvfp4"] = {"rate": 9, "ratio": 0.17, "floor": 0}
    machine = {"kernels": kernels, "processor": "Some CPU", "numpy": "2.4", "numpy_gmas": 51.3}
    data = {"machine": machine, "size": 2048, "products": products, **more}
    (readme.BENCHMARKS / readme.SPEED[part]).write_text(json.dumps(data))


def test_the_line_names_every_kind_of_kernels_that_was_measured(readme):
    write(readme, "speed", "AVX-512")
    line = readme.speed_line()
    assert "AVX-512: f16 → f32 0.43x, tf32 → f32 0.31x" in line and "AVX2" not in line
    write(readme, "speed_avx2", "AVX2")
    assert "f64 0.48x; Some, AVX2: f16 → f32 0.43x" in readme.speed_line()


def test_what_was_not_measured_is_said_or_left_out(readme):
    page = readme.PARTS[readme.DOCS / "speed.md"]
    assert page["speed_avx2"]() == "Not measured yet."
    write(readme, "speed_avx2", "AVX2")
    assert page["speed_avx2"]().count("\n| ---") == 1 and page["speed"]() == "Not measured yet."


def test_the_summary_has_a_column_for_each_kind_of_kernels(readme):
    assert readme.summary() == "\n\n".join(
        readme.table((head,), ([n] for n in rows)) for head, rows in readme.SUMMARY.values()
    )
    write(readme, "speed", "AVX-512", programs={"f16 matmul, mma": {"ratio": 0.19}})
    write(readme, "speed_avx2", "AVX2")
    text = readme.summary()
    assert "(× NumPy float32) | Some, AVX-512 | Some, AVX2 |" in text
    assert "| f16 → f32 | 22.1 (0.43x) | 22.1 (0.43x) |" in text and "| f16 matmul, mma | 0.19x |" in text


def test_rows_without_a_floor_have_none(readme):
    write(readme, "speed", "AVX-512")
    text = readme.speed(readme.SPEED["speed"])
    assert "| nvfp4 | 9.0 | **0.17x** |  |  |  |" in text and "| f64 | 24.6 | **0.48x** | 0.24x |  |  |" in text


def test_every_part_is_written(readme):
    programs = {
        "copy": {"seconds": 1e-3, "ratio": 0.5, "floor": 0.25, "two_threads": 1.9},
        "empty launch": {"seconds": 21e-6, "most": 30e-6},
    }
    startup = {"import": 0.004, "first_fresh": 7.1, "first_cached": 0.44, "peak": 1.0, "peak_size": 4096}
    call = {"m16n8k16 f16, 1 warp": {"rate": 0.46, "ratio": 0.01, "ns": 4400}}
    write(
        readme, "speed", "AVX-512", instructions=call, dpx={"vimax3_s32": 3.0}, quantize={"mxfp8": 1.5},
        programs=programs, startup=startup,
    )  # fmt: skip
    text = readme.speed(readme.SPEED["speed"])
    for row in (
        "| m16n8k16 f16, 1 warp | 0.46 | 0.01x | 4.4 µs |",
        "| `vimax3_s32` | 3.00 |",
        "| `mxfp8` | 1.50 |",
        "| copy | **0.50x** | 0.25x | 1.90x |",
        "| empty launch | **21.0 µs** | at most 30.0 µs |  |",
        "`import nbtc` takes 4 ms, the first product of a fresh install 7.1 s",
    ):
        assert row in text, row


@pytest.mark.parametrize(
    ("ns", "text"), [(12, "12 ns"), (4400, "4.4 µs"), (2.5e7, "25.0 ms"), (2.5e9, "2.5 s"), (999, "999 ns")]
)
def test_durations_have_the_unit_that_fits(readme, ns, text):
    assert readme.duration(ns) == text
