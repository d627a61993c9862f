"""The worked examples: every cell against plain Python, whole batches against plain NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nbtc import errors
from nbtc.examples import alignment, shortest_paths, timing
from nbtc.examples.alignment import Scores

ALIGNERS = {
    "local": (alignment.smith_waterman, alignment.plain_smith_waterman),
    "global": (alignment.needleman_wunsch, alignment.plain_needleman_wunsch),
}


def by_cells(a, b, scores, local):
    """Gotoh's recurrences, one cell after the other in Python integers."""
    never = -(10**12)
    m, n = len(a), len(b)
    h, e, f = ({(i, j): never for i in range(m + 1) for j in range(n + 1)} for _ in range(3))
    for i, j in h:
        if i == 0 or j == 0:
            gap = i + j
            h[i, j] = 0 if local or gap == 0 else scores.gap_open + (gap - 1) * scores.gap_extend
            continue
        e[i, j] = max(e[i, j - 1] + scores.gap_extend, h[i, j - 1] + scores.gap_open)
        f[i, j] = max(f[i - 1, j] + scores.gap_extend, h[i - 1, j] + scores.gap_open)
        diagonal = h[i - 1, j - 1] + (scores.match if a[i - 1] == b[j - 1] else scores.mismatch)
        h[i, j] = max(diagonal, e[i, j], f[i, j], 0 if local else never)
    return max(h.values()) if local else h[m, n]


PENALTY = st.integers(-12, 0)
SCORES = st.builds(Scores, st.integers(-2, 8), PENALTY, PENALTY, PENALTY)


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(list(ALIGNERS)), st.integers(0, 40), st.integers(0, 40), SCORES, st.integers(0, 2**32))
def test_alignment_cell_by_cell(kind, m, n, scores, seed):
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 3, (2, m)), rng.integers(0, 3, (2, n))
    want = [by_cells(x, y, scores, kind == "local") for x, y in zip(a, b, strict=True)]
    fast, plain = ALIGNERS[kind]
    assert fast(a, b, scores).tolist() == want
    assert plain(a, b, scores).tolist() == want


@pytest.mark.parametrize("kind", ALIGNERS)
@pytest.mark.parametrize(("m", "n"), [(300, 300), (97, 260), (260, 97), (1, 65), (65, 1)])
def test_alignment_batches(kind, m, n):
    rng = np.random.default_rng(m * n)
    a, b = rng.integers(0, 4, (7, m)), rng.integers(0, 4, (7, n))
    fast, plain = ALIGNERS[kind]
    for threads in (1, 3, None):
        np.testing.assert_array_equal(fast(a, b, threads=threads), plain(a, b))
    wide = 1000  # codes beyond a byte take another storage
    np.testing.assert_array_equal(fast(a * wide, b * wide), plain(a, b))


def test_empty_batches():
    none = np.zeros((0, 5), int)
    assert alignment.smith_waterman(none, none).shape == (0,)
    assert alignment.needleman_wunsch(np.zeros((2, 0), int), np.zeros((2, 0), int)).tolist() == [0, 0]


@pytest.mark.parametrize(
    ("a", "b", "scores", "error"),
    [
        ([[1.0, 2.0]], [[1]], Scores(), errors.FormatError),
        ([1, 2], [[1]], Scores(), errors.ShapeError),
        ([[1], [2]], [[1]], Scores(), errors.ShapeError),
        ([[-1]], [[1]], Scores(), errors.RangeError),
        ([[1]], [[1]], Scores(mismatch=1), errors.RangeError),
        ([[1]], [[1]], Scores(match=1 << 28), errors.RangeError),
    ],
)
@pytest.mark.parametrize("kind", ALIGNERS)
def test_alignment_refuses(kind, a, b, scores, error):
    with pytest.raises(error, match=r".{40}"):
        ALIGNERS[kind][0](a, b, scores)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 24), st.floats(0, 1), st.integers(0, 2**32))
def test_shortest_paths(nodes, density, seed):
    rng = np.random.default_rng(seed)
    w = np.where(
        rng.random((nodes, nodes)) < density, rng.integers(0, 1 << 20, (nodes, nodes)), shortest_paths.UNREACHABLE
    )
    got = shortest_paths.floyd_warshall(w)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, shortest_paths.plain_floyd_warshall(w))
    want = w.tolist()
    for _ in range(nodes.bit_length()):  # paths of up to twice as many edges each time, in Python integers
        want = [
            [min([want[i][j], *(want[i][k] + want[k][j] for k in range(nodes))]) for j in range(nodes)]
            for i in range(nodes)
        ]
    assert got.tolist() == want


@pytest.mark.parametrize(
    ("weights", "error"),
    [
        (np.zeros((2, 3), int), errors.ShapeError),
        (np.zeros(4, int), errors.ShapeError),
        (np.zeros((2, 2)), errors.FormatError),
        ([[0, -1], [1, 0]], errors.RangeError),
        ([[0, 1 << 30], [1, 0]], errors.RangeError),
    ],
)
def test_shortest_paths_refuse(weights, error):
    with pytest.raises(error, match=r".{40}"):
        shortest_paths.floyd_warshall(weights)


def test_the_timing_script_prints_its_figures(capsys, monkeypatch):
    monkeypatch.setattr(timing, "RESIDUES", 60)
    timing.functions(64)
    timing.alignments(2)
    timing.paths(sizes=(16,))
    printed = capsys.readouterr().out
    assert printed.count("G results/s") == 5
    assert printed.count("GCUPS") == 4
    assert printed.count("floyd_warshall") == 1
