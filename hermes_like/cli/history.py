"""What memory held at many moments of a stream, thinned so that a stream of any length fits."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from hermes_like.records import Band, SessionStats

if TYPE_CHECKING:
    from hermes_like.session import StreamSession

FloatArray = npt.NDArray[np.float64]
#: Most moments kept; when it is passed, every second one is dropped.
MAX_MOMENTS = 240


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """Which frames the layers of one band hold.

    Attributes:
        pts_s: ``[frames]`` stream time of each frame with a token in any layer of the band.
        tokens: ``[frames]`` its tokens, the mean over the layers of the band.
    """

    pts_s: FloatArray
    tokens: FloatArray


@dataclass(frozen=True, slots=True)
class Moment:
    """Memory at one stream time."""

    stats: SessionStats
    held: dict[Band, Held]


class History:
    """The moments of one session."""

    def __init__(self) -> None:
        self.moments: list[Moment] = []
        self._every = 1
        self._frames = 0

    def note_frame(self, session: StreamSession) -> None:
        """Count a frame that was observed, and keep the moment if it is wanted."""
        self._frames += 1
        if self._frames % self._every == 0:
            self.add(session)

    def add(self, session: StreamSession) -> None:
        """Keep the moment that is now."""
        self.moments.append(Moment(session.stats(), held_frames(session)))
        if len(self.moments) > MAX_MOMENTS:
            del self.moments[::2]
            self._every *= 2


def held_frames(session: StreamSession) -> dict[Band, Held]:
    """Frames with a token on the device, per band; bands without a layer are left out."""
    from hermes_like.memory.provenance import frames_of

    memory = session.memory
    counts: dict[Band, Counter[int]] = {}
    layers: Counter[Band] = Counter()
    for band, slots in zip(memory.compactor.bands, memory.cache.layers, strict=True):
        layers[band] += 1
        frames = frames_of(slots.ids, memory.tokens_per_frame)
        counts.setdefault(band, Counter()).update(frames[frames >= 0].tolist())
    return {
        band: Held(
            np.array([memory.frames[frame].pts_s for frame in sorted(total)], dtype=np.float64),
            np.array([total[frame] / layers[band] for frame in sorted(total)], dtype=np.float64),
        )
        for band, total in counts.items()
    }
