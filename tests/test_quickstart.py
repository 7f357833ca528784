"""The script of the demonstration: what it asks, and that its truths are true."""

from __future__ import annotations

import numpy as np

from demos import quickstart
from hermes_like.sprites.stories import draw_story


def test_script_asks_every_kind_of_question() -> None:
    story = draw_story(
        np.random.default_rng(quickstart.SEED), quickstart.NUM_FRAMES, min_event_frames=2
    )
    queries = quickstart.scripted_queries(story)
    assert len(queries) == len(quickstart.SCHEDULE)
    assert {"yes", "no"} <= {query.truth for query in queries}
    for query in queries:
        assert all(0 <= start < end <= query.at_s for start, end in query.shown)
        assert query.shown or query.truth == "no"


def test_first_frames_cut_the_story() -> None:
    story = draw_story(np.random.default_rng(0), 50, min_event_frames=2)
    for num_frames in (0, 1, 17, 50):
        seen = quickstart.first_frames(story, num_frames)
        assert list(seen.frames()) == list(story.frames())[:num_frames]
