"""The word-level tokenizer of the bundled model and the layout of its prompts.

One word is one token; white space and punctuation separate. There is no chat template object: a
prompt is ``<bos>``, ``<video>`` times four per frame plus one, ``<user>``, the question,
``<assistant>``; the answer ends with ``<eos>``. The module knows the words but not the world.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from hermes_like.sprites.templates import TEMPLATES, plural
from hermes_like.sprites.world import COLORS, DIGITS, SHAPES, ZONES

VOCABULARY_SIZE: Final = 256
TOKENS_PER_FRAME: Final = 4
SPECIALS: Final = (
    "<pad>", "<bos>", "<eos>", "<unk>", "<video>", "<image>", "<user>", "<assistant>",
)  # fmt: skip
PAD_ID, BOS_ID, EOS_ID, UNK_ID, VIDEO_ID, IMAGE_ID, USER_ID, ASSISTANT_ID = range(8)

_LEADING = ("?", ".", ",", "nothing", "none", "yes", "no", "and")
_TEMPLATE_WORDS = (
    "what is visible now do you see on screen describe the current scene shown at moment shape "
    "which color object of where in zone number digit was did have carry show appear carried "
    "showed there a seen anything came after appeared followed next before preceded first last "
    "come how many were count objects"
)
#: Words of prompts that ask nothing (guidance prompts); they have no trained meaning.
_SPARE_WORDS = (
    "summarize video detail narrative identifying main characters key events timeline changes "
    "overall theme focusing specific fine grained actions spatial relationships find recent "
    "details related context summary question answer please user assistant are helpful this that "
    "it an to for with frame frames stream happened so far up until currently present earlier "
    "later since"
)
#: Added after the pilot, behind its words so that no id moved.
_LATER_WORDS = "had"


@cache
def vocabulary() -> dict[str, int]:
    """Return every word with its id; the ids up to 164 are those of the pilot model."""
    words = [
        *SPECIALS,
        *_LEADING,
        *SHAPES,
        *(plural(shape) for shape in SHAPES),
        *COLORS,
        *ZONES,
        *(str(digit) for digit in DIGITS),
        *_TEMPLATE_WORDS.split(),
        *_SPARE_WORDS.split(),
        *_LATER_WORDS.split(),
    ]
    return {word: index for index, word in enumerate(words)}


def encode_words(text: str) -> list[int]:
    """Return the ids of lower-case words separated by single spaces, as the generators write them.

    Raises:
        KeyError: If a word is not in the vocabulary.
    """
    known = vocabulary()
    return [known[word] for word in text.split()]


def template_words() -> set[str]:
    """Return the literal words of all question templates."""
    return {
        word
        for templates in TEMPLATES.values()
        for template in templates
        for word in template.split()
        if not word.startswith("{")
    }


def prompt_text(question: str, num_frames: int) -> str:
    """Return the prompt of one question about a video of ``num_frames`` frames."""
    video = "<video>" * (TOKENS_PER_FRAME * num_frames + 1)
    return f"<bos>{video}<user> {question} <assistant>"


def tokenizer_json() -> dict[str, Any]:
    """Return the content of ``tokenizer.json``."""
    first = {"Sequence": {"id": "A", "type_id": 0}}
    second = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_special(index, word) for index, word in enumerate(SPECIALS)],
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first],
            "pair": [first, second],
            "special_tokens": {},
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": vocabulary(), "unk_token": "<unk>"},
    }


def tokenizer_config() -> dict[str, Any]:
    """Return the content of ``tokenizer_config.json``."""
    return {
        "backend": "tokenizers",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "extra_special_tokens": ["<video>", "<image>", "<user>", "<assistant>"],
        "model_max_length": 1_000_000_000,
        "pad_token": "<pad>",
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": "<unk>",
    }


def save_tokenizer(folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` into a folder."""
    for name, content in (
        ("tokenizer.json", tokenizer_json()),
        ("tokenizer_config.json", tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _special(index: int, word: str) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": index, "content": word, **flags, "special": True}
