"""The dataset that ``hermes-like eval make-sprites`` writes: scripted streams, exact answers."""

from __future__ import annotations

from collections.abc import Sequence

from hermes_like.evaluation.readers.folder import FolderReader, Shape
from hermes_like.evaluation.readers.rekv import conversion

#: Name of the annotation file.
FILE = "sprites.json"


class Sprites(FolderReader):
    """Questions in words; the reply is looked for among the options, no letter is asked for."""

    title = "sprites"

    def shapes(self) -> Sequence[Shape]:
        """The file as it is written."""
        return (conversion(FILE, edition="sprites, scripted"),)
