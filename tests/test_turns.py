"""Who gets the model next."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from hermes_like.turns import Turns, Urgency

WAIT_S = 10.0


def wait_until(condition: Callable[[], bool]) -> None:
    until_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < until_s, "nothing happened"
        time.sleep(0.001)


def order_of(turns: Turns, waiters: list[tuple[str, Urgency, float]]) -> list[str]:
    """Names in the order in which they got their turn; each waits some time before the next."""
    served: list[str] = []

    def wait(name: str, urgency: Urgency) -> None:
        with turns.take(urgency):
            served.append(name)

    threads = []
    with turns.take():
        for place, (name, urgency, pause_s) in enumerate(waiters, start=1):
            thread = threading.Thread(target=wait, args=(name, urgency))
            thread.start()
            threads.append(thread)
            wait_until(lambda place=place: turns.num_waiting == place)  # type: ignore[misc]
            time.sleep(pause_s)
    for thread in threads:
        thread.join(WAIT_S)
    return served


def test_first_text_goes_before_frames_and_frames_in_the_order_they_came() -> None:
    usual, first = Urgency.USUAL, Urgency.FIRST_TEXT
    waiters = [("frame 1", usual, 0.0), ("frame 2", usual, 0.0), ("q", first, 0.0)]
    assert order_of(Turns(60.0), waiters) == ["q", "frame 1", "frame 2"]


def test_a_frame_that_waited_too_long_goes_before_a_question() -> None:
    waiters = [("frame", Urgency.USUAL, 0.05), ("q", Urgency.FIRST_TEXT, 0.0)]
    assert order_of(Turns(0.02), waiters) == ["frame", "q"]


def test_one_turn_at_a_time_from_many_threads() -> None:
    turns = Turns(0.01)
    inside, most, count = [0], [0], [0]

    def work(urgency: Urgency) -> None:
        for _ in range(50):
            with turns.take(urgency):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                count[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=work, args=(Urgency(i % 2),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert (most[0], count[0], turns.num_waiting) == (1, 400, 0)


def test_giving_way_lets_others_in_and_takes_the_turn_back() -> None:
    turns, served = Turns(60.0), []

    def other() -> None:
        with turns.take():
            served.append("other")

    thread = threading.Thread(target=other)
    with turns.take():
        turns.give_way()  # nobody waits: nothing happens
        thread.start()
        wait_until(lambda: turns.num_waiting == 1)
        turns.give_way()
        served.append("back")
        blocked = threading.Thread(target=other)
        blocked.start()
        wait_until(lambda: turns.num_waiting == 1)
        time.sleep(0.02)
        assert served == ["other", "back"], "the turn is held again"
    thread.join(WAIT_S)
    blocked.join(WAIT_S)
    assert served == ["other", "back", "other"]


def test_a_turn_ends_when_the_work_fails() -> None:
    turns = Turns(60.0)
    with pytest.raises(ValueError, match="broken"), turns.take():
        raise ValueError("broken")
    with turns.take():
        pass
