"""RVS-Ego and RVS-Movie: many open questions per long video, each at its time.

Two editions: cut clips with a list of cuts (VStream-QA), and whole videos with conversations
(the one that streaming projects use). Films are arrays or folders with one picture per second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from hermes_like.evaluation import fields
from hermes_like.evaluation.build import Builder, yes_no
from hermes_like.evaluation.readers.folder import (
    FolderReader,
    Shape,
    Source,
    each_row,
    is_list_with,
    tolerant,
)
from hermes_like.evaluation.readers.rekv import conversion


class RVSEgo(FolderReader):
    """Egocentric videos of about an hour."""

    title = "RVS-Ego"
    #: Annotation files: conversations, then questions and cuts of the original edition.
    names: ClassVar[tuple[str, str, str]] = ("ego4d_oe.json", "test_qa_ego4d.json", "rvs_ego.json")
    usual: ClassVar[tuple[int, int]] = (10, 1465)
    usual_clips: ClassVar[tuple[int, int]] = (99, 1465)
    #: Pictures per second; None: they are video files.
    fps: ClassVar[float | None] = None

    def shapes(self) -> Sequence[Shape]:
        """Conversations first, since published streaming results use them."""
        conversations, questions, cuts = self.names
        # The other half of the download, about whole videos, has files of the same names.
        folder = "vstream-realtime"
        online = (f"{folder}/{questions}", f"{folder}/{cuts}")
        read = partial(_read, fps=self.fps)
        return [
            conversion(conversations, edition="ReKV edition", usual=self.usual),
            Shape("VStream-QA, cut clips", online, read, _is_half, self.usual_clips),
            Shape("VStream-QA, files alone", (questions, cuts), read, _is_half),
        ]


class RVSMovie(RVSEgo):
    """Films, one picture per shot or second."""

    title = "RVS-Movie"
    names = ("movienet_oe.json", "test_qa_movienet.json", "rvs_movie.json")
    usual = (22, 1905)
    usual_clips = (1000, 1905)
    fps = 1.0


def _is_half(content: Any) -> bool:
    """Questions, or the list of cuts."""
    return any(is_list_with("video_id", name)(content) for name in ("question", "original_video"))


def _read(sources: Sequence[Source], builder: Builder, *, fps: float | None) -> None:
    cuts: dict[str, Mapping[str, Any]] = {}
    for source in sources:
        cuts |= {str(row["video_id"]): row for row in source.rows if "original_video" in row}
    for source in sources:
        for _, where, row in each_row(source):
            if "question" in row:
                tolerant(builder, where, partial(_add, builder, row, cuts, fps))
    if not cuts:
        builder.remarks.append("no list of cuts: the clips must lie there as files of their own")
    if fps is not None:
        builder.remarks.append("times of films count pictures, one per second of the stream")


def _add(
    builder: Builder,
    row: Mapping[str, Any],
    cuts: Mapping[str, Mapping[str, Any]],
    fps: float | None,
) -> None:
    clip = str(row["video_id"])
    cut = cuts.get(clip, {})
    start_s, _ = fields.seconds(cut.get("start_time", cut.get("start_shot", 0)))
    end = cut.get("end_time", cut.get("end_shot"))
    end_s = None if end is None else fields.seconds(end)[0]
    original = str(cut.get("original_video", clip))
    # A clip that was cut out already begins at 0.
    own = builder.listing.find(clip)
    if own is not None and original != clip:
        original, start_s, end_s = clip, 0.0, None if end_s is None else end_s - start_s
    video = builder.video(clip, original, start_s=start_s, end_s=end_s, fps=fps)
    ask_s = end_s
    if ask_s is None and row.get("duration") is not None:
        ask_s = start_s + fields.seconds(row["duration"])[0]
    answer = None if row.get("answer") is None else str(row["answer"])
    builder.add(
        f"{clip}/{row['id']}",
        video,
        row["question"],
        "open",
        str(row.get("answer_type", "all")),
        ask_s,
        gold=answer,
        tags={"answer": "free" if yes_no(answer) is None else "yes/no"},
        raw=row,
    )
