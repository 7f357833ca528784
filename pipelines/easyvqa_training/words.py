"""The vocabulary of the easy-VQA model: the package's words, their past tense, and the specials.

Ids of special tokens are those of the bundled sprites model, whose prompts have the same layout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from hermes_like.easyvqa.questions import COLORS, FORMS, SHAPES, YES_NO
from hermes_like.sprites.tokenizer import SPECIALS, tokenizer_config, tokenizer_json

#: Rows of the embedding; those beyond the words are never used.
VOCABULARY_SIZE: Final = 64


@cache
def vocabulary() -> Mapping[str, int]:
    """Every word with its id."""
    texts = [text for form in FORMS for text in (form.present, form.past, form.timed) if text]
    template = re.sub(r"\{\w+\}", " ", " ".join(texts))
    words = [*SPECIALS, *YES_NO, *SHAPES, *COLORS, *re.findall(r"\w+|\?", template)]
    return {word: index for index, word in enumerate(dict.fromkeys(words))}


def encode(text: str) -> list[int]:
    """Ids of a question.

    Raises:
        KeyError: A word is not in the vocabulary.
    """
    known = vocabulary()
    return [known[word] for word in re.findall(r"\w+|\?", text)]


def save_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` into a folder."""
    content: dict[str, Any] = tokenizer_json()
    content["model"]["vocab"] = dict(vocabulary())
    for name, value in (
        ("tokenizer.json", content),
        ("tokenizer_config.json", tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
