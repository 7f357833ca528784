"""A small dataset of scripted streams for trying things out: videos, and questions with the truth.

The annotations have the shape that most streaming projects convert their sets to, so that every
reader and every tool that knows it can read them. Knows the sprites world; knows no model.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hermes_like.errors import DatasetError
from hermes_like.evaluation.readers.sprites import FILE
from hermes_like.sprites.questions import GROUPS, MAX_COUNT, Question, draw_question, types_of
from hermes_like.sprites.stories import draw_story, one_of
from hermes_like.sprites.world import COLORS, DIGITS, SHAPES, ZONES, Event, Story

#: Options of a question, the true one included.
NUM_OPTIONS = 4
#: A question needs something to have been seen.
FIRST_S = 4


def make_sprites(
    folder: Path,
    *,
    num_videos: int = 4,
    seconds: int = 120,
    num_questions: int = 20,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Write videos of the sprites world and questions about them.

    Args:
        folder: Made if it is not there.
        num_videos: How many.
        seconds: Length of each; one sampled frame per second.
        num_questions: About each, at times spread over it, all groups of questions in turn.
        seed: The same seed gives the same questions and pictures.
        progress: Called with how many videos are done and how many there are.

    Returns:
        The annotation file.

    Raises:
        DatasetError: The folder holds annotations already.
    """
    from hermes_like.sprites.video import write_story_video

    path = folder / FILE
    if path.exists():
        raise DatasetError(f"{path}: expected a folder without annotations; they are not replaced")
    (folder / "videos").mkdir(parents=True, exist_ok=True)
    rows = []
    for number in range(num_videos):
        rng = np.random.default_rng([seed, number])
        story = draw_story(rng, seconds, min_event_frames=2)
        name = f"sprites-{number}"
        write_story_video(story, folder / "videos" / f"{name}.mp4", video_fps=2, seed=seed + number)
        rows.append(
            {
                "video_id": name,
                "video_path": f"videos/{name}.mp4",
                "duration": float(seconds),
                "conversations": _conversations(rng, story, num_questions),
            }
        )
        if progress is not None:
            progress(number + 1, num_videos)
    # Last and at once: a folder with annotations is whole.
    draft = path.with_suffix(".tmp")
    draft.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    os.replace(draft, path)
    return path


def until(story: Story, num_frames: int) -> Story:
    """The beginning of a story."""
    events, left = [], num_frames
    for event in story.events:
        if left <= 0:
            break
        events.append(Event(event.sprites, min(event.num_frames, left)))
        left -= event.num_frames
    return Story(tuple(events))


def options_of(rng: np.random.Generator, question: Question) -> tuple[str, ...]:
    """The true answer among others of its kind, in random order."""
    kind = dict.fromkeys(_kind_of(rng, question))
    others = [word for word in kind if word != question.answer]
    order = rng.permutation(len(others))[: NUM_OPTIONS - 1]
    found = [question.answer, *(others[int(place)] for place in order)]
    return tuple(found[int(place)] for place in rng.permutation(len(found)))


def _conversations(
    rng: np.random.Generator, story: Story, num_questions: int
) -> list[dict[str, Any]]:
    times = sorted(rng.integers(FIRST_S, story.num_frames, num_questions).tolist())
    found = []
    for number, at_s in enumerate(times):
        # The frame of second ``at_s`` is the newest one that may be seen.
        seen = until(story, at_s + 1)
        question = _question(rng, seen, number)
        if question is None:
            continue
        found.append(
            {
                "question": question.text,
                "choices": list(options_of(rng, question)),
                "answer": question.answer,
                "question_type": question.group,
                "end_time": float(at_s),
                "temporal_windows": [
                    [float(seen.start_frame(index)), _end_s(seen, index)]
                    for index in question.evidence
                ],
            }
        )
    return found


def _question(rng: np.random.Generator, seen: Story, number: int) -> Question | None:
    """A question of the group whose turn it is, or of another one where it allows none."""
    for step in range(len(GROUPS)):
        types = types_of(GROUPS[(number + step) % len(GROUPS)])
        for place in rng.permutation(len(types)):
            question = draw_question(rng, seen, types[int(place)])
            if question is not None:
                return question
    return None


def _end_s(story: Story, index: int) -> float:
    return float(story.start_frame(index) + story.events[index].num_frames)


def _kind_of(rng: np.random.Generator, question: Question) -> Sequence[str]:
    """Answers of the same kind."""
    answer = question.answer
    if question.group == "exists" or answer in ("yes", "no"):
        return ("yes", "no")
    if question.group == "count":
        return tuple(map(str, range(MAX_COUNT + 1)))
    if "number" in question.type:
        return (*map(str, DIGITS), "none", "nothing")
    if question.type in ("now_where", "now_where_of") or question.type.startswith("recall_where"):
        return (*ZONES, "nothing")
    if question.type in ("now_color", "now_color_of", "recall_color"):
        return (*COLORS, "nothing")
    if question.type in ("now_shape", "now_shape_at", "recall_shape"):
        return (*SHAPES, "nothing")
    objects = [f"{one_of(rng, COLORS)} {one_of(rng, SHAPES)}" for _ in range(2 * NUM_OPTIONS)]
    return [*objects, "nothing"]
