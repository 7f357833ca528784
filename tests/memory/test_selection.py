"""Order of claims under an integer budget, checked against a plain Python selection."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hermes_like.memory.provenance import random_priority
from hermes_like.memory.selection import select
from hermes_like.memory.smoothing import smooth
from hermes_like.policies.base import LayerView, SelectionSpec, SmoothingSpec


def make(frames: list[int], band: str = "middle") -> LayerView:
    tensor = torch.tensor(frames, dtype=torch.int64)
    return LayerView(0, 10, band, 0.0, tensor, torch.zeros_like(tensor), None)  # type: ignore[arg-type]


def plain(frames, scores, room: int, quota: int, sinks: int, protected: int, is_even: bool):
    """The same rules, slowly."""
    newest = max(frames)
    ranks = {}
    for frame in set(frames):
        mine = sorted((i for i, f in enumerate(frames) if f == frame), key=lambda i: -scores[i])
        ranks.update({i: rank for rank, i in enumerate(mine)})

    def claim(i: int) -> int:
        if frames[i] > newest - protected:
            return 3
        if 0 <= frames[i] < sinks:
            return 2
        return 1 if frames[i] >= 0 and ranks[i] < quota else 0

    def worth(i: int) -> float:
        if is_even and claim(i) == 1:
            return float(random_priority(torch.tensor([frames[i]]), torch.tensor([0])))
        return scores[i]

    order = sorted(range(len(frames)), key=lambda i: (-claim(i), -worth(i), i))
    return sorted(order[:room])


@given(st.data())
@settings(max_examples=80, deadline=None, derandomize=True)
def test_token_selection_equals_the_plain_rules(data) -> None:
    count = data.draw(st.integers(1, 40))
    frames = sorted(data.draw(st.lists(st.integers(0, 9), min_size=count, max_size=count)))
    values = data.draw(st.permutations(range(count)))
    scores = [float(v) for v in values]
    room, quota = data.draw(st.integers(1, 45)), data.draw(st.integers(0, 3))
    sinks, protected = data.draw(st.integers(0, 2)), data.draw(st.integers(0, 2))
    order = data.draw(st.sampled_from(["score", "even"]))
    spec = SelectionSpec(frame_quota=quota, sink_frames=sinks, quota_order=order)
    kept = select(torch.tensor(scores), make(frames), spec, room, protected)
    assert kept.tolist() == plain(frames, scores, room, quota, sinks, protected, order == "even")


def test_an_even_quota_samples_the_past_alike_in_all_layers() -> None:
    """More frames than room: which ones stay does not depend on the layer's scores."""
    frames = [f for f in range(200) for _ in range(4)]
    spec = SelectionSpec(frame_quota=1, quota_order="even")
    kept = []
    for layer in range(3):
        scores = torch.rand(800, generator=torch.Generator().manual_seed(layer))
        chosen = select(scores, make(frames), spec, 60, 4)
        kept.append([frames[i] for i in chosen.tolist()])
    assert kept[0] == kept[1] == kept[2]
    assert kept[0][-16:] == [f for f in range(196, 200) for _ in range(4)]
    old = torch.tensor(kept[0][:-16])
    assert len(set(old.tolist())) == 44
    assert 60 < float(old.float().mean()) < 140, "expected all ages alike"


def test_whole_frames_never_split() -> None:
    frames = [f for f in range(10) for _ in range(4)]
    scores = torch.tensor([float(f) for f in frames])
    kept = select(scores, make(frames), SelectionSpec(whole_frames=True), 18, 0)
    assert kept.tolist() == list(range(24, 40))
    spec = SelectionSpec(whole_frames=True, sink_frames=1)
    assert select(scores, make(frames), spec, 18, 0).tolist() == [*range(4), *range(28, 40)]


def test_summary_takes_one_slot() -> None:
    frames = [f for f in range(10) for _ in range(4)]
    scores = torch.rand(40, generator=torch.Generator().manual_seed(0))
    spec = SelectionSpec(summary="weighted")
    assert select(scores, make(frames, "deep"), spec, 10, 0).shape[0] == 9
    assert select(scores, make(frames, "middle"), spec, 10, 0).shape[0] == 10
    merged = select(scores, make([-1, *frames[1:]], "deep"), spec, 10, 0)
    assert 0 not in merged.tolist(), "the old summary goes into the new one"


def test_unlimited_keeps_all() -> None:
    frames = list(range(30))
    assert select(torch.zeros(30), make(frames), SelectionSpec(unlimited=True), 1, 0).shape[0] == 30


@pytest.mark.parametrize("recursive", [True, False])
def test_smoothing_pairs_tokens_by_identity(recursive: bool) -> None:
    ids = [torch.tensor([5, 7, 9]), torch.tensor([7, 9, 11]), torch.tensor([5, 9, 11])]
    scores = [
        torch.tensor([1.0, 2.0, 3.0]),
        torch.tensor([10.0, 20.0, 30.0]),
        torch.tensor([100.0, 200.0, 300.0]),
    ]
    spec = SmoothingSpec({"shallow": 0.1, "middle": 0.5, "deep": 0.4}, recursive=recursive)
    first, second, third = smooth(scores, ids, ["shallow", "middle", "deep"], spec)
    assert torch.equal(third, scores[2])
    torch.testing.assert_close(second, torch.tensor([10.0, 110.0, 165.0]))
    seven, nine = (10.0, 110.0) if recursive else (10.0, 20.0)
    want = [1.0, 0.9 * 2 + 0.1 * seven, 0.9 * 3 + 0.1 * nine]
    torch.testing.assert_close(first, torch.tensor(want))


def test_smoothing_leaves_its_input_alone() -> None:
    scores = [torch.ones(3), torch.zeros(3)]
    ids = [torch.arange(3)] * 2
    smooth(
        scores, ids, ["shallow", "deep"], SmoothingSpec({"shallow": 0.5, "middle": 0, "deep": 0})
    )
    assert torch.equal(scores[0], torch.ones(3))
