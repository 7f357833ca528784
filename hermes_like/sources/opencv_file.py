"""Video files through OpenCV.

Read forward only: seeking by frame number returns other frames than asked in some files. OpenCV
tells neither damage nor the cause of an end, so what can be said is said by comparing lengths.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceError
from hermes_like.records import Frame, Image
from hermes_like.sources.base import Wanted
from hermes_like.sources.clock import StreamClock
from hermes_like.sources.diagnose import check_file, open_error, stream_summary
from hermes_like.sources.owned import OwnedSource


class OpenCVSource(OwnedSource):
    """Frames of a video file.

    Args:
        path: The file.
        config: ``start_time`` is used here.

    Raises:
        SourceOpenError: The file cannot be opened or its first frame cannot be decoded.
        ImportError: OpenCV is not installed, or a system library it needs is missing.
    """

    def __init__(self, path: Path, config: SourceConfig) -> None:
        super().__init__(str(path), config)
        check_file(path)
        os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "8")
        import cv2

        self._cv2: Any = cv2
        self._capture = cv2.VideoCapture(str(path), cv2.CAP_FFMPEG)
        if not self._capture.isOpened():
            raise open_error(path, f"OpenCV cannot open it ({stream_summary(path)})")
        self._capture.set(cv2.CAP_PROP_ORIENTATION_AUTO, 1)
        if not self._capture.grab() or self._retrieve() is None:
            self._capture.release()
            raise open_error(path, f"OpenCV cannot decode it ({stream_summary(path)})")
        self._clock = StreamClock(float(self._capture.get(cv2.CAP_PROP_FPS)))

    def _release(self) -> None:
        self._capture.release()

    def _read(self, wanted: Wanted) -> Generator[Frame, None, None]:
        index = 0
        while True:
            pts_s = self._clock.tell(self._measured_s(index))
            if wanted(pts_s):
                image = self._retrieve()
                if image is None:
                    raise SourceError(f"{self.name}: OpenCV could not convert frame {index}")
                yield self._frame(image, index, pts_s)
            index += 1
            if not self._capture.grab():
                break
        for note in self._clock.notes():
            self.warn(note)

    def _measured_s(self, index: int) -> float | None:
        """Time of the grabbed frame; None where OpenCV has none and reports 0 over and over."""
        time_s = float(self._capture.get(self._cv2.CAP_PROP_POS_MSEC)) / 1000.0
        return time_s if time_s > 0 or index == 0 else None

    def _retrieve(self) -> Image | None:
        is_good, image = self._capture.retrieve()
        if not is_good or image is None or image.size == 0:
            return None
        code = self._cv2.COLOR_GRAY2RGB if image.ndim == 2 else self._cv2.COLOR_BGR2RGB
        converted: Image = self._cv2.cvtColor(image, code)
        return converted
