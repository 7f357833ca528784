"""What ``hermes-like watch`` shows in a terminal: cameras, their memories, a line to ask on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from hermes_like.cli.keys import LineEditor, pressed, single_keys
from hermes_like.cli.output import clock, size
from hermes_like.records import Answer, SourceHealth

if TYPE_CHECKING:
    from hermes_like.monitor import Monitor, MonitorEvent, StreamInfo

_COLOURS = {
    "online": "green",
    "connecting": "yellow",
    "stale": "yellow",
    "offline": "red",
    "disabled": "dim",
}
#: Seconds between two looks at the keyboard, and between two pictures of the table.
_KEY_S, _DRAW_S = 0.05, 0.5
_MAX_LINES = 12


class TerminalView:
    """A table that is drawn again twice a second, with what was asked and answered below it.

    Args:
        console: Where to draw; None: stdout.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console()
        self._editor = LineEditor()
        self._lock = threading.Lock()
        self._lines: deque[Text] = deque(maxlen=_MAX_LINES)
        self._num_open = 0

    def run(self, monitor: Monitor, ask: Callable[[str], None]) -> None:
        """Draw and read keys until Ctrl-C or Ctrl-D."""
        with (
            single_keys() as descriptor,
            Live(console=self._console, auto_refresh=False, transient=False) as live,
        ):
            left_s = 0.0
            while not self._editor.is_ended:
                for line in self._editor.feed(pressed(descriptor, _KEY_S)):
                    self._note(Text(f"Q  {line}", style="bold"))
                    with self._lock:
                        self._num_open += 1
                    ask(line)
                left_s -= _KEY_S
                if left_s <= 0 or self._editor.text:
                    live.update(self.picture(monitor.streams()), refresh=True)
                    left_s = _DRAW_S

    def picture(self, streams: Sequence[StreamInfo]) -> RenderableType:
        """The whole view at this moment."""
        with self._lock:
            lines, num_open = list(self._lines), self._num_open
        prompt = Text.assemble(("ask> ", "bold cyan"), self._editor.text, ("_", "blink"))
        hint = "Enter asks all cameras, '@name question' one of them; Ctrl-D ends"
        if num_open:
            hint = f"{num_open} being answered ... {hint}"
        return Group(table(streams), *lines, prompt, Text(hint, style="dim"))

    def show_event(self, event: MonitorEvent) -> None:
        """See :class:`~hermes_like.cli.live.View`."""
        if event.kind in ("gap", "failure", "ended"):
            self._note(Text(f"{event.time.astimezone():%H:%M:%S}  {event.stream}: {event.text}"))

    def show_answer(self, answer: Answer) -> None:
        """See :class:`~hermes_like.cli.live.View`."""
        for part in answer.parts or (answer,):
            spans = ", ".join(f"{clock(e.start_s)}-{clock(e.end_s)}" for e in part.evidence)
            told = f"{part.route}, {part.ttft_s:.2f} s" + (f", seen at {spans}" if spans else "")
            self._note(
                Text.assemble((f"A  {part.stream}: ", "green"), part.text, (f"  ({told})", "dim"))
            )
            for note in part.notes:
                if note != part.text:
                    self._note(Text(f"   {note}", style="yellow"))
        self._close_one()

    def show_error(self, text: str) -> None:
        """See :class:`~hermes_like.cli.live.View`."""
        self._note(Text(f"!  {text}", style="red"))
        self._close_one()

    def _note(self, line: Text) -> None:
        with self._lock:
            self._lines.append(line)

    def _close_one(self) -> None:
        with self._lock:
            self._num_open = max(0, self._num_open - 1)


def table(streams: Sequence[StreamInfo]) -> Table:
    """One row per camera."""
    made = Table(expand=False, pad_edge=False)
    for title in ("camera", "state", "fps", "lag", "lost", "watched", "device", "RAM", "disk"):
        made.add_column(title, justify="left" if title in ("camera", "state") else "right")
    for info in streams:
        health, stats = info.health, info.stats
        made.add_row(
            info.name,
            _state(health, info.failure),
            f"{health.fps:.1f}",
            f"{health.lag_s:.1f} s",
            str(sum(health.num_dropped.values())),
            f"{stats.num_frames} in {clock(stats.stream_s)}",
            size(stats.device_bytes),
            _tier(info, "host"),
            _tier(info, "disk"),
        )
    return made


def _state(health: SourceHealth, failure: str) -> str:
    colour = _COLOURS[health.state]
    silent = health.silent_s
    since = f" {silent:.0f} s" if silent is not None and health.state != "online" else ""
    frozen = " (frozen)" if health.is_frozen else ""
    cause = failure or health.cause
    shown = f"\n[dim]{escape(cause[:60])}[/dim]" if cause and health.state != "online" else ""
    return f"[{colour}]{health.state}[/{colour}]{since}{frozen}{shown}"


def _tier(info: StreamInfo, tier: str) -> str:
    values = info.stats.tiers.get(tier)
    return "-" if values is None else f"{size(values[0])} of {size(values[1])}"
