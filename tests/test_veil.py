"""Masks and zones as pixels: nothing of a hidden area is left, and little more is hidden."""

from __future__ import annotations

import numpy as np
import pytest

from hermes_like.config import Polygon
from hermes_like.records import Frame
from hermes_like.veil import MAX_SIZES, Veil

LEFT: Polygon = ((0, 0), (0.5, 0), (0.5, 1), (0, 1))
BOW: Polygon = ((0, 0), (1, 1), (1, 0), (0, 1))
#: A star drawn in one stroke: its outline goes around the middle twice.
PENTAGRAM: Polygon = tuple(
    (0.5 + 0.5 * float(np.sin(k * 0.8 * np.pi)), 0.5 - 0.5 * float(np.cos(k * 0.8 * np.pi)))
    for k in range(5)
)


def picture(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Noise without a black value."""
    rng = np.random.default_rng(seed)
    return rng.integers(1, 256, (height, width, 3), dtype=np.uint8)


def turns(polygon: Polygon, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """How often an outline goes around points, by the angles under which they see it."""
    corners = np.array([*polygon, polygon[0]])
    angles = np.arctan2(corners[:, 1, None] - y, corners[:, 0, None] - x)
    steps = (np.diff(angles, axis=0) + np.pi) % (2 * np.pi) - np.pi
    return np.rint(steps.sum(axis=0) / (2 * np.pi)).astype(int)


def points_of(height: int, width: int, each: int) -> tuple[np.ndarray, np.ndarray]:
    """Points spread over every pixel, from 0 to 1; those of one pixel lie side by side in rows."""
    inside = (np.arange(each) + 0.5) / each
    rows, columns, down, across = np.meshgrid(
        np.arange(height), np.arange(width), inside, inside, indexing="ij"
    )
    return ((columns + across) / width).ravel(), ((rows + down) / height).ravel()


def some_polygons() -> list[Polygon]:
    rng = np.random.default_rng(7)
    drawn = [
        tuple((float(x), float(y)) for x, y in rng.random((int(rng.integers(3, 8)), 2)))
        for _ in range(40)
    ]
    flat: Polygon = ((0.1, 0.33), (0.9, 0.33), (0.5, 0.33))
    return [*drawn, LEFT, BOW, PENTAGRAM, flat]


@pytest.mark.parametrize(("height", "width"), [(9, 13), (16, 7), (1, 1)])
def test_against_the_angle_under_which_points_see_the_outline(height: int, width: int) -> None:
    """No point of a mask is shown and none outside a zone; a pixel further away is as before."""
    x, y = points_of(height, width, 11)
    for polygon in some_polygons():
        around = turns(polygon, x, y).reshape(height, width, -1)
        masked = Veil([polygon], []).hidden(height, width)
        assert masked[(around != 0).any(axis=2)].all()
        zoned = Veil([], [polygon]).hidden(height, width)
        assert zoned[(around % 2 == 0).any(axis=2)].all()
        # What is hidden beyond that is crossed by an edge, so a neighbour has points of both kinds.
        for hidden, bad in ((masked, around != 0), (zoned, around % 2 == 0)):
            near = np.pad(bad.any(axis=2), 1)
            near = np.lib.stride_tricks.sliding_window_view(near, (3, 3)).any(axis=(2, 3))
            is_flat = np.ptp([corner[1] for corner in polygon]) == 0
            assert is_flat or not hidden[~near].any()


def test_edges_between_pixels_touch_none() -> None:
    assert Veil([LEFT], []).hidden(4, 6).tolist() == [[True] * 3 + [False] * 3] * 4
    assert Veil([], [LEFT]).hidden(4, 6).tolist() == [[False] * 3 + [True] * 3] * 4
    tenths: Polygon = ((0.1, 0), (0.3, 0), (0.3, 1), (0.1, 1))  # 0.1 * 30 is a little above 3
    assert Veil([tenths], []).hidden(1, 30)[0].nonzero()[0].tolist() == [3, 4, 5, 6, 7, 8]
    assert Veil([], [tenths]).hidden(1, 30)[0].sum() == 24


def test_a_touched_pixel_is_hidden_by_a_mask_and_by_a_zone() -> None:
    assert Veil([LEFT], []).hidden(1, 5)[0].tolist() == [True, True, True, False, False]
    assert Veil([], [LEFT]).hidden(1, 5)[0].tolist() == [False, False, True, True, True]
    line: Polygon = ((0, 0.5), (1, 0.5), (0, 0.5))
    assert Veil([line], []).hidden(3, 2).tolist() == [[False] * 2, [True] * 2, [False] * 2]
    point: Polygon = ((0.5, 0.5),) * 3
    assert Veil([point], []).hidden(3, 3).sum() == 1
    assert Veil([], [point]).hidden(3, 3).all()


def test_outlines_that_cross_themselves_hide_more() -> None:
    assert Veil([PENTAGRAM], []).hidden(100, 100)[50, 50]
    assert Veil([], [PENTAGRAM]).hidden(100, 100)[50, 50]
    twice: Polygon = (*LEFT, *LEFT)
    assert Veil([twice], []).hidden(4, 4)[:, :2].all()


def test_masks_and_zones_together() -> None:
    upper: Polygon = ((0, 0), (1, 0), (1, 0.5), (0, 0.5))
    hidden = Veil([LEFT], [upper]).hidden(4, 4)
    assert hidden.tolist() == [[True, True, False, False]] * 2 + [[True] * 4] * 2
    both = Veil([], [upper, LEFT]).hidden(4, 4)
    assert both.tolist() == [[False] * 4] * 2 + [[False, False, True, True]] * 2


def test_sizes_change_and_frames_are_never_written_to() -> None:
    veil = Veil([LEFT], [])
    for turn in range(3):
        for height, width in ((48, 64), (7, 9), (270, 480), (1, 1), (33, 2), (2, 33)):
            image = picture(height, width, turn)
            before = image.copy()
            image.flags.writeable = False  # a decoder may lend its buffer
            seen = veil.apply(Frame(image, 3, 1.5)).image
            half = -(-width // 2)
            assert not seen[:, :half].any()
            assert np.array_equal(seen[:, half:], image[:, half:])
            assert np.array_equal(image, before)
            assert seen.flags.writeable
            assert not np.shares_memory(seen, image)
    assert len(veil._bitmaps) <= MAX_SIZES
    mirrored = picture(8, 10)[:, ::-1]
    assert np.array_equal(veil.apply(Frame(mirrored, 0, 0.0)).image[:, 5:], mirrored[:, 5:])


def test_the_bitmap_is_made_once_per_size(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[tuple[int, int]] = []
    whole = Veil.hidden

    def counted(self: Veil, height: int, width: int) -> np.ndarray:
        sizes.append((height, width))
        return whole(self, height, width)

    monkeypatch.setattr(Veil, "hidden", counted)
    veil = Veil([LEFT], [])
    for index in range(50):
        veil.apply(Frame(picture(20, 10 + index % 2), index, float(index)))
    assert sizes == [(20, 10), (20, 11)]


def test_without_areas_the_frame_itself_comes_back() -> None:
    frame = Frame(picture(4, 4), 0, 0.0)
    assert Veil([], []).apply(frame) is frame


@pytest.mark.parametrize("image", [np.ones((4, 4), np.uint8), np.ones((4, 4, 3), np.float32)])
def test_what_is_no_picture_is_refused_and_not_passed_on(image: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"frame 5: expected uint8 \[H, W, 3\], got"):
        Veil([LEFT], []).apply(Frame(image, 5, 0.0))
