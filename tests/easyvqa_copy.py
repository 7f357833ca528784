"""A made-up package in the look of easy-VQA: same files, same questions, pictures drawn here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "rectangle", "triangle")
RGB = {
    "red": (255, 0, 0),
    "green": (0, 255, 0),
    "blue": (0, 0, 255),
    "black": (0, 0, 0),
    "gray": (128, 128, 128),
    "teal": (0, 128, 128),
    "brown": (165, 42, 42),
    "yellow": (255, 255, 0),
}
WHAT = (
    ("what color is the {shape}?", "color"),
    ("what is the color of the {shape}?", "color"),
    ("what is the {color} shape?", "shape"),
    ("what color is the shape?", "color"),
    ("what is the color of the shape?", "color"),
    ("what shape does the image contain?", "shape"),
    ("what shape is in the image?", "shape"),
    ("what shape is present?", "shape"),
)
YES_NO = (
    ("does the image contain a {thing}?", False),
    ("does the image not contain a {thing}?", True),
    ("is a {thing} present?", False),
    ("is no {thing} present?", True),
    ("is there a {thing} in the image?", False),
    ("is there a {thing}?", False),
    ("is there not a {thing} in the image?", True),
    ("is there not a {thing}?", True),
)


@dataclass(frozen=True)
class Copy:
    """The folder, and what each image of a split truly shows."""

    folder: Path
    kinds: dict[str, list[tuple[str, str]]]


def draw_picture(shape: str, color: str, rng: np.random.Generator) -> np.ndarray:
    """One picture, uint8 ``[64, 64, 3]``: a flat shape on a pale ground."""
    ground = tuple(int(value) for value in rng.integers(230, 255, size=3))
    picture = Image.new("RGB", (64, 64), ground)
    width, height = (int(value) for value in rng.integers(14, 31, size=2))
    if shape == "circle":
        height = width
    elif shape == "triangle":
        height = round(width * 0.87)
    left, top = (int(rng.integers(1, 63 - side)) for side in (width, height))
    box = (left, top, left + width, top + height)
    pen = ImageDraw.Draw(picture)
    if shape == "circle":
        pen.ellipse(box, fill=RGB[color])
    elif shape == "rectangle":
        pen.rectangle(box, fill=RGB[color])
    else:
        corners = [(left, box[3]), (box[2], box[3]), (left + width // 2, top)]
        pen.polygon(corners, fill=RGB[color])
    return np.array(picture)


def questions_about(
    shape: str, color: str, rng: np.random.Generator, *, is_told: bool
) -> list[tuple[str, str]]:
    """Questions with answers; those that would tell the colour are left out unless told."""
    found = []
    for text, wanted in WHAT:
        if rng.random() < 0.5 and (is_told or (wanted == "shape" and "{color}" not in text)):
            answer = shape if wanted == "shape" else color
            found.append((text.replace("{shape}", shape).replace("{color}", color), answer))
    for word in (*SHAPES, *RGB):
        text, is_negated = YES_NO[int(rng.integers(len(YES_NO)))]
        if rng.random() < 0.6 or (not is_told and word in RGB):
            if not is_told and word in RGB and (word == color or rng.random() < 0.5):
                continue
            is_there = word in (shape, color)
            thing = word if word in SHAPES else f"{word} shape"
            answer = "yes" if is_there != is_negated else "no"
            found.append((text.replace("{thing}", thing), answer))
    return found or [("what shape is present?", shape)]


def write_copy(folder: Path, num_images: int = 144, seed: int = 0) -> Copy:
    """Write a package; of every seventh image the answers do not tell the colour."""
    kinds: dict[str, list[tuple[str, str]]] = {}
    for number, split in enumerate(("train", "test")):
        rng = np.random.default_rng([seed, number])
        images = folder / "data" / split / "images"
        images.mkdir(parents=True)
        rows, kinds[split] = [], []
        for image_id in range(num_images):
            shape = SHAPES[image_id % 3]
            color = list(RGB)[image_id // 3 % 8]
            kinds[split].append((shape, color))
            Image.fromarray(draw_picture(shape, color, rng)).save(images / f"{image_id}.png")
            is_told = image_id % 7 != 6
            asked = questions_about(shape, color, rng, is_told=is_told)
            rows += [[text, answer, image_id] for text, answer in asked]
        (folder / "data" / split / "questions.json").write_text(json.dumps(rows), encoding="utf-8")
    return Copy(folder, kinds)
