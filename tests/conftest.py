"""Settings of all tests: no hub, one thread. Importing this file does not import torch."""

from __future__ import annotations

import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
os.environ["GOMP_SPINCOUNT"] = "0"
os.environ["OMP_NUM_THREADS"] = "1"
os.environ["MPLBACKEND"] = "Agg"
for _name in [name for name in os.environ if name.startswith("HERMES_LIKE__")]:
    del os.environ[_name]


def pytest_runtest_setup() -> None:
    """Hold torch to one thread, even where a test (or a library) has set another number."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.get_num_threads() != 1:
        torch.set_num_threads(1)
