"""Questions about single frames, each alone behind the prefix: nothing else of the stream is seen.

Several frames go through the model in one pass where it can do that. The module knows neither which
frames are asked about nor what is made of the replies.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

import torch

from hermes_like.memory import provenance
from hermes_like.memory.cache import HierarchicalCache
from hermes_like.memory.hierarchy import DeviceMemory
from hermes_like.memory.merge import ReturnedTokens, isolate
from hermes_like.memory.rows import RowsCache, row_positions

#: A reply to a yes-or-no question is read up to this many tokens.
REPLY_TOKENS = 4

#: Tokens of one frame, one entry per decoder layer.
FrameTokens = Sequence[ReturnedTokens]


class AloneAsker:
    """Asks one question about one frame after the other, or about several at a time.

    Args:
        memory: The stream's memory on the device.
        cache: A fork, for its prefix; read, not changed.
        prompt: Token ids of the question with its template.
        max_rows: Most frames in one pass. All rows together never take more slots than
            ``memory.device_tokens``.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        cache: HierarchicalCache,
        prompt: Sequence[int],
        max_rows: int = 1,
    ) -> None:
        self.memory, self.cache, self.adapter = memory, cache, memory.adapter
        self._embeds = torch.cat([self.adapter.video_end(), self.adapter.embed_text(prompt)])
        self.max_rows = self._allowed(max_rows)

    def _allowed(self, max_rows: int) -> int:
        cap = self.memory.budget.device_tokens
        slots = self._num_prefix + self.memory.tokens_per_frame + int(self._embeds.shape[0])
        return max_rows if cap is None else max(1, min(max_rows, cap // slots))

    @property
    def _num_prefix(self) -> int:
        return self.memory.compactor.num_prefix

    def first_words(self, frames: Sequence[FrameTokens]) -> list[str]:
        """How the reply about each frame begins: up to the end of its first token with text."""
        replies: list[str | None] = [None] * len(frames)
        alike: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for number, tokens in enumerate(frames):
            positions = row_positions(self.cache, tokens, self.memory.scheme, self._num_prefix)
            alike[tuple(positions.flatten().tolist())].append(number)
        for numbers in alike.values():
            for start in range(0, len(numbers), self.max_rows):
                chosen = numbers[start : start + self.max_rows]
                if len(chosen) > 1:
                    found = self._side_by_side([frames[number] for number in chosen])
                    replies = _filled(replies, chosen, found)
        return [
            self._reply(tokens, REPLY_TOKENS, _has_text) if reply is None else reply
            for tokens, reply in zip(frames, replies, strict=True)
        ]

    def answer(self, tokens: FrameTokens, max_tokens: int) -> str:
        """The whole reply about some frames that are shown together.

        Args:
            tokens: One per decoder layer, ids ascending.
            max_tokens: Longest reply.
        """
        return self._reply(tokens, max_tokens, lambda text: False).strip()

    @torch.inference_mode()
    def _side_by_side(self, frames: Sequence[FrameTokens]) -> list[str | None]:
        """First tokens of replies about frames with the same positions; None: no text in it yet."""
        rows = RowsCache(self.cache, frames, self.memory.scheme, self._num_prefix)
        count = int(self._embeds.shape[0])
        positions = rows.next_position + torch.arange(count, device=self._embeds.device)
        slots = len(frames) * (rows.row_slots + count)
        self.cache.peak_slots = max(self.cache.peak_slots, slots)
        with rows.step([positions] * self.adapter.dims.num_layers, -1 - positions):
            logits = self.adapter.forward_rows(
                self._embeds.repeat(len(frames), 1), rows, len(frames)
            )
        if logits is None:
            self.max_rows = 1
            return [None] * len(frames)
        replies: list[str | None] = []
        for token in logits.argmax(-1).tolist():
            text = "" if token in self.adapter.eos_ids else self.adapter.decode_text([token])
            is_open = not _has_text(text) and token not in self.adapter.eos_ids
            replies.append(None if is_open else text)
        return replies

    @torch.inference_mode()
    def _reply(self, tokens: FrameTokens, max_tokens: int, is_enough: Callable[[str], bool]) -> str:
        """Ask about frames alone: prefix, their tokens, the question."""
        adapter, memory = self.adapter, self.memory
        reply: list[int] = []
        embeds = self._embeds
        with self.cache.fork() as alone:
            isolate(alone, tokens, memory.scheme, self._num_prefix)
            while len(reply) < max_tokens:
                numbers = torch.arange(embeds.shape[0], device=embeds.device)
                ids = -1 - alone.layers[0].length - numbers
                token = int(memory.extend(alone, embeds, ids, logits=True).argmax())
                if token in adapter.eos_ids:
                    break
                reply.append(token)
                if is_enough(adapter.decode_text(reply)):
                    break
                embeds = adapter.embed_text([token])
        return adapter.decode_text(reply)


def by_frame(
    tokens: Sequence[ReturnedTokens], frames: Sequence[int], tokens_per_frame: int
) -> dict[int, list[ReturnedTokens]]:
    """Tokens of each of some frames.

    Args:
        tokens: One per decoder layer.
        frames: Running numbers.
        tokens_per_frame: Vision tokens of a whole frame.
    """
    split: dict[int, list[ReturnedTokens]] = {frame: [] for frame in frames}
    for layer in tokens:
        of = provenance.frames_of(layer.ids, tokens_per_frame)
        for frame in frames:
            keep = (of == frame).nonzero()[:, 0]
            there = keep.to(layer.raw_keys.device)
            split[frame].append(
                ReturnedTokens(layer.raw_keys[:, there], layer.values[:, there], layer.ids[keep])
            )
    return split


def _has_text(text: str) -> bool:
    return bool(text.strip())


def _filled(
    replies: list[str | None], numbers: Sequence[int], found: Sequence[str | None]
) -> list[str | None]:
    for number, reply in zip(numbers, found, strict=True):
        replies[number] = reply
    return replies
