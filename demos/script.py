"""Built-in scenarios: what they are called, what can be asked about them, and what is true.

The script of a scenario is known, so answers can be compared with the truth. Knows no page.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from demos.quickstart import draw, first_frames
from hermes_like.sources import open_source
from hermes_like.sprites.questions import Question
from hermes_like.sprites.source import SpritesSource
from hermes_like.sprites.video import write_story_video

#: What a scenario is called, and its reference.
SCENARIOS: dict[str, str] = {
    "Two minutes of shapes": "sprites:seed=0,frames=120",
    "Ten minutes of shapes": "sprites:seed=4,frames=600",
    "An hour of shapes": "sprites:seed=7,frames=3600",
}
#: Types of suggested questions, and the answers they may have; none: any but "nothing".
SUGGESTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("now_what", ()),
    ("recall_color", ()),
    ("recall_where", ()),
    ("order_after", ()),
)
#: Questions for a model that knows the real world.
REAL_QUESTIONS = (
    "What is happening now?",
    "What happened at the beginning?",
    "What changed in the last minute?",
    "How many people appeared?",
)
#: The same for the bundled model where nobody knows the script.
SPRITES_QUESTIONS = (
    "what is visible now ?",
    "what color was the star ?",
    "was there a red circle ?",
    "what came first ?",
)
#: A longer film gets one picture per second, so that writing it does not take minutes.
_SMOOTH_FRAMES = 300


@dataclass(frozen=True, slots=True)
class Truth:
    """What is true, and where it was shown, as spans of stream time in seconds."""

    answer: str
    shown: tuple[tuple[float, float], ...]


class Script:
    """The script behind a scenario.

    Args:
        reference: As ``sprites:seed=0,frames=120``.
    """

    def __init__(self, reference: str) -> None:
        source = open_source(reference)
        if not isinstance(source, SpritesSource):
            raise ValueError(f"reference: expected sprites:..., got {reference!r}")
        self.story, self.fps, self.seed = source.story, source.fps, source.seed

    def suggest(self, num_frames: int) -> dict[str, Truth]:
        """Questions about what was shown in the first frames, with their truth."""
        seen = first_frames(self.story, num_frames)
        rng = np.random.default_rng([self.seed, num_frames])
        found: dict[str, Truth] = {}
        for kind, answers in SUGGESTED:
            question = draw(rng, seen, kind, answers) if seen.events else None
            if question is not None:
                found[question.text] = self._truth(question, num_frames)
        return found

    def _truth(self, question: Question, num_frames: int) -> Truth:
        seen = first_frames(self.story, num_frames)
        shown = []
        for index in question.evidence:
            start = self.story.start_frame(index)
            end = start + seen.events[index].num_frames
            shown.append((start / self.fps, end / self.fps))
        return Truth(question.answer, tuple(shown))

    def write_clip(self, path: Path) -> Path:
        """Write the scenario as a film for a browser."""
        smooth = 4 if self.story.num_frames <= _SMOOTH_FRAMES else 1
        return write_story_video(
            self.story, path, fps=self.fps, video_fps=max(smooth, round(self.fps)), seed=self.seed
        )
