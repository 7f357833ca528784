"""``hermes-like plan --gpu-gb``: what ``memory.device_tokens`` may be on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from hermes_like.cli.output import size
from hermes_like.cli.plan_model import random_twin

if TYPE_CHECKING:
    from hermes_like.card import Card
    from hermes_like.config import HermesConfig


def fit_cards(
    config: HermesConfig, gpu_gb: Sequence[float], *, streams: int, reserve_gb: float
) -> list[Card]:
    """Work out what fits, on a model of the same shape that is not allocated.

    Raises:
        ModelNotFoundError: The model is neither ``random:<shape>`` nor that of a preset.
    """
    if not gpu_gb:
        return []
    from hermes_like.card import fit
    from hermes_like.models import load_model

    model: Any = load_model(random_twin(config.model))
    weights = sum(p.numel() * p.element_size() for p in model._model.parameters())
    return [
        fit(config, model, weights, size, streams=streams, reserve_gb=reserve_gb) for size in gpu_gb
    ]


def print_cards(cards: Sequence[Card], console: Console) -> None:
    """Print a row for every size."""
    card = cards[0]
    console.print(
        f"on a GPU: weights {size(card.weight_bytes)}, {size(card.reserve_bytes)} assumed for "
        f"driver, activations and pictures; {card.caches} caches of {card.slot_bytes} bytes per "
        "slot, counting the one that an answer from the past is given from; "
        f"at least {card.least_tokens} slots, at most {card.position_tokens} positions"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("GPU", "memory.device_tokens", "a cache", "video tokens resident", "as frames"):
        table.add_column(name, justify="right")
    for card in cards:
        fits = [
            str(card.device_tokens),
            size(card.device_tokens * card.slot_bytes),
            str(card.resident_tokens),
            str(card.resident_frames),
        ]
        table.add_row(
            f"{card.gpu_gb:g} GB", *(fits if card.device_tokens else ["does not fit", "", "", ""])
        )
    console.print(table)
