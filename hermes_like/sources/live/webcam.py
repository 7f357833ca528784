"""Pictures of a camera at this machine with OpenCV.

Reading blocks and cannot be interrupted, so this runs in a process that can be ended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from hermes_like.errors import SourceError
from hermes_like.records import Image
from hermes_like.sources.live.connection import Arrival
from hermes_like.sources.live.pictures import Counts


def read_webcam(
    request: Mapping[str, Any], counts: Counts, is_alive: Callable[[], None]
) -> Iterator[Arrival]:
    """Yield the pictures of a device until it stops giving any.

    Args:
        request: ``device`` (a number, or what else OpenCV opens) and ``name``.
        counts: Not used: OpenCV tells no damage.
        is_alive: Called when the device is open, and with each picture.

    Raises:
        SourceError: There is no such device, or OpenCV is missing.
    """
    name = request["name"]
    os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
    os.environ.setdefault("OPENCV_FFMPEG_LOGLEVEL", "8")
    try:
        import cv2
    except ImportError as error:
        raise SourceError(f"{name}: OpenCV is not available: {error}") from error
    capture = cv2.VideoCapture(request["device"])
    try:
        if not capture.isOpened():
            raise SourceError(f"{name}: there is no such camera, or another program uses it")

        def to_image() -> Image | None:
            is_good, image = capture.retrieve()
            if not is_good or image is None or image.size == 0:
                return None
            code = cv2.COLOR_GRAY2RGB if image.ndim == 2 else cv2.COLOR_BGR2RGB
            return cast(Image, cv2.cvtColor(image, code))

        is_alive()
        while capture.grab():
            is_alive()
            yield Arrival(None, to_image)
    finally:
        capture.release()
