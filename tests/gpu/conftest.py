"""Tests that need a GPU: skipped without one; ``pytest -m gpu`` runs these alone."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture
def device() -> torch.device:
    """The GPU; tests that ask for it are skipped where there is none."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return torch.device("cuda", torch.cuda.current_device())
