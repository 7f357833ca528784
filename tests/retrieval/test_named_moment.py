"""A named moment is that moment, also where the range around it is cut to the stream."""

from __future__ import annotations

import pytest

from hermes_like.config import RetrievalConfig
from hermes_like.directions import is_instant, search_range
from hermes_like.retrieval.clock import StreamClock
from hermes_like.retrieval.planner import plan_question


@pytest.mark.parametrize(("said", "moment_s"), [("00:12", 12.0), ("00:03", 3.0), ("00:15", 15.0)])
@pytest.mark.parametrize("now_s", [16.0, 600.0])
def test_the_last_frame_is_the_one_that_was_named(said: str, moment_s: float, now_s: float) -> None:
    clock = StreamClock(now_s, 0.0, None)
    plan = plan_question(f"what was visible at {said}?", clock=clock, config=RetrievalConfig())
    assert is_instant(plan)
    start_s, end_s = search_range(plan)
    assert start_s == max(0.0, moment_s - 4.0)
    assert end_s == pytest.approx(moment_s)
    assert end_s >= moment_s


def test_given_limits_hold() -> None:
    clock = StreamClock(600.0, 0.0, None)
    plan = plan_question(
        "what was visible at 00:12?", clock=clock, config=RetrievalConfig(), until_s=10.0
    )
    _, end_s = search_range(plan)
    assert end_s == pytest.approx(10.0)
