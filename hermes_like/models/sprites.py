"""The bundled model: a small trained LLaVA-OneVision that knows one world, *sprites*.

Its weights travel in the package, so that the quick start, the tests and the memory benchmark need
no download. See ``hermes_like/sprites/weights/MODEL_CARD.md`` for what it knows.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from hermes_like.config import ModelConfig
from hermes_like.models.decoder import PromptTemplate
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import load_pretrained
from hermes_like.models.text import HubTokenizer
from hermes_like.sprites.world import COLORS, SHAPES

SPRITES_PROMPT = PromptTemplate(
    prefix="<bos>",
    first_question="<user> {question} <assistant>",
    next_question="<user> {question} <assistant>",
    turn_end="<eos>",
)

#: Heads that training taught to look at the evidence (layer: query heads).
EVIDENCE_HEADS: dict[int, tuple[int, ...]] = {4: (0, 1), 6: (0, 1)}


class SpritesAdapter(LlavaOnevisionAdapter):
    """The bundled model with its closed vocabulary."""

    guidance_prompts = ("what is visible now ?", "how many objects appeared ?")
    guidance_separator = ""
    evidence_heads = EVIDENCE_HEADS

    def scan_question(self, question: str) -> str | None:
        """Whether the shape, the colour or both that a question names are there."""
        words = re.findall(r"\w+", question.lower())
        shapes = [shape for shape in SHAPES if {shape, f"{shape}s", f"{shape}es"} & set(words)]
        colors = [color for color in COLORS if color in words]
        if len(shapes) > 1 or len(colors) > 1 or not (shapes or colors):
            return None
        if not shapes:
            return f"was there anything {colors[0]} ?"
        return f"was there a {' '.join([*colors, *shapes])} ?"

    def present_question(self, question: str) -> str:
        """See :class:`ModelAdapter`; the model was trained on the present tense with "now"."""
        words = [{"was": "is", "were": "is"}.get(word, word) for word in question.lower().split()]
        if "is" in words and "now" not in words:
            at = len(words) - (words[-1] == "?")
            words.insert(at, "now")
        return " ".join(words)

    def unknown_words(self, text: str) -> list[str]:
        """Words outside the vocabulary, in order, once each."""
        assert isinstance(self._text, HubTokenizer)
        known = self._text.vocabulary()
        words = re.findall(r"\w+|[^\w\s]", text.lower())
        return list(dict.fromkeys(word for word in words if word not in known))


def weights_folder() -> Path:
    """Folder of the bundled weights."""
    return Path(str(resources.files("hermes_like") / "sprites" / "weights"))


def load(config: ModelConfig) -> SpritesAdapter:
    """Load the bundled model."""
    model, tokenizer = load_pretrained(str(weights_folder()), config, default_dtype="float32")
    return SpritesAdapter(
        model,
        HubTokenizer(tokenizer),
        name="sprites",
        template=SPRITES_PROMPT,
        resample="area",
        eos_ids=frozenset({int(tokenizer.eos_token_id)}),
    )
