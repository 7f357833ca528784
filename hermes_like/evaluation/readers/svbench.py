"""SVBench: chains of open questions on segments (dialogue), and paths that jump between them.

Both keep the model's own words as history. Its score needs a judge; see the submission files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    is_list_with,
    tolerant,
)


class Dialogue(FolderReader):
    """Each chain asked turn by turn on its own segment."""

    title = "SVBench, dialogue"
    folders: ClassVar[tuple[str, str]] = ("Dialogue_EN", "Dialogue_ZH")
    #: Field that tells one of its files.
    field: ClassVar[str] = "chain"

    def shapes(self) -> Sequence[Shape]:
        """English, and the same in Chinese."""
        english, chinese = self.folders
        accepts = is_list_with(self.field)
        return [
            Shape("English", (f"{english}/*.json",), self.read, accepts),
            Shape("Chinese", (f"{chinese}/*.json",), self.read, accepts),
        ]

    def read(self, sources: Sequence[Source], builder: Builder) -> None:
        """Every file is one video; every chain of it is one conversation."""
        for source in sources:
            for index, row in enumerate(source.rows):
                thread = f"{source.path.stem}/{index}"
                tolerant(builder, f"{source.name}#{index}", partial(_chain, builder, thread, row))


class Streaming(Dialogue):
    """Paths through the chains; the video is shown up to the segment of each question."""

    title = "SVBench, streaming"
    folders = ("Streaming_EN", "Streaming_ZH")
    field = "timestamps"

    def read(self, sources: Sequence[Source], builder: Builder) -> None:
        """Every file is one video; every path through it is one conversation."""
        for source in sources:
            for index, row in enumerate(source.rows):
                thread = f"{source.path.stem}/{index}"
                tolerant(builder, f"{source.name}#{index}", partial(_path, builder, thread, row))


def _chain(builder: Builder, thread: str, row: Mapping[str, Any]) -> None:
    start_s, _ = fields.seconds(row["qac_timestamps_start"])
    end_s, _ = fields.seconds(row["qac_timestamps_end"])
    chain = row["chain"]
    turns = list(zip(chain["questions"], chain["answers"], strict=True))
    _turns(builder, thread, [(text, answer, start_s, end_s) for text, answer in turns], row)


def _path(builder: Builder, thread: str, row: Mapping[str, Any]) -> None:
    turns = [
        (text, answer, 0.0, fields.seconds(end)[0])
        for text, answer, (_, end) in zip(
            row["questions"], row["answers"], row["timestamps"], strict=True
        )
    ]
    _turns(builder, thread, turns, row)


def _turns(
    builder: Builder,
    thread: str,
    turns: Sequence[tuple[str, str, float, float]],
    row: Mapping[str, Any],
) -> None:
    name = thread.split("/")[0]
    video = builder.video(name, name)
    for number, (text, answer, start_s, end_s) in enumerate(turns):
        builder.add(
            f"{thread}/{number}",
            video,
            text,
            "open",
            "all",
            end_s,
            gold=str(answer),
            start_s=start_s,
            item_id=thread,
            conversation="own_history",
            thread=thread,
            raw=row,
        )
