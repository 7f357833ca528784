"""Barcode clips: every frame carries its own number, so a test can say which frame came back.

Ten vertical bars; bar ``b`` is bright if bit ``b`` of the frame number is set; a red square in the
top left corner shows the orientation. Containers can be damaged after writing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

Image = npt.NDArray[np.uint8]

NUM_BARS = 10
DARK, BRIGHT = 40, 210
RED = (220, 30, 30)


def barcode(number: int, width: int = 320, height: int = 240) -> Image:
    """Picture ``[height, width, 3]`` that shows ``number`` (0 to 1023)."""
    image = np.full((height, width, 3), DARK, dtype=np.uint8)
    edges = np.linspace(0, width, NUM_BARS + 1).astype(int)
    for bit in range(NUM_BARS):
        if number >> bit & 1:
            image[height // 2 :, edges[bit] : edges[bit + 1]] = BRIGHT
    image[: height // 4, : width // 5] = RED
    return image


def read_barcode(image: Image) -> int:
    """Number shown by an upright picture, from the pixel row at three quarters of the height."""
    height, width = image.shape[:2]
    row = image[height * 3 // 4].mean(axis=1)
    centers = ((np.arange(NUM_BARS) + 0.5) * width / NUM_BARS).astype(int)
    return int(sum(1 << bit for bit, x in enumerate(centers) if row[x] > (DARK + BRIGHT) / 2))


def red_corner(image: Image) -> str:
    """Corner that shows the red square: ``top left``, ``bottom right``, ..."""
    height, width = image.shape[:2]
    found = []
    for vertical, y in (("top", height // 12), ("bottom", height - 1 - height // 12)):
        for horizontal, x in (("left", width // 12), ("right", width - 1 - width // 12)):
            red, green, blue = (int(v) for v in image[y, x])
            if red > 150 and green < 100 and blue < 100:
                found.append(f"{vertical} {horizontal}")
    return ", ".join(found) or "none"


@dataclass(frozen=True)
class ClipSpec:
    """What to encode.

    Attributes:
        numbers: Barcode numbers in the order of presentation.
        times_s: Presentation times; None: ``i / fps``.
        fps: Declared rate.
        prepare: Called with the stream before encoding starts.
        make: Picture of a number; None: :func:`barcode`.
    """

    numbers: Sequence[int] = tuple(range(60))
    times_s: Sequence[float] | None = None
    fps: int = 30
    codec: str = "libx264"
    pix_fmt: str = "yuv420p"
    width: int = 320
    height: int = 240
    start_s: float = 0.0
    codec_options: dict[str, str] = field(default_factory=lambda: {"preset": "veryfast"})
    muxer: str | None = None
    muxer_options: dict[str, str] = field(default_factory=dict)
    source_format: str = "rgb24"
    num_video_streams: int = 1
    has_audio: bool = False
    audio_s: float | None = None
    prepare: Callable[[Any], None] | None = None
    make: Callable[[int], Image] | None = None


TICKS_PER_S = 90_000


def write_clip(path: Path, spec: ClipSpec | None = None, **changes: Any) -> Path:
    """Encode a clip with PyAV and return its path."""
    import av

    spec = spec or ClipSpec(**changes)
    times = spec.times_s or [i / spec.fps for i in range(len(spec.numbers))]
    with av.open(str(path), "w", format=spec.muxer, options=spec.muxer_options) as container:
        streams = [_add_video_stream(container, spec) for _ in range(spec.num_video_streams)]
        audio = _add_audio_stream(container) if spec.has_audio else None
        container.start_encoding()
        if audio is not None:
            _encode_silence(container, audio, spec.audio_s or len(times) / spec.fps)
        for number, time_s in zip(spec.numbers, times, strict=True):
            make = spec.make or (lambda n: barcode(n, spec.width, spec.height))
            for offset, stream in enumerate(streams):
                picture = make(number + 512 * offset)
                frame = av.VideoFrame.from_ndarray(picture, format=spec.source_format)
                frame.pts = round((time_s + spec.start_s) * TICKS_PER_S)
                frame.time_base = Fraction(1, TICKS_PER_S)
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode(None))
    return path


def _add_video_stream(container: Any, spec: ClipSpec) -> Any:
    stream = container.add_stream(spec.codec, rate=spec.fps, options=dict(spec.codec_options))
    stream.width, stream.height, stream.pix_fmt = spec.width, spec.height, spec.pix_fmt
    stream.codec_context.thread_count = 1
    stream.codec_context.time_base = Fraction(1, TICKS_PER_S)
    if spec.codec in {"mpeg4", "mjpeg", "libvpx-vp9", "prores_ks"}:
        stream.codec_context.time_base = Fraction(1, 1000)
    if spec.prepare is not None:
        spec.prepare(stream)
    return stream


def _add_audio_stream(container: Any) -> Any:
    return container.add_stream("aac", rate=16_000, layout="mono")


def _encode_silence(container: Any, stream: Any, length_s: float) -> None:
    import av

    for start in range(0, int(length_s * 16_000), 1024):
        frame = av.AudioFrame.from_ndarray(
            np.zeros((1, 1024), dtype=np.float32), format="fltp", layout="mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = 16_000, start, Fraction(1, 16_000)
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))


def write_audio_only(path: Path, length_s: float = 1.0) -> Path:
    """An mp4 that holds sound and no pictures."""
    import av

    with av.open(str(path), "w") as container:
        _encode_silence(container, _add_audio_stream(container), length_s)
    return path


def cut_before_index(source: Path, target: Path) -> Path:
    """An mp4 whose index box never got written: everything up to ``moov``."""
    data = source.read_bytes()
    target.write_bytes(data[: data.index(b"moov") - 4])
    return target


def flip_bytes(source: Path, target: Path, *, start: int, count: int, seed: int = 0) -> Path:
    """Invert ``count`` bytes from offset ``start`` on."""
    data = bytearray(source.read_bytes())
    for offset in range(start, start + count):
        data[offset] ^= 0xFF
    target.write_bytes(bytes(data))
    return target


def video_packets(path: Path) -> list[tuple[int, int, bool]]:
    """``(byte position, size, is key frame)`` of every video packet."""
    import av

    with av.open(str(path)) as container:
        packets = container.demux(container.streams.video[0])
        return [(p.pos or 0, p.size, p.is_keyframe) for p in packets if p.size]
