"""What codecs do to the bundled model: to its keys and values, to its attention, to its answers.

Streams are watched without a budget. Then the keys and values of the video are replaced, segment by
segment, by what a codec gives back of them, and the same questions are asked again. This module
knows no text model and prints nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from hermes_like.codec import KeyValues, KVCodec, decode_block
from hermes_like.config import HermesConfig
from hermes_like.memory.attention import QueryProbe
from hermes_like.memory.provenance import prefix_ids
from hermes_like.memory.rotation import rotate
from hermes_like.models import ModelAdapter
from hermes_like.session import StreamSession
from hermes_like.sprites.questions import TYPES, Question, draw_question
from hermes_like.sprites.source import SpritesSource
from hermes_like.sprites.stories import draw_story


@dataclass(slots=True)
class Ratio:
    """Relative root mean square: of errors over that of what they were made on."""

    errors: float = 0.0
    total: float = 0.0

    def add(self, found: Tensor, expected: Tensor) -> None:
        """Count a tensor in."""
        self.errors += float((found.double() - expected.double()).square().sum())
        self.total += float(expected.double().square().sum())

    @property
    def percent(self) -> float:
        """The ratio in %."""
        return 100 * float(np.sqrt(self.errors / self.total))


@dataclass(slots=True)
class Effect:
    """What one codec did.

    Attributes:
        keys: Error of un-rotated keys.
        values: Error of values.
        outputs: Error of attention outputs, for the questions' own queries.
        stored_bytes: Of all blocks.
        num_values: Numbers in all blocks.
        logit_errors: Per question, the most absolute error among the first token's logits.
        logit_spread: Per question, the standard deviation of the undisturbed logits.
        is_same: Per question, whether the answer is that of the undisturbed memory.
        is_right: Per question, whether the answer is true.
    """

    keys: Ratio = field(default_factory=Ratio)
    values: Ratio = field(default_factory=Ratio)
    outputs: Ratio = field(default_factory=Ratio)
    stored_bytes: int = 0
    num_values: int = 0
    logit_errors: list[float] = field(default_factory=list)
    logit_spread: list[float] = field(default_factory=list)
    is_same: list[bool] = field(default_factory=list)
    is_right: list[bool] = field(default_factory=list)


@dataclass(frozen=True, slots=True, eq=False)
class Asked:
    """One question put to one memory.

    Attributes:
        answer: In words.
        logits: ``[vocab]`` of the first token.
        queries: Per layer ``[heads, tokens, head_dim]``, rotated: what the memory was read with.
        outputs: Per layer ``[heads, tokens, head_dim]``, what the question's tokens read there.
    """

    answer: str
    logits: Tensor
    queries: list[Tensor]
    outputs: list[Tensor]


class WatchedStream:
    """A stream that has been watched and can be put to sleep and woken by a codec.

    Args:
        model: The bundled model.
        config: Without a budget (policy ``full``).
        num_frames: Length.
        seed: Of story, pictures and questions.
    """

    def __init__(
        self, model: ModelAdapter, config: HermesConfig, num_frames: int, seed: list[int]
    ) -> None:
        rng = np.random.default_rng(seed)
        story = draw_story(rng, num_frames, min_event_frames=2)
        self.model, self.session = model, StreamSession(model, config)
        with SpritesSource(story, seed=seed[-1]) as source:
            for frame in source:
                self.session.observe(frame)
        drawn = (draw_question(rng, story, type) for type in TYPES)
        self.questions: list[Question] = [question for question in drawn if question is not None]
        self._segment_tokens = config.memory.segment_frames * model.dims.tokens_per_frame
        self._layers = self.session.memory.cache.layers
        self._original = [
            KeyValues(slots.raw_keys.clone(), slots.values.clone()) for slots in self._layers
        ]

    def replace_by(self, codec: KVCodec, effect: Effect) -> None:
        """Put the video's keys and values through a codec, each segment a block per layer."""
        for slots, original in zip(self._layers, self._original, strict=True):
            keys, values = original.raw_keys.clone(), original.values.clone()
            video = (slots.ids >= 0).nonzero().flatten()
            for index in video.split(self._segment_tokens):
                block = KeyValues(keys[0, :, index], values[0, :, index])
                data = codec.encode(block)
                found = decode_block(data)
                effect.keys.add(found.raw_keys, block.raw_keys)
                effect.values.add(found.values, block.values)
                effect.stored_bytes += len(data)
                effect.num_values += block.raw_keys.numel() + block.values.numel()
                keys[0, :, index], values[0, :, index] = found.raw_keys, found.values
            slots.rewrite(
                keys,
                values,
                slots.positions.clone(),
                slots.ids.clone(),
                self.session.memory.cache.rotary,
            )

    def ask(self, question: Question, queries: list[Tensor] | None = None) -> Asked:
        """Ask, with what lies behind the words of the answer.

        Args:
            question: What to ask.
            queries: Rotated queries to read the memory with; None: those of this very pass.
        """
        memory, model = self.session.memory, self.model
        ids = model.question_ids(question.text, is_first=True)
        embeds = torch.cat([model.video_end(), model.embed_text(ids)])
        probe = QueryProbe(range(len(self._layers)))
        device = model.dims.device
        with memory.cache.fork() as fork:
            tokens = prefix_ids(len(embeds), device) - fork.layers[0].length
            logits = memory.extend(fork, embeds, tokens, probe=probe, logits=True)
        queries = queries or self._rotated(probe, len(embeds))
        outputs = [
            _read(query, slots.keys[0], slots.values[0])
            for query, slots in zip(queries, self._layers, strict=True)
        ]
        return Asked(self.session.ask(question.text).text, logits, queries, outputs)

    def _rotated(self, probe: QueryProbe, num_tokens: int) -> list[Tensor]:
        memory = self.session.memory
        starts = memory.scheme.starts([slots.positions for slots in self._layers])
        return [
            rotate(
                probe.queries[layer],
                memory.cache.rotary(
                    start + torch.arange(num_tokens, device=self.model.dims.device)
                ),
            )
            for layer, start in enumerate(starts)
        ]


def _read(query: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of ``[heads, n, d]`` over ``[kv_heads, slots, d]``, all of them visible."""
    groups = query.shape[0] // keys.shape[0]
    keys, values = keys.repeat_interleave(groups, 0), values.repeat_interleave(groups, 0)
    logits = query.float() @ keys.float().transpose(1, 2) * query.shape[-1] ** -0.5
    return logits.softmax(-1) @ values.float()


def measure(
    model: ModelAdapter,
    config: HermesConfig,
    codecs: dict[str, KVCodec],
    *,
    num_streams: int,
    num_frames: int,
    num_questions: int | None,
    seed: int,
) -> tuple[dict[str, Effect], list[bool]]:
    """Watch streams and ask about them, with the memory as it is and after every codec.

    Args:
        model: The bundled model.
        config: Without a budget.
        codecs: By name.
        num_streams: How many streams.
        num_frames: Frames of each.
        num_questions: Most questions per stream; None: one of every type that fits.
        seed: Of everything random.

    Returns:
        The effect of every codec, and whether the answers of the undisturbed memory are true.
    """
    effects: dict[str, Effect] = defaultdict(Effect)
    is_right: list[bool] = []
    for number in range(num_streams):
        stream = WatchedStream(model, config, num_frames, [seed, number])
        with stream.session:
            questions = stream.questions[:num_questions]
            before = [stream.ask(question) for question in questions]
            is_right += [q.answer == a.answer for q, a in zip(questions, before, strict=True)]
            for name, codec in codecs.items():
                stream.replace_by(codec, effects[name])
                for question, plain in zip(questions, before, strict=True):
                    found = stream.ask(question, plain.queries)
                    _compare(effects[name], question, plain, found)
    return dict(effects), is_right


def _compare(effect: Effect, question: Question, plain: Asked, found: Asked) -> None:
    for before, after in zip(plain.outputs, found.outputs, strict=True):
        effect.outputs.add(after, before)
    effect.logit_errors.append(float((found.logits - plain.logits).abs().max()))
    effect.logit_spread.append(float(plain.logits.std()))
    effect.is_same.append(found.answer == plain.answer)
    effect.is_right.append(found.answer == question.answer)
