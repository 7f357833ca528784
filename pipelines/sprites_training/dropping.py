"""Which video tokens a training sample loses, when, and where positions have holes.

The memory that this model serves evicts tokens, drops them before the decoder, and puts blocks back
at new positions; a sample imitates all three. The module knows neither questions nor features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from hermes_like.sprites.tokenizer import TOKENS_PER_FRAME

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Frame time of what comes after the video; larger than every frame index.
AFTER_VIDEO = 1 << 20
NEVER = AFTER_VIDEO + 1
MAX_WINDOW_FRAMES = 7
MAX_GAP = 2_500


@dataclass(frozen=True, slots=True)
class Hardships:
    """How often samples lose tokens or have gaps in their positions.

    Attributes:
        drop_share: Share of samples that lose tokens older than a recent window.
        gap_share: Share of samples with gaps in the positions.
        evict_share: Of those that lose tokens, how many lose them after having seen them.
    """

    drop_share: float = 0.5
    gap_share: float = 0.45
    evict_share: float = 0.45


@dataclass(frozen=True, slots=True)
class VideoPlan:
    """The video tokens of one sample, in order.

    Attributes:
        frames: ``[tokens]``, frame of each token in the sequence.
        places: ``[tokens]``, place of each token in its frame.
        positions: ``[tokens]``, counted from 0 behind ``<bos>``.
        evict_times: ``[tokens]``, first frame that no longer sees the token; ``NEVER`` if none.
        bos_gap: Positions skipped behind ``<bos>``.
        question_gap: Positions skipped before the questions.
    """

    frames: IntArray
    places: IntArray
    positions: IntArray
    evict_times: IntArray
    bos_gap: int
    question_gap: int

    @property
    def survives(self) -> BoolArray:
        """``[tokens]``, whether the question can see the token."""
        return self.evict_times == NEVER


def plan_video(rng: np.random.Generator, frame_events: IntArray, hardships: Hardships) -> VideoPlan:
    """Draw what happens to the tokens of one video.

    Args:
        rng: Source of randomness.
        frame_events: ``[frames]``, event of each frame.
        hardships: How often what happens.
    """
    num_frames = len(frame_events)
    frames = np.repeat(np.arange(num_frames), TOKENS_PER_FRAME)
    places = np.tile(np.arange(TOKENS_PER_FRAME), num_frames)
    positions = np.arange(len(frames))
    evict_times = np.full(len(frames), NEVER)
    if num_frames > 1 and rng.random() < hardships.drop_share:
        window = int(rng.integers(1, min(MAX_WINDOW_FRAMES, num_frames - 1) + 1))
        thinned = _thin(rng, frames, num_frames - window)
        if rng.random() < 0.5:
            thinned = _spare_events(rng, thinned, frame_events[frames])
        if rng.random() < hardships.evict_share:
            moment = int(rng.integers(1, num_frames + 1))
            evict_times[thinned] = np.maximum(frames + window + 1, moment)[thinned]
            evict_times[evict_times >= num_frames] = np.where(
                thinned[evict_times >= num_frames], AFTER_VIDEO, NEVER
            )
        else:
            kept = ~thinned
            has_holes = rng.random() < 0.5
            frames, places, evict_times = frames[kept], places[kept], evict_times[kept]
            positions = positions[kept] if has_holes else np.arange(len(frames))
    return _with_gaps(rng, VideoPlan(frames, places, positions, evict_times, 0, 0), hardships)


def _thin(rng: np.random.Generator, frames: IntArray, num_old_frames: int) -> BoolArray:
    is_old = frames < num_old_frames
    manner = rng.integers(3)
    if manner == 0:
        return is_old & (rng.random(len(frames)) < rng.random() * 0.75)
    if manner == 1:
        lost = rng.random(num_old_frames + 1) < rng.random() * 0.6
        return is_old & lost[np.minimum(frames, num_old_frames)]
    length = int(rng.integers(1, num_old_frames + 1))
    start = int(rng.integers(0, num_old_frames - length + 1))
    return (frames >= start) & (frames < start + length)


def _spare_events(rng: np.random.Generator, thinned: BoolArray, events: IntArray) -> BoolArray:
    """Keep at least one token of every event."""
    spared = thinned.copy()
    for event in set(events.tolist()) - set(events[~thinned].tolist()):
        members = np.flatnonzero(events == event)
        spared[members[int(rng.integers(len(members)))]] = False
    return spared


def _gap(rng: np.random.Generator) -> int:
    """Draw a gap of 1 to ``MAX_GAP`` positions, its logarithm the likelier the larger."""
    return int(np.exp(np.sqrt(rng.random()) * np.log(MAX_GAP)))


def _with_gaps(rng: np.random.Generator, plan: VideoPlan, hardships: Hardships) -> VideoPlan:
    if rng.random() >= hardships.gap_share:
        return plan
    bos_gap = _gap(rng) if rng.random() < 0.4 else 0
    question_gap = _gap(rng) if rng.random() < 0.3 else 0
    positions = plan.positions.copy()
    if rng.random() < 0.7:
        boundaries = np.flatnonzero(np.diff(plan.frames)) + 1
        for _ in range(int(rng.integers(1, 3))):
            if len(boundaries):
                positions[boundaries[int(rng.integers(len(boundaries)))] :] += _gap(rng)
    return replace(plan, positions=positions, bos_gap=bos_gap, question_gap=question_gap)
