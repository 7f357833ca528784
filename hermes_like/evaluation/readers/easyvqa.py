"""The dataset that ``hermes-like eval make-easyvqa`` writes: streams of easy-VQA images.

Rows of the table say how a question names its image and how many images later it is asked:
``now what``, ``16 later yes/no``, ``by time 256 later what``. "Later" questions name the image by
what it shows, "by time" ones by when it was shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from hermes_like.easyvqa.questions import COLORS, SHAPES, YES_NO
from hermes_like.errors import DatasetError
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.readers.folder import FolderReader, Shape, Source, tolerant

#: Name of the annotation file, and what its content calls itself.
FILE, FORMAT = "easyvqa.json", "easyvqa-streams-1"
#: Images per second.
FPS = 1.0
_OPTIONS = {"shape": SHAPES, "color": COLORS, "yes_no": YES_NO}
_NAMINGS = {"now": "now", "content": "{later} later", "time": "by time {later} later"}


class EasyVQA(FolderReader):
    """Questions in words; the reply is looked for among the options, no letter is asked for."""

    title = "easy-VQA streams"

    def shapes(self) -> Sequence[Shape]:
        """The file as it is written."""
        return (Shape("easy-VQA streams", (FILE,), _read, _accepts, by_name=True),)


def category_of(naming: str, later: int, wanted: str) -> str:
    """Row of the table.

    Args:
        naming: ``now``, ``content`` or ``time``.
        later: Images between the image and the question.
        wanted: ``shape``, ``color`` or ``yes_no``.

    Raises:
        KeyError: An unknown naming.
    """
    named = _NAMINGS[naming].format(later=later)
    return f"{named} {'yes/no' if wanted == 'yes_no' else 'what'}"


def _accepts(content: Any) -> bool:
    return isinstance(content, dict) and content.get("format") == FORMAT


def _read(sources: Sequence[Source], builder: Builder) -> None:
    if len(sources) > 1:
        names = ", ".join(source.name for source in sources)
        raise DatasetError(f"several files of easy-VQA streams ({names}): name the one to read")
    (source,) = sources
    for index, row in enumerate(source.table["streams"]):
        folder = str(row["folder"])
        video = builder.video(
            str(row["name"]), folder, duration_s=len(row["images"]) / FPS, fps=FPS
        )
        for number, entry in enumerate(row["questions"]):
            add = partial(_add, builder, video, f"{video}/{number}", entry)
            tolerant(builder, f"{source.name}#{index}/{number}", add)


def _add(builder: Builder, video: str, question_id: str, entry: Mapping[str, Any]) -> None:
    wanted, naming = str(entry["wanted"]), str(entry["naming"])
    shown_s, asked_s = float(entry["shown_s"]), float(entry["asked_s"])
    options, gold, index = builder.choice(question_id, _OPTIONS[wanted], entry["answer"], "text")
    builder.add(
        question_id,
        video,
        entry["question"],
        "choice",
        category_of(naming, round((asked_s - shown_s) * FPS), wanted),
        builder.ask_s(question_id, asked_s),
        options=options,
        gold=gold,
        gold_index=index,
        evidence=((shown_s, shown_s + 1 / FPS),),
        tags={"naming": naming, "wanted": wanted},
        raw=entry,
    )
