"""Verdicts summed by video and by row of a table, and the averages that the table shows.

Knows layouts by their fields; knows neither rules nor files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hermes_like.evaluation.predictions import Prediction
from hermes_like.evaluation.scoring import statistics
from hermes_like.evaluation.scoring.official import family
from hermes_like.evaluation.scoring.statistics import Cells, Figure, mean_over
from hermes_like.evaluation.scoring.tables import Section, layout_of
from hermes_like.evaluation.scoring.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a table. Shares are 0 to 1.

    Attributes:
        name: Of the row.
        num: Questions in the denominator.
        num_asked: Questions that belong to the row.
        score: None: nothing counts.
        low: Lower end of the 95 % interval; None: it cannot be told (a single video).
        high: Upper end.
        chance: What guessing gives.
        unparsed: Share of replies that the rule could not understand, of those asked.
    """

    name: str
    num: int
    num_asked: int
    score: float | None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    unparsed: float = 0.0


def chance_of(prediction: Prediction) -> float:
    """What guessing gives: one of the options, one of yes and no, else nothing."""
    if prediction.kind == "choice":
        return 1 / max(len(prediction.options), 1)
    return 0.5 if prediction.kind == "yes_no" or is_yes_no(prediction) else 0.0


def is_yes_no(prediction: Prediction) -> bool:
    """Whether the true answer is just yes or no."""
    return (prediction.gold or "").strip().strip(".!").casefold() in ("yes", "no")


class Tally:
    """Verdicts summed by video and by row of the table.

    Args:
        rows: Predictions of one result.
        verdicts: One for each.
        videos: Order of the videos, shared by two results that are compared; None: as they come.
    """

    def __init__(
        self,
        rows: Sequence[Prediction],
        verdicts: Sequence[Verdict],
        videos: Sequence[str] | None = None,
    ) -> None:
        self.rows, self.verdicts = rows, verdicts
        videos = list(dict.fromkeys(row.video_id for row in rows)) if videos is None else videos
        self._place = {video: index for index, video in enumerate(videos)}
        self.num_videos = len(videos)
        self.layout = layout_of(family(rows[0].dataset))
        #: Sections that hold questions, with their cells.
        self.parts: list[tuple[Section, Cells]] = []
        self._members: dict[tuple[str, str], list[int]] = {}
        for section in self.layout.sections:
            self._add_section(section)
        everything = list(range(len(rows)))
        self._by_task = self._cells("macro", self._grouped(Section("macro"), everything))
        for key in ("micro", "macro", "total"):
            self._members[key, ""] = everything
        if self.layout.total == "macro" and self.parts:
            self._members["total", ""] = self._members[self.parts[0][0].title, ""]

    def figures(self) -> dict[tuple[str, str], tuple[str, Figure]]:
        """Every figure of the table by section and row; the row of a mean is ``""``."""
        found: dict[tuple[str, str], tuple[str, Figure]] = {
            ("total", ""): (self.layout.total_name, self._total()),
            ("micro", ""): ("over all questions", self._by_task.micro),
            ("macro", ""): ("over tasks", self._by_task.macro),
        }
        for section, cells in self.parts:
            found[section.title, ""] = ("mean", self._mean(section, cells))
            for index, name in enumerate(cells.names):
                found[section.title, name] = (name, cells.cell(index))
        return found

    def num_counted_videos(self, key: tuple[str, str]) -> int:
        """Videos with at least one question that counts for a figure."""
        counted = (index for index in self._members[key] if not self.verdicts[index].dropped)
        return len({self.rows[index].video_id for index in counted})

    def row(
        self,
        key: tuple[str, str],
        name: str,
        figure: Figure,
        chance: Figure,
        bounds: tuple[float, float] | None,
    ) -> Row:
        """One figure with everything that stands beside it."""
        members = self._members[key]
        counted = [index for index in members if not self.verdicts[index].dropped]
        value = statistics.point(figure, self.num_videos)
        num_videos = self.num_counted_videos(key)
        if value is None or num_videos < 2:
            bounds = None
        elif bounds is not None and bounds[0] == bounds[1]:
            # Equal scores everywhere: drawing them again says nothing about what was not asked.
            bounds = statistics.wilson(value, num_videos)
        num_unparsed = sum(not self.verdicts[index].is_parsed for index in members)
        return Row(
            name,
            len(counted),
            len(members),
            value,
            None if bounds is None else bounds[0],
            None if bounds is None else bounds[1],
            statistics.point(chance, self.num_videos),
            num_unparsed / len(members) if members else 0.0,
        )

    def chances(self) -> Tally:
        """The same table with what guessing gives in the place of every score that counts."""
        verdicts = [
            Verdict(chance_of(row), dropped=verdict.dropped)
            for row, verdict in zip(self.rows, self.verdicts, strict=True)
        ]
        return Tally(self.rows, verdicts, list(self._place))

    def _add_section(self, section: Section) -> None:
        groups = self._grouped(section, range(len(self.rows)))
        if groups:
            self.parts.append((section, self._cells(section.title, groups)))
            self._members[section.title, ""] = [i for group in groups.values() for i in group]

    def _grouped(self, section: Section, indices: Sequence[int]) -> dict[str, list[int]]:
        groups: dict[str, list[int]] = {name: [] for name in section.keys}
        for index in indices:
            row = self.rows[index]
            name = row.tags.get(section.tag) if section.tag else row.category
            if name is not None and (name in groups or not section.keys):
                groups.setdefault(name, []).append(index)
        names = section.keys or sorted(groups)
        return {name: groups[name] for name in names if groups[name]}

    def _cells(self, title: str, groups: Mapping[str, Sequence[int]]) -> Cells:
        sums = np.zeros((self.num_videos, len(groups)))
        counts = np.zeros_like(sums)
        for column, (name, indices) in enumerate(groups.items()):
            self._members[title, name] = list(indices)
            for index in indices:
                verdict = self.verdicts[index]
                if not verdict.dropped:
                    place = self._place[self.rows[index].video_id]
                    sums[place, column] += verdict.score
                    counts[place, column] += 1
        return Cells(tuple(groups), sums, counts)

    def _mean(self, section: Section, cells: Cells) -> Figure:
        return cells.macro if section.mean == "macro" else cells.micro

    def _total(self) -> Figure:
        if self.layout.total == "micro" or not self.parts:
            return self._by_task.micro
        means = [self._mean(section, cells) for section, cells in self.parts]
        if self.layout.total == "macro":
            return means[0]
        return lambda weights: mean_over(np.stack([mean(weights) for mean in means], axis=-1))
