"""Workers on a Ray cluster, which may be lost with their machines at any time.

Ray is an optional library and is loaded when a cluster is asked for. Messages are JSON text, so
that nothing of ours is taken apart and put together again by it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Sequence
from typing import Any

from hermes_like.errors import ConfigError
from hermes_like.evaluation.hands import Hand, HandLostError, WorkerFailedError
from hermes_like.evaluation.worker import Job, Setup, Worker


class RayWorker:
    """What lives on a node: a worker that speaks JSON.

    Args:
        setup: A :class:`Setup`.
    """

    def __init__(self, setup: str) -> None:
        self._worker = Worker(Setup.model_validate_json(setup))

    def config_hash(self) -> str:
        """Of the settings, with the model that was loaded here."""
        return self._worker.config_hash

    def node_id(self) -> str:
        """Of the machine that this lives on."""
        return str(load_ray().get_runtime_context().get_node_id())

    def work(self, job: str) -> Iterator[str]:
        """See :meth:`Worker.work`."""
        for message in self._worker.work(Job.model_validate_json(job)):
            yield json.dumps(message, ensure_ascii=False)


class RayHand(Hand):
    """An actor on some node of the cluster.

    Args:
        setup: What to run. Folder and videos must be the same files on every node.
    """

    def __init__(self, setup: Setup) -> None:
        self._setup, self._ray = setup, load_ray()
        self._actor: Any = None

    def start(self) -> str:
        """Place an actor and wait until its model is loaded there."""
        ray = self._ray
        self.stop()
        has_gpus = ray.cluster_resources().get("GPU", 0) > 0
        is_on_cpu = self._setup.settings.config.model.device == "cpu"
        made = ray.remote(RayWorker).options(
            num_cpus=1, num_gpus=1 if has_gpus and not is_on_cpu else 0, max_restarts=0
        )
        self._actor = made.remote(self._setup.model_dump_json())
        return str(self._get(self._actor.config_hash.remote()))

    def work(self, job: Job) -> Iterator[dict[str, Any]]:
        """See :meth:`Hand.work`; messages come one by one while the pass goes on."""
        call = self._actor.work.options(num_returns="streaming")
        for reference in self._streamed(call.remote(job.model_dump_json())):
            yield json.loads(self._get(reference))

    def stop(self) -> None:
        """Kill the actor."""
        if self._actor is not None:
            self._ray.kill(self._actor)

    def close(self) -> None:
        """Kill the actor."""
        self.stop()
        self._actor = None

    def _streamed(self, generator: Any) -> Iterator[Any]:
        # No "yield from": what is left in the middle must not be closed twice.
        while True:
            try:
                reference = next(generator)
            except StopIteration:
                return
            except self._ray.exceptions.RayError as error:
                raise self._meant(error) from error
            yield reference

    def _get(self, reference: Any) -> Any:
        try:
            return self._ray.get(reference)
        except self._ray.exceptions.RayError as error:
            raise self._meant(error) from error

    def _meant(self, error: Any) -> HandLostError | WorkerFailedError:
        """A lost machine is no failure of the work; an exception on it is."""
        lines = str(error).strip().splitlines() or [type(error).__name__]
        is_ours = isinstance(error, self._ray.exceptions.RayTaskError)
        # What is raised while an actor is made comes as the death of the actor.
        if is_ours or "creation task" in lines[0]:
            return WorkerFailedError(f"on the cluster: {lines[-1]}")
        return HandLostError(f"worker {self._setup.place} is lost: {type(error).__name__}")


def connect(address: str) -> None:
    """Join a cluster.

    Args:
        address: ``host:port`` of the head, ``ray://host:port``, ``auto``, or ``local`` for a
            cluster of its own on this machine.

    Raises:
        ConfigError: Ray is not installed, or there is no cluster.
    """
    ray = load_ray()
    if ray.is_initialized():
        return
    try:
        ray.init(address=address, log_to_driver=False)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise ConfigError(f"--ray: no cluster at {address!r}: {error}") from error


def ray_hands(setup: Setup, count: int) -> Sequence[Hand]:
    """So many workers, on whatever nodes have room. The cluster has been joined."""
    return [RayHand(setup.model_copy(update={"place": number})) for number in range(count)]


def load_ray() -> Any:
    """The library.

    Raises:
        ConfigError: It is not installed.
    """
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ConfigError("--ray needs Ray: pip install 'hermes-like[ray]'") from error
