"""Video files through decord 0.6, where it can be trusted.

decord decodes ahead in a thread of its own without bound, and repeats frames in MPEG transport
streams without an error. Both are refused here instead of suffered. Frames are taken in order
with ``next``; seeking is never used.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from hermes_like.config import SourceConfig
from hermes_like.records import Frame, Image
from hermes_like.sources.base import Wanted
from hermes_like.sources.clock import StreamClock
from hermes_like.sources.diagnose import (
    check_file,
    is_transport_stream,
    open_error,
    stream_summary,
)
from hermes_like.sources.owned import OwnedSource

#: Most memory that decord may take by decoding ahead to the end of the file.
MAX_AHEAD_BYTES = 1 << 30


class DecordSource(OwnedSource):
    """Frames of a video file.

    Args:
        path: The file.
        config: ``start_time`` is used here.

    Raises:
        SourceOpenError: The file cannot be opened, or decord cannot be trusted with it.
        ImportError: decord is not installed.
    """

    def __init__(self, path: Path, config: SourceConfig) -> None:
        super().__init__(str(path), config)
        check_file(path)
        if is_transport_stream(path):
            raise open_error(path, "decord repeats frames of MPEG-TS files; use reader pyav")
        import decord

        decord.logging.set_level(decord.logging.QUIET)
        try:
            self._reader = decord.VideoReader(str(path), ctx=decord.cpu(0), num_threads=1)
            self._first: Image | None = self._reader.next().asnumpy()
        except (decord.DECORDError, RuntimeError, StopIteration) as error:
            raise open_error(path, f"decord cannot decode it ({stream_summary(path)})") from error
        needed_bytes = len(self._reader) * self._first.nbytes
        if needed_bytes > MAX_AHEAD_BYTES:
            self._release()
            raise open_error(
                path,
                f"decord decodes ahead without bound and could take {needed_bytes / 2**30:.1f} GiB "
                f"here, expected at most {MAX_AHEAD_BYTES / 2**30:.1f} GiB; use reader pyav",
            )
        self._clock = StreamClock(float(self._reader.get_avg_fps()))

    def _release(self) -> None:
        self._first = None
        self._reader = None

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        index = 0
        image, self._first = self._first, None
        while True:
            pts_s = self._clock.tell(float(self._reader.get_frame_timestamp(index)[0]))
            if wanted(pts_s):
                image = self._array.asnumpy() if image is None else image
                yield self._frame(image, index, pts_s)
            image = None
            index += 1
            if not self._advance():
                break
        for note in self._clock.notes():
            self.warn(note)

    def _advance(self) -> bool:
        """Decode the next frame into ``_array``; False at the end or where decord gives up."""
        import decord

        try:
            self._array = self._reader.next()
        except StopIteration:
            return False
        except (decord.DECORDError, RuntimeError):
            self.warn(f"decord could read no further than {self._clock.last_s:.2f} s (damaged?)")
            return False
        return True
