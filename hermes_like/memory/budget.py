"""From the promised cap to the resident budget, in whole tokens.

``device_tokens`` is the most slots any layer ever holds. Two moments are fullest: the end of a
segment, when a whole segment lies on top of what is resident and a guidance prompt is read; and a
question asked just before that.
"""

from __future__ import annotations

from dataclasses import dataclass

from hermes_like.config import MemoryConfig
from hermes_like.errors import BudgetError


@dataclass(frozen=True, slots=True)
class Budget:
    """Tokens per layer.

    Attributes:
        device_tokens: The cap; None: unlimited policy.
        prefix_tokens: Protected tokens before the video.
        resident_tokens: Video tokens that compaction leaves, summaries included; None: unlimited.
    """

    device_tokens: int | None
    prefix_tokens: int
    resident_tokens: int | None


def ask_tokens(config: MemoryConfig, video_end_tokens: int) -> int:
    """Slots that a question with its conversation and answer may take."""
    return video_end_tokens + config.history_tokens + config.question_tokens + config.answer_tokens


def plan_budget(
    config: MemoryConfig,
    *,
    unlimited: bool,
    tokens_per_frame: int,
    prefix_tokens: int,
    video_end_tokens: int,
    guidance_tokens: int,
    retrieved_tokens: int = 0,
) -> Budget:
    """Derive the resident budget from ``device_tokens``.

    Args:
        config: Cap, segment length and reserves.
        unlimited: The policy never evicts.
        tokens_per_frame: Vision tokens of a frame.
        prefix_tokens: Protected tokens before the video.
        video_end_tokens: Tokens that close a video when a question is asked.
        guidance_tokens: Longest guidance prompt that is scored with.
        retrieved_tokens: Slots kept free for what comes back from other tiers.

    Raises:
        BudgetError: The cap leaves no room for one frame, or for the protected frames.
    """
    if unlimited:
        return Budget(None, prefix_tokens, None)
    segment = config.segment_frames * tokens_per_frame
    asking = ask_tokens(config, video_end_tokens)
    asking += retrieved_tokens
    on_top = max(segment + guidance_tokens, segment - tokens_per_frame + asking)
    resident = config.device_tokens - prefix_tokens - on_top
    floor = max(1, config.protected_frames) * tokens_per_frame + 1
    if resident < floor:
        raise BudgetError(
            f"memory.device_tokens: expected at least {prefix_tokens + on_top + floor} "
            f"(prefix {prefix_tokens}, segment of {config.segment_frames} frames {segment}, "
            f"question with history, answer and retrieved tokens {asking}, "
            f"guidance {guidance_tokens}, resident {floor}), got {config.device_tokens}"
        )
    return Budget(config.device_tokens, prefix_tokens, resident)
