"""A clip that a browser cannot play, written again so that it can: small, H.264 or VP9, silent.

The model never sees it; it gets the original.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import av

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.frames import TimeSampler
from hermes_like.records import Image
from hermes_like.sources import open_source

LONGEST_SIDE, MOST_FPS = 640, 12.0
#: Milliseconds: times of the original go over as they are.
TIME_BASE = Fraction(1, 1000)
#: Encoder, file suffix, options; the first that this build of the library has is taken.
ENCODERS: tuple[tuple[str, str, dict[str, str]], ...] = (
    ("libx264", ".mp4", {"preset": "veryfast", "crf": "26"}),
    ("libvpx-vp9", ".webm", {"deadline": "realtime", "cpu-used": "8", "crf": "36"}),
)


def write_preview(path: Path, folder: Path, is_unwanted: Callable[[], bool]) -> Path | None:
    """Write a preview of a clip.

    Args:
        path: The original.
        folder: Where the preview goes.
        is_unwanted: Asked before every frame; then nothing is left behind.

    Returns:
        The preview; None: it is not wanted any more.

    Raises:
        SourceOpenError: No encoder is here, or the original cannot be read.
    """
    encoder, suffix, options = _encoder()
    target, part = folder / f"preview{suffix}", folder / f"preview-part{suffix}"
    try:
        is_whole = _encode(path, part, encoder, options, is_unwanted)
        if is_whole:
            part.replace(target)
    except av.FFmpegError as error:
        raise SourceOpenError(f"{path.name}: no preview could be written: {error}") from error
    finally:
        part.unlink(missing_ok=True)
    return target if is_whole else None


def _encoder() -> tuple[str, str, dict[str, str]]:
    for name, suffix, options in ENCODERS:
        if name in av.codecs_available:
            return name, suffix, options
    raise SourceOpenError("no preview: this build of PyAV has no encoder that browsers know")


def _encode(
    path: Path, target: Path, encoder: str, options: dict[str, str], is_unwanted: Callable[[], bool]
) -> bool:
    sampler = TimeSampler(MOST_FPS)
    with open_source(path, SourceConfig()) as source, av.open(str(target), "w") as container:
        stream = container.add_stream(encoder, rate=round(MOST_FPS), options=options)
        stream.pix_fmt, stream.gop_size = "yuv420p", round(2 * MOST_FPS)
        last_pts = -1
        for frame in source.select(sampler.wants):
            if is_unwanted():
                return False
            image = _shrunk(frame.image)
            if last_pts < 0:
                stream.height, stream.width = image.shape[:2]
                stream.codec_context.time_base = TIME_BASE
            elif image.shape[:2] != (stream.height, stream.width):
                continue  # a stream that changes its size goes on with the pictures that fit
            picture = av.VideoFrame.from_ndarray(image, format="rgb24")
            last_pts = max(last_pts + 1, round(frame.pts_s / TIME_BASE))
            picture.pts, picture.time_base = last_pts, TIME_BASE
            container.mux(stream.encode(picture))
        if last_pts < 0:
            raise SourceOpenError(f"{path.name}: no preview: it holds no pictures")
        container.mux(stream.encode(None))
    return True


def _shrunk(image: Image) -> Image:
    """At most :data:`LONGEST_SIDE` pixels, both sides even."""
    step = -(-max(image.shape[:2]) // LONGEST_SIDE)
    image = image[::step, ::step]
    height, width = (max(2, side - side % 2) for side in image.shape[:2])
    return image[:height, :width].copy()
