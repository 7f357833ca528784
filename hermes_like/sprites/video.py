"""A story as an mp4 file that any player shows."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import av

from hermes_like.sprites.render import STANDARD_HEIGHT, STANDARD_WIDTH
from hermes_like.sprites.source import SpritesSource
from hermes_like.sprites.world import Story


def write_story_video(
    story: Story,
    path: Path | str,
    *,
    fps: float = 1.0,
    video_fps: int = 10,
    seed: int = 0,
    width: int = STANDARD_WIDTH,
    height: int = STANDARD_HEIGHT,
) -> Path:
    """Write a story as H.264, each of its frames held for ``1 / fps`` seconds.

    Args:
        story: What is shown.
        path: The file to write; an existing one is replaced.
        fps: Sampled frames per second: reading the file at this rate gives the story back.
        video_fps: Pictures per second in the file, at least ``fps``; held frames are repeated.
        seed: Seed of jitter, background and noise, as in :class:`SpritesSource`.
        width: Frame width in pixels, even.
        height: Frame height in pixels, even.

    Returns:
        The path.
    """
    path = Path(path)
    if video_fps < fps:
        raise ValueError(f"video_fps: expected at least fps ({fps:g}), got {video_fps}")
    source = SpritesSource(story, fps=fps, seed=seed, width=width, height=height)
    with av.open(str(path), "w", options={"movflags": "faststart"}) as container:
        options = {"preset": "veryfast", "crf": "12"}
        stream = container.add_stream("libx264", rate=video_fps, options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.gop_size = 2 * video_fps
        num_written = 0
        for frame in source:
            picture = av.VideoFrame.from_ndarray(frame.image, format="rgb24")
            until = -(-(frame.index + 1) * video_fps // fps)
            while num_written < until:
                picture.pts, picture.time_base = num_written, Fraction(1, video_fps)
                container.mux(stream.encode(picture))
                num_written += 1
        container.mux(stream.encode(None))
    return path
