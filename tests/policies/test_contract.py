"""One test that every retention policy passes, and the variants of HERMES beside it."""

from __future__ import annotations

import pytest
import torch

from hermes_like.config import PolicyConfig
from hermes_like.errors import ConfigError
from hermes_like.memory.bands import band_of, band_progress
from hermes_like.policies import POLICIES, LayerView

PER_FRAME = 6


def view(layer: int, num_frames: int, *, with_summary: bool = False, layers: int = 10) -> LayerView:
    """Video tokens of a layer with random attention mass."""
    ids = torch.arange(num_frames * PER_FRAME)
    frames, cells = ids // PER_FRAME, ids % PER_FRAME
    if with_summary:
        frames = torch.cat([torch.tensor([-1]), frames])
        cells = torch.cat([torch.tensor([-1]), cells])
    mass = torch.rand(frames.shape[0], generator=torch.Generator().manual_seed(layer))
    return LayerView(
        layer, layers, band_of(layer, layers), band_progress(layer, layers), frames, cells, mass
    )


@pytest.mark.parametrize("layer", [0, 4, 9])
@pytest.mark.parametrize("num_frames", [0, 1, 30])
@pytest.mark.parametrize("name", POLICIES.names())
def test_contract(name: str, num_frames: int, layer: int) -> None:
    policy = POLICIES.get(name)(PolicyConfig(name=name))
    seen = view(layer, num_frames, with_summary=num_frames > 1)
    before = [t.clone() for t in (seen.frames, seen.cells, seen.mass)]
    scores = policy.score(seen)
    assert scores.shape == seen.frames.shape
    assert scores.dtype == torch.float32
    assert bool(torch.isfinite(scores).all())
    assert torch.equal(scores, policy.score(seen)), "expected the same scores for the same view"
    assert all(map(torch.equal, before, (seen.frames, seen.cells, seen.mass)))


def test_unknown_name_suggests_the_nearest() -> None:
    with pytest.raises(ConfigError, match="did you mean 'hermes'"):
        POLICIES.get("hermess")


def test_uniform_priorities_are_fixed_and_even() -> None:
    policy = POLICIES.get("uniform")(PolicyConfig(name="uniform", seed=3))
    early, late = policy.score(view(0, 100)), policy.score(view(0, 4000))
    assert torch.equal(early, late[:600]), "a token's priority may not change as the stream grows"
    counts = torch.histc(late, bins=8, min=0, max=1)
    assert float(counts.std() / counts.mean()) < 0.05
    other = POLICIES.get("uniform")(PolicyConfig(name="uniform", seed=4)).score(view(0, 100))
    assert not torch.equal(early, other)


def test_hermes_blends_recency_and_mass_by_depth() -> None:
    policy = POLICIES.get("hermes")(PolicyConfig(name="hermes"))
    shallow, deep = view(0, 20), view(9, 20)
    assert torch.equal(policy.score(shallow).argsort(), torch.arange(120)), "shallow: newer wins"
    assert torch.equal(policy.score(deep).argsort(), deep.mass.argsort()), "deep: mass alone"


def test_hermes_constants_are_the_papers() -> None:
    """Section 1.6: w from 0.75 down by 0.6 u, k from 20 down by 12 u, over the middle band."""
    policy = POLICIES.get("hermes")(PolicyConfig(name="hermes"))
    assert policy.recency(view(0, 1)) == (1.0, 20.0)
    assert policy.recency(view(1, 1)) == (0.75, 20.0)
    weight, rate = policy.recency(view(4, 1))
    assert (weight, rate) == pytest.approx((0.75 - 0.6 * 0.5, 20 - 12 * 0.5))
    assert policy.recency(view(8, 1)) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("layers", "first_middle", "first_deep"), [(24, 2, 16), (28, 2, 19), (36, 3, 25), (80, 8, 56)]
)
def test_bands_of_released_models(layers: int, first_middle: int, first_deep: int) -> None:
    """The table of section 1.2 of the method."""
    bands = [band_of(layer, layers) for layer in range(layers)]
    assert bands.index("middle") == first_middle
    assert bands.index("deep") == first_deep
