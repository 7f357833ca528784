"""Training state goes through a file unchanged, and resumes to the same numbers."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file

from pipelines.sprites_training.checkpoint import load_state, save_state


def test_an_optimizer_resumes_to_the_same_numbers(tmp_path) -> None:
    def train(model, optimizer, steps: int) -> None:
        for step in range(steps):
            model(torch.full((1, 3), float(step))).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    torch.manual_seed(0)
    straight = torch.nn.Linear(3, 2)
    stopped = torch.nn.Linear(3, 2)
    stopped.load_state_dict(straight.state_dict())
    one = torch.optim.AdamW(straight.parameters(), betas=(0.9, 0.98))
    two = torch.optim.AdamW(stopped.parameters(), betas=(0.9, 0.98))
    train(straight, one, 3)
    train(stopped, two, 3)
    path = tmp_path / "state.safetensors"
    plan = {"step": 3, "sizes": (1, 2), "names": ["a", None]}
    save_state(path, {"model": stopped.state_dict(), "optimizer": two.state_dict(), "plan": plan})
    state = load_state(path)
    assert state["plan"] == plan
    again = torch.nn.Linear(3, 2)
    again.load_state_dict(state["model"])
    three = torch.optim.AdamW(again.parameters())
    three.load_state_dict(state["optimizer"])
    train(straight, one, 2)
    train(again, three, 2)
    assert torch.equal(again.weight, straight.weight)


def test_a_file_without_state_is_refused(tmp_path) -> None:
    path = tmp_path / "weights.safetensors"
    save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="expected a training state"):
        load_state(path)
