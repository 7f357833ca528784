"""Odd but valid files, each frame checked by its barcode: A02, A04-A06, A10, A21."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.frames import sampled
from hermes_like.records import Frame
from hermes_like.sources import open_source
from hermes_like.sources.upright import upright
from tests.sources.clip_factory import (
    DARK,
    Image,
    barcode,
    read_barcode,
    red_corner,
)
from tests.sources.conftest import MakeClip, skip_without_reader

B_FRAMES = {"preset": "veryfast", "bf": "3", "g": "250"}
VP9 = {"deadline": "realtime", "cpu-used": "8"}
HEVC = {"preset": "ultrafast", "x265-params": "log-level=none:pools=none:frame-threads=1"}

#: File name, what to encode, readers that can read it.
EVERY_READER = ("pyav", "opencv", "decord")
CLIPS: list[tuple[str, dict[str, Any], tuple[str, ...]]] = [
    ("b-frames.mp4", {"codec_options": B_FRAMES}, EVERY_READER),
    ("b-frames.ts", {"codec_options": B_FRAMES}, ("pyav", "opencv")),
    ("fragmented.mp4", {"muxer_options": {"movflags": "frag_keyframe+empty_moov"}}, EVERY_READER),
    ("starts-at-600.mkv", {"start_s": 600.0}, EVERY_READER),
    ("vp9.webm", {"codec": "libvpx-vp9", "codec_options": VP9}, EVERY_READER),
    ("mpeg4.avi", {"codec": "mpeg4", "codec_options": {}}, EVERY_READER),
    (
        "10-bit.mp4",
        {"codec": "libx265", "pix_fmt": "yuv420p10le", "codec_options": HEVC},
        EVERY_READER,
    ),
    (
        "prores.mov",
        {"codec": "prores_ks", "pix_fmt": "yuv422p10le", "codec_options": {}, "numbers": range(9)},
        EVERY_READER,
    ),
    ("odd.mp4", {"width": 321, "height": 241, "pix_fmt": "yuv444p"}, EVERY_READER),
    ("flat.mp4", {"width": 2000, "height": 8}, EVERY_READER),
    ("sound.mp4", {"has_audio": True}, EVERY_READER),
    ("lossless.mkv", {"codec": "ffv1", "codec_options": {}, "numbers": range(9)}, EVERY_READER),
]
CASES = [
    pytest.param(name, spec, reader, id=f"{name}-{reader}")
    for name, spec, readers in CLIPS
    for reader in readers
]


def read_all(path: Path, reader: str) -> tuple[list[Frame], tuple[str, ...]]:
    """Every frame and the warnings."""
    skip_without_reader(reader)
    with open_source(path, SourceConfig(reader=reader)) as source:  # type: ignore[arg-type]
        return list(source), source.warnings


@pytest.mark.parametrize(("name", "spec", "reader"), CASES)
def test_every_frame_comes_once_with_its_time(
    make_clip: MakeClip, name: str, spec: dict[str, Any], reader: str
) -> None:
    path = make_clip(name, **spec)
    frames, warnings = read_all(path, reader)
    expected = list(spec.get("numbers", range(60)))
    assert [read_barcode(frame.image) for frame in frames] == expected
    times = [number / 30 for number in expected]
    np.testing.assert_allclose([frame.pts_s for frame in frames], times, atol=1.1e-3)
    size = (spec.get("height", 240), spec.get("width", 320), 3)
    assert all(frame.image.shape == size for frame in frames)
    assert warnings == ()


@pytest.mark.parametrize("reader", EVERY_READER)
def test_variable_frame_rate_keeps_its_times(make_clip: MakeClip, reader: str) -> None:
    times = [i * i / 300 for i in range(60)]
    frames, _ = read_all(make_clip("vfr.mp4", times_s=times), reader)
    assert [read_barcode(frame.image) for frame in frames] == list(range(60))
    np.testing.assert_allclose([frame.pts_s for frame in frames], times, atol=1e-4)


@pytest.mark.parametrize("reader", ["pyav", "opencv"])
def test_raw_h264_has_no_times_and_gets_estimated_ones(make_clip: MakeClip, reader: str) -> None:
    frames, warnings = read_all(make_clip("raw.h264", muxer="h264"), reader)
    assert [read_barcode(frame.image) for frame in frames] == list(range(60))
    np.testing.assert_allclose([frame.pts_s for frame in frames], np.arange(60) / 25)
    assert "no time of their own" in warnings[0]


def test_decord_refuses_transport_streams_because_it_repeats_frames(make_clip: MakeClip) -> None:
    skip_without_reader("decord")
    path = make_clip("b-frames.ts", codec_options=B_FRAMES)
    with pytest.raises(SourceOpenError, match=r"b-frames\.ts: decord repeats frames"):
        open_source(path, SourceConfig(reader="decord"))


def test_av1_plays_by_default_and_others_name_codec_and_format(make_clip: MakeClip) -> None:
    """A04: a reader that opens a file and delivers nothing says so."""
    svt = {"preset": "8", "crf": "20", "svtav1-params": "lp=1"}
    path = make_clip("av1.mp4", codec="libsvtav1", codec_options=svt, numbers=range(12))
    frames, _ = read_all(path, "pyav")
    assert [read_barcode(frame.image) for frame in frames] == list(range(12))
    for reader in ("opencv", "decord"):
        skip_without_reader(reader)
        with pytest.raises(SourceOpenError, match=r"av1\.mp4: .* decode it .*dav1d, yuv420p"):
            open_source(path, SourceConfig(reader=reader))  # type: ignore[arg-type]


@pytest.mark.parametrize("reader", EVERY_READER)
@pytest.mark.parametrize("degrees", [0, 90, 180, 270])
def test_rotation_is_applied_by_every_reader(
    make_clip: MakeClip, degrees: int, reader: str
) -> None:
    """A05: stored turned, with a display matrix that turns it back."""
    quarter_turns = degrees // 90

    def stored(number: int) -> Image:
        return np.ascontiguousarray(np.rot90(barcode(number), -quarter_turns))

    width, height = (320, 240) if quarter_turns % 2 == 0 else (240, 320)
    path = make_clip(
        f"turned-{degrees}.mp4",
        numbers=range(3),
        width=width,
        height=height,
        make=stored,
        prepare=lambda stream: stream.set_display_rotation(degrees),
    )
    frames, _ = read_all(path, reader)
    assert frames[0].image.shape == (240, 320, 3)
    assert red_corner(frames[0].image) == "top left"
    assert [read_barcode(frame.image) for frame in frames] == [0, 1, 2]


@pytest.mark.parametrize(
    ("flips", "stored_corner"), [({"hflip": True}, "top right"), ({"vflip": True}, "bottom left")]
)
@pytest.mark.parametrize("degrees", [0, 90])
def test_flips_are_applied_after_the_rotation(
    make_clip: MakeClip, flips: dict[str, bool], stored_corner: str, degrees: int
) -> None:
    axis = 1 if "hflip" in flips else 0

    def stored(number: int) -> Image:
        return np.ascontiguousarray(np.rot90(np.flip(barcode(number), axis), -degrees // 90))

    path = make_clip(
        f"flipped-{axis}-{degrees}.mp4",
        numbers=range(3),
        width=240 if degrees else 320,
        height=320 if degrees else 240,
        make=stored,
        prepare=lambda stream: stream.set_display_rotation(degrees, **flips),
    )
    if not degrees:
        assert red_corner(stored(0)) == stored_corner
    frames, _ = read_all(path, "pyav")
    assert red_corner(frames[0].image) == "top left"
    assert read_barcode(frames[2].image) == 2


def test_upright_covers_the_eight_orientations() -> None:
    corners = set()
    for a, b, c, d in [
        (1, 0, 0, 1), (-1, 0, 0, 1), (1, 0, 0, -1), (-1, 0, 0, -1),
        (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, -1, 0), (0, -1, -1, 0),
    ]:  # fmt: skip
        matrix = np.array([a, b, 0, c, d, 0, 0, 0, 1], dtype=np.int32)
        image = upright(barcode(5), matrix.tobytes())
        y, x = (24, 32)
        shown = np.array([x - 160, y - 120]) @ np.array([[a, b], [c, d]])
        height, width = image.shape[:2]
        pixel = image[shown[1] + height // 2 - (d + b < 0), shown[0] + width // 2 - (a + c < 0)]
        assert pixel[0] > 150 > 100 > pixel[1]
        corners.add((red_corner(image), image.shape))
    assert len(corners) == 8


def test_alpha_is_ignored_and_said_so(make_clip: MakeClip) -> None:
    """A06: red where alpha is 0 is shown; the user is told."""

    def transparent(number: int) -> Image:
        picture = np.full((64, 64, 4), 255, dtype=np.uint8)
        picture[..., 1:3] = 0
        picture[..., 3] = 0
        return picture

    path = make_clip(
        "alpha.mov",
        codec="qtrle",
        pix_fmt="argb",
        source_format="rgba",
        codec_options={},
        width=64,
        height=64,
        numbers=range(3),
        make=transparent,
    )
    frames, warnings = read_all(path, "pyav")
    assert len(frames) == 3
    assert frames[0].image.shape == (64, 64, 3)
    assert "alpha" in warnings[0]


def test_two_video_streams_one_is_read_and_said_so(make_clip: MakeClip) -> None:
    frames, warnings = read_all(make_clip("two.mp4", num_video_streams=2), "pyav")
    assert [read_barcode(frame.image) for frame in frames] == list(range(60))
    assert "2 video streams; only stream 0 is read" in warnings[0]


def test_declared_length_is_a_hint_and_lies_do_no_harm(make_clip: MakeClip) -> None:
    """A10: Matroska from second 600 on declares 602 s; TS and WebM declare no frame count."""
    for name, spec in [
        ("starts-at-600.mkv", {"start_s": 600.0}),
        ("b-frames.ts", {"codec_options": B_FRAMES}),
        ("vp9.webm", {"codec": "libvpx-vp9", "codec_options": VP9}),
    ]:
        with open_source(make_clip(name, **spec)) as source:
            assert source.duration_s == pytest.approx(2.0, abs=0.05)
            assert sum(1 for _ in source) == 60


def test_sampling_by_time_of_uneven_frames(make_clip: MakeClip) -> None:
    """A20: uneven frames at known times arrive as (time, frame) pairs."""
    times = [0.0, 0.1, 0.2, 1.4, 1.5, 2.0, 2.1, 5.0]
    path = make_clip("uneven.mp4", times_s=times, numbers=range(8))
    with sampled(open_source(path), SourceConfig(sample_fps=1)) as feed:
        pairs = [(round(frame.pts_s, 3), read_barcode(frame.image)) for frame in feed]
    assert pairs == [(0.0, 0), (1.4, 3), (2.0, 5), (5.0, 7)]
    assert feed.num_read == 8
    assert any("2 of 6 sampling times" in warning for warning in feed.warnings)


def test_dark_picture_is_dark(make_clip: MakeClip) -> None:
    """Levels survive the way from RGB to limited-range YUV and back."""
    frames, _ = read_all(make_clip("b-frames.mp4", codec_options=B_FRAMES), "pyav")
    assert abs(float(frames[0].image[200, 200].mean()) - DARK) < 4
