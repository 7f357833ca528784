"""The search beside busy processes, on a small index."""

from __future__ import annotations

import json

import pytest

from pipelines.search_speed import main


def test_search_speed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--frames", "400", "--busy", "1"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])["found"]
    assert set(found) == {"alone", "busy"}
    for cells in found.values():
        assert set(cells) == {"shared_ms", "ours_ms"}
        assert all(value > 0 for value in cells.values())
