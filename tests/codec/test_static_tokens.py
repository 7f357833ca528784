"""Thinning leaves out what has not changed since it was last stored, and nothing else."""

from __future__ import annotations

import math

import pytest
import torch

from hermes_like.codec.static_tokens import tokens_to_store


def turning(angles_deg: list[float]) -> torch.Tensor:
    """One place whose embedding turns, ``[frames, 1, 2]``."""
    angles = torch.tensor(angles_deg) * (math.pi / 180)
    return torch.stack((angles.cos(), angles.sin()), dim=-1)[:, None]


def test_only_what_changed_is_stored() -> None:
    generator = torch.Generator().manual_seed(0)
    frame = torch.randn(6, 32, generator=generator)
    embeds = frame.expand(5, 6, 32).clone()
    embeds[2:, 3] = torch.randn(32, generator=generator)  # place 3 changes once and stays
    embeds[4, 1] = torch.randn(32, generator=generator)
    stored, last = tokens_to_store(embeds, 0.95)
    expected = torch.zeros(5, 6, dtype=torch.bool)
    expected[0] = True
    expected[2, 3] = expected[4, 1] = True
    assert torch.equal(stored, expected)
    assert torch.equal(last, embeds[4])


def test_slow_drift_is_not_lost() -> None:
    """Every step of 1 degree is far above the threshold; the sum of 9 is not."""
    angles = [float(angle) for angle in range(46)]
    stored, last = tokens_to_store(turning(angles), math.cos(math.radians(8.5)))
    assert stored[:, 0].nonzero().flatten().tolist() == [0, 9, 18, 27, 36, 45]
    torch.testing.assert_close(last, turning([45.0])[0])


def test_segments_go_on_where_the_last_one_ended() -> None:
    """Cut anywhere, a stream stores the same tokens."""
    generator = torch.Generator().manual_seed(1)
    steps = torch.randn(24, 10, 16, generator=generator) * 0.25
    embeds = (torch.randn(10, 16, generator=generator) + steps.cumsum(0)).bfloat16()
    whole, whole_last = tokens_to_store(embeds, 0.97)
    assert 0.1 < float(whole.float().mean()) < 0.9
    parts, last = [], None
    for segment in embeds.split(5):
        stored, last = tokens_to_store(segment, 0.97, last)
        parts.append(stored)
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(last, whole_last)
    alone, _ = tokens_to_store(embeds[5:10], 0.97)
    assert bool(alone[0].all()), "a segment on its own stores its first frame"


def test_a_flicker_is_stored_when_it_comes_and_when_it_goes() -> None:
    stored, _ = tokens_to_store(turning([0, 0, 90, 0, 0]), 0.9)
    assert stored[:, 0].tolist() == [True, False, True, True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_equal_tokens_are_left_out_at_any_threshold(dtype: torch.dtype) -> None:
    """Also at 1, where rounding puts a cosine on either side, and without a direction."""
    frame = torch.randn(50, 33, generator=torch.Generator().manual_seed(2)).to(dtype)
    frame[7] = 0
    stored, _ = tokens_to_store(frame.expand(3, 50, 33), 1.0)
    assert stored.sum(dim=1).tolist() == [50, 0, 0]


def test_what_cannot_be_compared_is_stored() -> None:
    embeds = torch.ones(3, 2, 4)
    embeds[:, 1] = float("nan")
    stored, _ = tokens_to_store(embeds, 0.5)
    assert stored.tolist() == [[True, True], [False, True], [False, True]]


def test_frames_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="embeds: expected"):
        tokens_to_store(torch.zeros(3, 4), 0.9)
    with pytest.raises(ValueError, match="with a frame or last_stored"):
        tokens_to_store(torch.zeros(0, 4, 8), 0.9)
    with pytest.raises(ValueError, match=r"last_stored: expected \[4, 8\], got \[3, 8\]"):
        tokens_to_store(torch.zeros(1, 4, 8), 0.9, torch.zeros(3, 8))
    stored, last = tokens_to_store(torch.zeros(0, 4, 8), 0.9, torch.ones(4, 8))
    assert stored.shape == (0, 4)
    assert torch.equal(last, torch.ones(4, 8))
