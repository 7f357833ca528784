"""One rotation step of our own, because what PyAV reports about rotation it does not apply."""

from __future__ import annotations

import numpy as np

from hermes_like.records import Image


def upright(image: Image, display_matrix: bytes | None) -> Image:
    """Turn and flip a picture as its display matrix says, to the nearest quarter turn.

    Args:
        image: ``[H, W, 3]`` uint8.
        display_matrix: Nine int32 in native order, as FFmpeg gives them: a pixel at ``(x, y)``
            is shown at ``(a x + c y, b x + d y)``, with ``a, b, _, c, d`` the first five; None: as
            it is.

    Returns:
        ``[H, W, 3]`` or ``[W, H, 3]`` uint8, contiguous.
    """
    if display_matrix is None:
        return image
    a, b, _, c, d = (int(v) for v in np.frombuffer(display_matrix, dtype=np.int32, count=5))
    if abs(a) + abs(d) >= abs(b) + abs(c):
        x_sign, y_sign = a, d
    else:
        image = image.transpose(1, 0, 2)
        x_sign, y_sign = c, b
    if x_sign < 0:
        image = image[:, ::-1]
    if y_sign < 0:
        image = image[::-1]
    return np.ascontiguousarray(image)
