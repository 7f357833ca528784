"""Scripted sprites: the same reference gives the same pixels; a story survives as a video."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.frames import sampled
from hermes_like.sources import open_source
from hermes_like.sprites.render import COLOR_LEVELS, ZONE_CENTERS
from hermes_like.sprites.source import SpritesSource, picture_of
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.video import write_story_video
from hermes_like.sprites.world import Event, Sprite, Story


def test_a_reference_is_deterministic_and_sampling_does_not_change_pixels() -> None:
    with open_source("sprites:seed=3,frames=8,fps=2") as source:
        every = list(source)
    with sampled(open_source("sprites:seed=3,frames=8,fps=2")) as feed:
        some = list(feed)
    assert [frame.pts_s for frame in every] == [index / 2 for index in range(8)]
    assert [frame.index for frame in some] == [0, 2, 4, 6]
    for frame in some:
        np.testing.assert_array_equal(frame.image, every[frame.index].image)
    with open_source("sprites:seed=4,frames=8,fps=2") as source:
        assert not np.array_equal(next(iter(source)).image, every[0].image)


def test_picture_of_is_what_the_source_shows() -> None:
    story = draw_story(np.random.default_rng(1), 6)
    with SpritesSource(story, seed=9) as source:
        for frame in source:
            np.testing.assert_array_equal(frame.image, picture_of(story, frame.index, seed=9))
    assert source.duration_s == 6.0


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        ("sprites:frame=3", "did you mean 'frames'"),
        ("sprites:frames=many", "frames: expected a number, got 'many'"),
        ("sprites:frames=0", "frames: expected at least 1, got 0"),
        ("sprites:fps=nan", "fps: expected at least"),
    ],
)
def test_bad_references_say_what_is_wrong(reference: str, message: str) -> None:
    with pytest.raises(SourceOpenError, match=message):
        open_source(reference)


def test_defaults_give_two_minutes() -> None:
    with open_source("sprites:") as source:
        assert source.duration_s == 120.0


def test_a_story_survives_as_a_video(tmp_path: Path) -> None:
    kinds = [("circle", "red"), ("square", "blue"), ("star", "yellow"), ("moon", "green")]
    events = [Event((Sprite(s, c, "center"),), 2) for s, c in kinds]  # type: ignore[arg-type]
    story = Story(tuple(events))
    path = write_story_video(story, tmp_path / "story.mp4", fps=2, seed=5)
    with sampled(open_source(path), SourceConfig(sample_fps=2)) as feed:
        frames = list(feed)
    assert [frame.pts_s for frame in frames] == [index / 2 for index in range(8)]
    assert feed.source.duration_s == pytest.approx(4.0)
    for index, frame in enumerate(frames):
        drawn = picture_of(story, index, seed=5)
        assert float(np.abs(frame.image.astype(int) - drawn).mean()) < 4.0
        x, y = ZONE_CENTERS["center"]
        patch = frame.image[int(240 * y) + 2, int(320 * x) + 2].astype(int)
        wanted = COLOR_LEVELS[kinds[index // 2][1]]  # type: ignore[index]
        if kinds[index // 2][0] != "moon":
            assert np.abs(patch - wanted).max() < 40


@pytest.mark.parametrize(("fps", "video_fps"), [(1.0, 10), (3.0, 10), (0.5, 4)])
def test_each_frame_is_held_and_sampled_once(tmp_path: Path, fps: float, video_fps: int) -> None:
    story = Story((Event((Sprite("circle", "red", "center"),), 6),))
    path = write_story_video(story, tmp_path / "held.mp4", fps=fps, video_fps=video_fps)
    with sampled(open_source(path), SourceConfig(sample_fps=fps)) as feed:
        assert len(list(feed)) == 6
    assert feed.num_read == 6 * video_fps / fps
