"""What all readers share: which files of a folder are the annotations, and in which shape.

A reader lists the shapes that its dataset is published in; the first whose files are there is
read. Every dataset may also lie there as a ReKV-style conversion.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from hermes_like.errors import DatasetError
from hermes_like.evaluation.base import Dataset, DatasetReader
from hermes_like.evaluation.build import Builder
from hermes_like.evaluation.files import read_content
from hermes_like.evaluation.listing import Listing


@dataclass(frozen=True, slots=True)
class Source:
    """One annotation file that was read.

    Attributes:
        path: Where it is.
        name: Relative to the folder.
        content: What it says.
    """

    path: Path
    name: str
    content: Any

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Content as a list of objects.

        Raises:
            DatasetError: It is something else.
        """
        if not isinstance(self.content, list) or not all(
            isinstance(row, dict) for row in self.content
        ):
            kind = type(self.content).__name__
            raise DatasetError(f"{self.path}: expected a list of objects, got {kind}")
        return self.content

    @property
    def table(self) -> dict[str, Any]:
        """Content as one object.

        Raises:
            DatasetError: It is something else.
        """
        if not isinstance(self.content, dict):
            kind = type(self.content).__name__
            raise DatasetError(f"{self.path}: expected an object, got {kind}")
        return self.content


def is_list_with(*names: str) -> Callable[[Any], bool]:
    """A test whether content is a list whose first object has these fields."""

    def accepts(content: Any) -> bool:
        if not isinstance(content, list) or not content or not isinstance(content[0], dict):
            return False
        return all(name in content[0] for name in names)

    return accepts


@dataclass(frozen=True, slots=True)
class Shape:
    """One form in which a dataset is published.

    Attributes:
        edition: Its name, for reports.
        patterns: Names of its files; matched against the end of the path, in any case.
        read: Turns the files into videos and questions.
        accepts: Whether content has this shape; files that have not are passed over.
        usual: Videos and questions of a complete copy, if known.
        by_name: Whether only the name tells it from another shape; else a file that was named on
            purpose may be called anything.
    """

    edition: str
    patterns: tuple[str, ...]
    read: Callable[[Sequence[Source], Builder], None]
    accepts: Callable[[Any], bool]
    usual: tuple[int, int] | None = None
    by_name: bool = False


class FolderReader(DatasetReader):
    """A dataset that is one or several annotation files and videos somewhere near."""

    #: Names of tasks in conversions, in small letters, to rows of the table, where they differ.
    categories: ClassVar[Mapping[str, str]] = MappingProxyType({})

    @abstractmethod
    def shapes(self) -> Sequence[Shape]:
        """Forms in which it is published, the preferred one first."""

    def load(self, name: str) -> Dataset:
        """Read the annotations; see :meth:`DatasetReader.load`."""
        listing = Listing(self.folder, self.videos)
        shapes = [*self.shapes(), self._conversion()]
        if self.edition is not None:
            known = [shape.edition for shape in shapes]
            shapes = [shape for shape in shapes if shape.edition == self.edition]
            if not shapes:
                raise DatasetError(f"edition {self.edition!r}: expected one of: {', '.join(known)}")
        shape, sources = next(self._readable(listing, shapes), (None, ()))
        if shape is None:
            wanted = ", ".join(pattern for shape in shapes for pattern in shape.patterns)
            raise DatasetError(f"{self.folder}: no annotations of {self.title} (expected {wanted})")
        builder = Builder(listing)
        shape.read(sources, builder)
        used = {source.path for source in sources}
        rest = [
            other.edition
            for other in shapes[:-1]
            if other is not shape and set(listing.matching(other.patterns)) - used
        ]
        if rest:
            builder.remarks.append(f"also in the folder, not read: {', '.join(rest)}")
        files = {source.name: _num_rows(source.content) for source in sources}
        dataset = builder.build(name, shape.edition, files, shape.usual)
        if not dataset.questions:
            why = f"; {dataset.findings[0].message}" if dataset.findings else ""
            raise DatasetError(f"{', '.join(files)}: no question of {self.title} can be used{why}")
        return dataset

    def _conversion(self) -> Shape:
        from hermes_like.evaluation.readers.rekv import conversion

        return conversion(categories=self.categories)

    def _readable(
        self, listing: Listing, shapes: Sequence[Shape]
    ) -> Iterator[tuple[Shape, list[Source]]]:
        """Shapes with those of their files that have it. A file named on purpose is any shape's."""
        taken: set[Path] = set()
        for shape in shapes:
            paths = (
                listing.annotations
                if self.folder.is_file() and not shape.by_name
                else listing.matching(shape.patterns)
            )
            is_guess = shape.patterns == ("*.json",)
            sources = []
            for path in paths:
                if path in taken:
                    continue
                try:
                    content = read_content(path)
                except DatasetError:
                    # A stray file of that ending is no reason to stop; a file of that name is.
                    if is_guess and not self.folder.is_file():
                        continue
                    raise
                if shape.accepts(content):
                    sources.append(Source(path, listing.relative(path), content))
            if sources:
                taken.update(source.path for source in sources)
                yield shape, sources


def each_row(source: Source) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Rows with their place and how to name them in findings."""
    for index, row in enumerate(source.rows):
        yield index, f"{source.name}#{index}", row


def tolerant(builder: Builder, where: str, add: Callable[[], None]) -> None:
    """Carry out one row; a row that cannot be used becomes a finding.

    Args:
        builder: Takes the finding.
        where: Names the row.
        add: Adds it; a missing field, or a value that is none, must raise.
    """
    try:
        add()
    except KeyError as error:
        builder.note("row", where, f"not used: no field {error}")
    except (ValueError, TypeError, AttributeError, IndexError) as error:
        builder.note("row", where, f"not used: {error}")


def _num_rows(content: Any) -> int:
    return len(content) if isinstance(content, list | dict) else 1
