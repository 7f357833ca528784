"""The monitor for asyncio: the same verbs, awaited. Nothing blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from hermes_like.monitor.events import MonitorEvent
from hermes_like.monitor.monitor import Monitor, StreamInfo
from hermes_like.records import Answer

#: Events and pieces of text that wait for a slow reader; then the oldest go.
_MAX_WAITING = 1024


class AsyncMonitor:
    """A :class:`Monitor` whose methods are awaited; takes the same arguments.

    Example:
        >>> async with AsyncMonitor(model="sprites", memory="memory") as monitor:
        ...     await monitor.add_stream("gate", "rtsp://192.0.2.7/live")
        ...     print((await monitor.ask("was there a red star ?")).text)
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._make: Callable[[], Monitor] = lambda: Monitor(*args, **kwargs)
        self._monitor: Monitor | None = None

    @property
    def monitor(self) -> Monitor:
        """The monitor behind it; there inside ``async with``."""
        if self._monitor is None:
            raise RuntimeError("AsyncMonitor: enter it with 'async with' first")
        return self._monitor

    async def __aenter__(self) -> Self:
        self._monitor = await asyncio.to_thread(self._make)
        await asyncio.to_thread(self._monitor.start)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.monitor.stop)

    async def add_stream(self, *args: Any, **kwargs: Any) -> None:
        """See :meth:`Monitor.add_stream`."""
        await asyncio.to_thread(self.monitor.add_stream, *args, **kwargs)

    async def remove_stream(self, name: str, *, forget: bool = False) -> None:
        """See :meth:`Monitor.remove_stream`."""
        await asyncio.to_thread(self.monitor.remove_stream, name, forget=forget)

    async def streams(self) -> tuple[StreamInfo, ...]:
        """See :meth:`Monitor.streams`."""
        return await asyncio.to_thread(self.monitor.streams)

    async def erase(self, *args: Any, **kwargs: Any) -> dict[str, tuple[float, float]]:
        """See :meth:`Monitor.erase`."""
        return await asyncio.to_thread(self.monitor.erase, *args, **kwargs)

    async def join(self, timeout_s: float | None = None) -> bool:
        """See :meth:`Monitor.join`."""
        return await asyncio.to_thread(self.monitor.join, timeout_s)

    async def ask(self, question: str, **options: Any) -> Answer:
        """See :meth:`Monitor.ask`."""
        return await asyncio.to_thread(self.monitor.ask, question, **options)

    async def ask_stream(self, question: str, *, stream: str, **options: Any) -> AsyncIterator[str]:
        """Pieces of an answer as they come; leaving early stops it."""
        pieces = await asyncio.to_thread(
            self.monitor.ask_stream, question, stream=stream, **options
        )
        iterator = iter(pieces)
        try:
            while (piece := await asyncio.to_thread(next, iterator, None)) is not None:
                yield piece
        finally:
            await asyncio.to_thread(pieces.close)

    async def events(self) -> AsyncIterator[MonitorEvent]:
        """Events from now on, until the reader leaves; a slow reader loses the oldest."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Queue[MonitorEvent] = asyncio.Queue(_MAX_WAITING)

        def put(event: MonitorEvent) -> None:
            if waiting.full():
                waiting.get_nowait()
            waiting.put_nowait(event)

        def receive(event: MonitorEvent) -> None:
            with suppress(RuntimeError):  # the loop is closed already
                loop.call_soon_threadsafe(put, event)

        remove = self.monitor.on_event(receive)
        try:
            while True:
                yield await waiting.get()
        finally:
            remove()
