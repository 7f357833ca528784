"""What a reader of pictures is, whether it runs here or in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from hermes_like.sources.live.connection import Arrival


@dataclass(slots=True)
class Counts:
    """What a reader counts, so far.

    Attributes:
        num_damaged: Pictures lost or held back because of damage.
        num_decode_errors: Packets that could not be decoded.
    """

    num_damaged: int = 0
    num_decode_errors: int = 0


#: Opens what a request (of JSON values) names and yields its pictures. The callable given to it
#: says that the other side is alive, the first time that it is open.
PictureReader = Callable[[Mapping[str, Any], Counts, Callable[[], None]], Iterator[Arrival]]
