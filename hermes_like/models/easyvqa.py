"""A second trained model in the package: it knows the pictures and the questions of easy-VQA.

The same shape as the sprites model, trained on the training split of the public package easy-VQA
and on nothing else. See ``hermes_like/easyvqa/weights/MODEL_CARD.md``.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

from hermes_like.config import ModelConfig
from hermes_like.easyvqa.questions import COLORS, SHAPES, in_present, without_time
from hermes_like.models.decoder import PromptTemplate
from hermes_like.models.llava_onevision import LlavaOnevisionAdapter
from hermes_like.models.loading import load_pretrained
from hermes_like.models.text import HubTokenizer

NAME = "easyvqa"

PROMPT = PromptTemplate(
    prefix="<bos>",
    first_question="<user> {question} <assistant>",
    next_question="<user> {question} <assistant>",
    turn_end="<eos>",
)

#: Heads that training taught to look at the evidence (layer: query heads).
EVIDENCE_HEADS: dict[int, tuple[int, ...]] = {3: (0, 1), 4: (0, 1)}


class EasyVQAAdapter(LlavaOnevisionAdapter):
    """The model with its closed vocabulary. It reads no times: a question loses the time it names.

    Where the memory is asked about a named time, only the images of that time are shown.
    """

    guidance_prompts = ("what shape is in the image?", "what color is the shape?")
    guidance_separator = " "
    evidence_heads = EVIDENCE_HEADS

    def question_ids(self, question: str, *, is_first: bool) -> list[int]:
        """See :class:`ModelAdapter`."""
        return super().question_ids(without_time(question), is_first=is_first)

    def scan_question(self, question: str) -> str | None:
        """Whether the shape or the colour that a question names is there; None for a negation."""
        words = re.findall(r"\w+", question.lower())
        shapes = [shape for shape in SHAPES if shape in words]
        colors = [color for color in COLORS if color in words]
        if len(shapes) + len(colors) != 1 or {"not", "no"} & set(words):
            return None
        return f"is there a {shapes[0]}?" if shapes else f"is there a {colors[0]} shape?"

    def present_question(self, question: str) -> str:
        """See :class:`ModelAdapter`; the package asks about an image in the present tense."""
        return in_present(question)

    def unknown_words(self, text: str) -> list[str]:
        """Words outside the vocabulary, in order, once each; times are left out."""
        assert isinstance(self._text, HubTokenizer)
        known = self._text.vocabulary()
        words = re.findall(r"\w+|[^\w\s]", without_time(text).lower())
        return list(dict.fromkeys(word for word in words if word not in known))


def weights_folder() -> Path:
    """Folder of the weights."""
    return Path(str(resources.files("hermes_like") / "easyvqa" / "weights"))


def load(config: ModelConfig) -> EasyVQAAdapter:
    """Load the model; its weights are stored in bfloat16 and run in float32 unless told else."""
    model, tokenizer = load_pretrained(str(weights_folder()), config, default_dtype="float32")
    return EasyVQAAdapter(
        model,
        HubTokenizer(tokenizer),
        name=NAME,
        template=PROMPT,
        resample="area",
        eos_ids=frozenset({int(tokenizer.eos_token_id)}),
    )
