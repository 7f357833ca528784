"""A folder of pictures: order, orientation, depth, what cannot be read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hermes_like.config import SourceConfig
from hermes_like.errors import SourceOpenError
from hermes_like.frames import sampled
from hermes_like.sources import open_source
from hermes_like.sources.image_folder import natural_key, read_picture
from tests.sources.clip_factory import barcode, read_barcode, red_corner


def test_names_are_sorted_as_people_count(tmp_path: Path) -> None:
    for number in (10, 9, 1, 100):
        Image.fromarray(barcode(number)).save(tmp_path / f"Frame {number}.PNG")
    (tmp_path / "notes.txt").write_text("not a picture")
    with open_source(tmp_path) as source:
        assert [read_barcode(frame.image) for frame in source] == [1, 9, 10, 100]
    assert natural_key("a2b") < natural_key("a10b")


@pytest.mark.parametrize(("sample_fps", "step_s"), [(2.0, 0.5), (None, 1.0)])
def test_pictures_are_spaced_so_that_sampling_sees_each(
    tmp_path: Path, sample_fps: float | None, step_s: float
) -> None:
    for number in range(5):
        Image.fromarray(barcode(number)).save(tmp_path / f"{number}.jpg")
    config = SourceConfig(sample_fps=sample_fps)
    with sampled(open_source(tmp_path, config), config) as feed:
        assert [frame.pts_s for frame in feed] == [step_s * number for number in range(5)]
    assert feed.source.duration_s == 5 * step_s


def test_a_broken_picture_is_left_out_named_and_counted(tmp_path: Path) -> None:
    for number in range(3):
        Image.fromarray(barcode(number)).save(tmp_path / f"{number}.png")
    whole = (tmp_path / "1.png").read_bytes()
    (tmp_path / "1.png").write_bytes(whole[: len(whole) // 2])
    with open_source(tmp_path) as source:
        frames = list(source)
    assert [(frame.index, read_barcode(frame.image)) for frame in frames] == [(0, 0), (2, 2)]
    assert source.num_dropped == 1
    assert "1.png" in source.warnings[0]


def test_nothing_to_see_is_an_error_at_once(tmp_path: Path) -> None:
    with pytest.raises(SourceOpenError, match="holds no pictures"):
        open_source(tmp_path)
    (tmp_path / "a.png").write_text("no")
    with pytest.raises(SourceOpenError, match=r"none of 1 pictures can be read.*a\.png"):
        open_source(tmp_path)


def test_exif_orientation_is_applied(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    stored = Image.fromarray(np.ascontiguousarray(np.rot90(barcode(3), 1)))
    stored.save(tmp_path / "a.jpg", exif=exif, quality=95)
    image = read_picture(tmp_path / "a.jpg")
    assert image.shape == (240, 320, 3)
    assert red_corner(image) == "top left"


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("a.tif" if mode == "CMYK" else "a.png")
    Image.fromarray(barcode(5)).convert(mode).save(file)
    image = read_picture(file)
    assert image.dtype == np.uint8
    assert image.shape == (240, 320, 3)
    assert read_barcode(image) == 5


def test_sixteen_bit_grey_is_scaled_not_clipped(tmp_path: Path) -> None:
    grey = (barcode(5)[..., 1].astype(np.uint16)) * 257
    Image.fromarray(grey).save(tmp_path / "a.png")
    image = read_picture(tmp_path / "a.png")
    assert abs(int(image[-1, 5, 0]) - int(barcode(5)[-1, 5, 1])) <= 1
