"""Watch a video, ask about it on the way and at its end, and show what memory holds.

Without a video a two-minute one is rendered from a script, so that every answer can be compared
with the truth. This is what ``make demo`` and ``hermes-like demo --text`` run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from tqdm import tqdm

from hermes_like import cli
from hermes_like.cli.options import build_config
from hermes_like.cli.output import clock, print_answer
from hermes_like.cli.show_memory import print_stats
from hermes_like.cli.stream import watching
from hermes_like.sprites.questions import Question, draw_question
from hermes_like.sprites.stories import draw_story
from hermes_like.sprites.world import Event, Story

if TYPE_CHECKING:
    from hermes_like.session import StreamSession

VIDEO = Path("runs/demo/sprites.mp4")
SEED = 0
NUM_FRAMES = 120
#: Stream time in seconds (a frame stands for one), type of question, and the answers it may have;
#: no answers: any but "nothing".
SCHEDULE: tuple[tuple[int, str, tuple[str, ...]], ...] = (
    (20, "now_what", ()),
    (45, "recall_color", ()),
    (60, "exists_pair", ("yes",)),
    (75, "now_what", ()),
    (90, "order_after", ()),
    (105, "order_before", ()),
    (120, "recall_object", ()),
    (120, "recall_where", ()),
    (120, "exists_pair", ("no",)),
    (120, "now_what", ()),
)


@dataclass(frozen=True, slots=True)
class Query:
    """A question, when it is asked, and what is known about the true answer.

    Attributes:
        at_s: Stream time in seconds.
        text: The question.
        truth: The true answer, None where nobody knows it.
        shown: Spans of stream time, in seconds, that hold the truth.
    """

    at_s: float
    text: str
    truth: str | None = None
    shown: tuple[tuple[float, float], ...] = ()


def run(video: str | None = None, questions: Sequence[str] = (), model: str | None = None) -> int:
    """Run the demonstration.

    Args:
        video: Video file; None: render one.
        questions: What to ask at the end; none: what the script asks.
        model: Model name; None: the bundled sprites model.

    Returns:
        Number of scripted questions that were answered wrongly.
    """
    queries = [Query(float("inf"), text) for text in questions]
    if video is None:
        story = draw_story(np.random.default_rng(SEED), NUM_FRAMES, min_event_frames=2)
        video = render(story)
        queries = queries or scripted_queries(story)
    elif model in (None, "sprites"):
        print(
            "The bundled model knows only its scripted world of sprites; MODEL=... names another."
        )
    if not queries:
        queries = [Query(float("inf"), "what is visible now ?")]
    return watch_and_ask(video, queries, model)


def render(story: Story) -> str:
    """Write the video and say where it is."""
    from hermes_like.sprites.video import write_story_video

    VIDEO.parent.mkdir(parents=True, exist_ok=True)
    write_story_video(story, VIDEO, seed=SEED)
    print(f"rendered {VIDEO}: {clock(story.num_frames)} of coloured shapes that come and go")
    return str(VIDEO)


def scripted_queries(story: Story) -> list[Query]:
    """Draw one question per entry of the schedule, about what has been shown until then."""
    rng = np.random.default_rng(SEED)
    queries = []
    for at_s, type, answers in SCHEDULE:
        seen = first_frames(story, at_s)
        question = draw(rng, seen, type, answers)
        if question is None:
            continue
        starts = [story.start_frame(index) for index in question.evidence]
        lengths = [seen.events[index].num_frames for index in question.evidence]
        shown = tuple((float(s), float(s + n)) for s, n in zip(starts, lengths, strict=True))
        queries.append(Query(at_s, question.text, question.answer, shown))
    return queries


def draw(
    rng: np.random.Generator, seen: Story, type: str, answers: tuple[str, ...]
) -> Question | None:
    """Draw a question with one of the answers (no answers: any but "nothing")."""
    for _ in range(200):
        question = draw_question(rng, seen, type)
        if question is None:
            continue
        if question.answer in answers or (not answers and question.answer != "nothing"):
            return question
    return None


def first_frames(story: Story, num_frames: int) -> Story:
    """The story as it was told when this many frames had been shown."""
    events: list[Event] = []
    for event in story.events:
        left = num_frames - sum(e.num_frames for e in events)
        if left <= 0:
            break
        events.append(Event(event.sprites, min(event.num_frames, left)))
    return Story(tuple(events))


def watch_and_ask(video: str, queries: list[Query], model: str | None) -> int:
    """Ask every query when the stream has reached its time, then show the memory."""
    waiting = sorted(queries, key=lambda query: query.at_s)
    config = build_config(model=model)
    wrong = 0
    start = time.perf_counter()
    with watching(video, config, show_progress=True) as (session, frames):
        for frame in frames:
            while waiting and waiting[0].at_s <= frame.pts_s:
                wrong += not ask(session, waiting.pop(0))
            session.observe(frame)
        seconds = time.perf_counter() - start
        for query in waiting:
            wrong += not ask(session, query)
        stats = session.stats()
    print(
        f"\nwatched {clock(stats.stream_s)} of video in {seconds:.1f} s, model loading included\n"
    )
    print_stats(stats, Console())
    scripted = [query for query in queries if query.truth is not None]
    if scripted:
        print(f"\n{len(scripted) - wrong} of {len(scripted)} answers are right.")
    return wrong


def ask(session: StreamSession, query: Query) -> bool:
    """Ask, print, compare; returns False only for an answer known to be wrong."""
    answer = session.ask(query.text)
    is_right = query.truth is None or answer.text == query.truth
    with tqdm.external_write_mode():
        print_answer(answer, as_json=False)
        if query.truth is not None:
            spans = ", ".join(f"{clock(start)}-{clock(end)}" for start, end in query.shown)
            where = f", shown at {spans}" if spans else ""
            print(f"            {'right' if is_right else 'WRONG'}: truth is {query.truth}{where}")
    return is_right


if __name__ == "__main__":
    sys.exit(cli.run(["demo", "--text", *sys.argv[1:]]))
