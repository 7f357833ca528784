"""A real cluster of two nodes, one of which is killed in mid-run. ``make test-ray`` sets Ray up."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from hermes_like.cli import run as command
from hermes_like.evaluation import ray_hands
from hermes_like.evaluation.hands import Hand
from hermes_like.evaluation.worker import Job, Setup
from tests.evaluation.runs import read, run_folder

ray = pytest.importorskip("ray", reason="Ray is not installed here: make test-ray")


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head that does no work, and two nodes for one worker each."""
    from ray.cluster_utils import Cluster

    small = {"object_store_memory": 80_000_000}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False, **small}
    )
    try:
        for _ in range(2):
            made.add_node(num_cpus=1, **small)
        made.wait_for_nodes()
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


def test_a_node_that_is_killed_in_mid_run(
    cluster: Any,
    made_set: Path,
    undisturbed: list[dict[str, Any]],
    tmp_path: Path,
) -> None:
    killed: list[str] = []

    class Fragile(ray_hands.RayHand):
        """Loses the machine under its worker after the first answer."""

        def start(self) -> str:
            found = super().start()
            self.node = _node_of(self._actor)
            return found

        def work(self, job: Job) -> Iterator[dict[str, Any]]:
            for message in super().work(job):
                yield message
                if not killed:
                    killed.append(self.node)
                    (node,) = [n for n in cluster.worker_nodes if n.node_id == self.node]
                    cluster.remove_node(node, allow_graceful=False)

    def hands(setup: Setup, count: int) -> Sequence[Hand]:
        places = [setup.model_copy(update={"place": number}) for number in range(count)]
        return [Fragile(places[0]), ray_hands.RayHand(places[1])]

    ray_hands.connect(cluster.address)
    report = run_folder(made_set, tmp_path / "p.jsonl", num_workers=2, hands=hands)
    assert len(killed) == 1
    assert report.num_lost == 1
    assert read(tmp_path / "p.jsonl") == undisturbed


def test_command(cluster: Any, made_set: Path, undisturbed: Any, tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    arguments = ["eval", "run", "sprites", str(made_set), "--out", str(out), "--workers", "2"]
    assert command([*arguments, "--ray", cluster.address]) == 0
    assert read(out) == undisturbed


def _node_of(actor: Any) -> str:
    return str(ray.get(actor.node_id.remote()))
