"""The page: components, and what happens when somebody uses them.

All text that changes is made in ``views.py``, all work is done by visits.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import gradio as gr

from demos import views
from demos.choice import Choice, DemoError
from demos.script import REAL_QUESTIONS, SCENARIOS, SPRITES_QUESTIONS
from demos.shown import Shown
from demos.site import Site
from demos.visit import Visit
from hermes_like.cli.options import stream_seconds
from hermes_like.cli.output import clock
from hermes_like.errors import HermesError, SessionStateError
from hermes_like.records import Evidence

logger = logging.getLogger(__name__)

TICK_S = 1.0
NUM_SUGGESTIONS = 4
TITLE = "hermes-like: ask about live or recorded video"
HEAD = (
    "<div class='hl-head'><h1>Ask about live or recorded video</h1><p>The video goes in for "
    "minutes or weeks; memory stays under its caps; every answer shows the moments it rests on."
    "</p></div>"
)
SPRITES_NOTE = (
    "The bundled model is tiny and knows one world only: coloured shapes that come and go. For "
    "your own video start the page with a real model: <code>hermes-like demo --model NAME</code>."
)


class Page:
    """Builds the page for a site.

    Args:
        site: All visitors together.
    """

    def __init__(self, site: Site) -> None:
        self.site = site
        self._shown: WeakKeyDictionary[Visit, Shown] = WeakKeyDictionary()

    def build(self) -> gr.Blocks:
        """The whole page."""
        with gr.Blocks(title=TITLE, analytics_enabled=False, fill_width=False) as blocks:
            gr.HTML(HEAD)
            self.notice = gr.HTML()
            with gr.Row(equal_height=False):
                with gr.Column(scale=6, min_width=320):
                    self._build_sources()
                    self._build_stage()
                with gr.Column(scale=5, min_width=320):
                    self._build_asking()
            gr.HTML("<h2 class='hl-h2'>Memory</h2>")
            self.memory = gr.HTML(views.EMPTY_MEMORY, elem_id="hl-memory")
            self._build_budgets()
            self._build_keeping()
            timer = gr.Timer(TICK_S)
            self._wire(blocks, timer)
        return blocks

    # -- components ------------------------------------------------------------------------------

    def _build_sources(self) -> None:
        with gr.Tabs(elem_id="hl-sources"):
            with gr.Tab("Sample", id="sample"):
                self.scenario = gr.Dropdown(
                    list(SCENARIOS), value=next(iter(SCENARIOS)), label="Built-in scenario"
                )
                self.watch_sample = gr.Button("Watch", variant="primary", elem_id="hl-watch-sample")
            with gr.Tab("My video", id="upload"):
                self.upload = gr.File(
                    label="Drop a video here, or click to choose one",
                    height=130,
                    elem_id="hl-upload",
                )
                gr.HTML(
                    "<p class='hl-note'>It stays on this machine, and is deleted when you leave "
                    "unless you save its memory.</p>"
                )
            with gr.Tab("Webcam", id="webcam"):
                self.webcam = gr.Image(
                    sources=["webcam"], streaming=True, label="Your webcam", height=240,
                    elem_id="hl-webcam", buttons=[],
                )  # fmt: skip
                gr.HTML(
                    "<p class='hl-note'>Allow the camera in the picture, start it there, then "
                    "press Watch.</p>"
                )
                self.watch_webcam = gr.Button("Watch", variant="primary", elem_id="hl-watch-webcam")
            with gr.Tab("Camera", id="address"):
                self.address = gr.Textbox(
                    label="Address of a camera or stream",
                    placeholder="rtsp://user:password@camera/stream or http://camera/video",
                    max_lines=1,
                )
                self.watch_address = gr.Button(
                    "Watch", variant="primary", elem_id="hl-watch-address"
                )
        self.watch_error = gr.HTML(elem_id="hl-watch-error")

    def _build_stage(self) -> None:
        self.stage = gr.HTML(views.EMPTY_STAGE, elem_id="hl-stage")
        self.status = gr.HTML("<p class='hl-status'>Ready.</p>", elem_id="hl-status")
        with gr.Row():
            self.pause = gr.Button("Pause", size="sm", interactive=False, min_width=80)
            self.resume = gr.Button("Resume", size="sm", interactive=False, min_width=80)
            self.stop = gr.Button("Stop watching", size="sm", interactive=False, min_width=80)
        # Pressed by the page's script when a film cannot be played.
        self.needs_preview = gr.Button("Make a preview", elem_id="hl-needs-preview")

    def _build_asking(self) -> None:
        self.question = gr.Textbox(
            label="Question",
            placeholder="Ask at any moment, also while it is being watched",
            max_lines=3,
            elem_id="hl-question",
        )
        with gr.Row():
            self.ask = gr.Button("Ask", variant="primary", elem_id="hl-ask", min_width=120)
            self.stop_answer = gr.Button("Stop answer", elem_id="hl-stop-answer", min_width=120)
        with gr.Row(elem_id="hl-suggestions"):
            first = self._fixed_questions(self.site.models()[0])
            self.suggestions = [
                gr.Button(text, size="sm", variant="secondary", min_width=210) for text in first
            ]
        self.route = gr.Radio(
            list(views.ROUTES), value=next(iter(views.ROUTES)), label="Where to look",
            elem_id="hl-route",
        )  # fmt: skip
        self.ask_error = gr.HTML(elem_id="hl-ask-error")
        self.answer = gr.HTML(views.EMPTY_ANSWERS, elem_id="hl-answer")
        self.earlier = gr.HTML(elem_id="hl-earlier")

    def _build_budgets(self) -> None:
        choice = self._first_choice()
        with gr.Accordion("Model and memory budgets", open=False, elem_id="hl-budgets"), gr.Row():
            with gr.Column(scale=1, min_width=280):
                self.model = gr.Dropdown(
                    self.site.models(),
                    value=choice.model,
                    label="Model",
                    allow_custom_value=self.site.settings.is_loopback,
                    info="Bundled, a local folder, or a name from the hub; used from the next "
                    "Watch on",
                )
                self.device_tokens = gr.Slider(
                    190, max(2048, choice.device_tokens), choice.device_tokens, step=2,
                    label="Device (slots per layer)",
                )  # fmt: skip
                self.host_mib = gr.Slider(16, 4096, choice.host_mib, step=16, label="RAM (MiB)")
                self.disk_mib = gr.Slider(64, 4096, choice.disk_mib, step=64, label="Disk (MiB)")
                self.as_it_plays = gr.Checkbox(
                    False, label="Watch recordings at the pace at which they play"
                )
            with gr.Column(scale=2, min_width=280):
                config = self.site.config(choice.model)
                self.plan = gr.HTML(views.budgets(choice, config), elem_id="hl-plan")

    def _build_keeping(self) -> None:
        with gr.Accordion("Save, reopen, erase", open=False, elem_id="hl-keeping"):
            with gr.Row():
                with gr.Column(min_width=260):
                    self.save_name = gr.Textbox(label="Save this memory as", max_lines=1)
                    self.save = gr.Button("Save", elem_id="hl-save")
                with gr.Column(min_width=260):
                    self.saved = gr.Dropdown(
                        self.site.saved(), value=None, label="Saved memories", elem_id="hl-saved"
                    )
                    self.open = gr.Button("Open", elem_id="hl-open")
                with gr.Column(min_width=260):
                    with gr.Row():
                        self.erase_from = gr.Textbox(
                            label="Erase from", placeholder="0:30", max_lines=1, min_width=90
                        )
                        self.erase_to = gr.Textbox(
                            label="to", placeholder="0:45", max_lines=1, min_width=90
                        )
                    self.erase = gr.Button("Erase...", elem_id="hl-erase")
            with gr.Group(visible=False) as self.confirm:
                self.confirm_text = gr.HTML(padding=True)
                with gr.Row():
                    self.erase_yes = gr.Button("Erase for good", variant="stop")
                    self.erase_no = gr.Button("Keep it")
            self.keep_note = gr.HTML(elem_id="hl-keep-note")

    def _first_choice(self) -> Choice:
        """Budgets of the first model's preset, as far as the sliders reach."""
        name = self.site.models()[0]
        memory = self.site.config(name).memory
        return Choice(model=name, device_tokens=memory.device_tokens)

    def _fixed_questions(self, model: str) -> tuple[str, ...]:
        return SPRITES_QUESTIONS if model == "sprites" else REAL_QUESTIONS

    # -- wiring ----------------------------------------------------------------------------------

    def _wire(self, blocks: gr.Blocks, timer: gr.Timer) -> None:
        quiet: dict[str, Any] = {
            "show_progress": "hidden", "api_visibility": "private", "concurrency_limit": None,
        }  # fmt: skip
        view = self._view_outputs()
        blocks.load(self._load, None, [self.notice, self.saved], **quiet)
        blocks.unload(self._leave)
        timer.tick(self._tick, None, view, trigger_mode="once", **quiet)

        choice = [self.model, self.device_tokens, self.host_mib, self.disk_mib, self.as_it_plays]
        begun = [self.watch_error, self.answer, self.earlier, self.ask_error, self.upload, *view]
        for button, source in (
            (self.watch_sample, self.scenario),
            (self.watch_webcam, None),
            (self.watch_address, self.address),
        ):
            button.click(
                self._watch(button), [*([source] if source else []), *choice], begun, **quiet
            )
        self.upload.upload(self._watch(self.upload), [self.upload, *choice], begun, **quiet)
        self.webcam.stream(
            self._push, self.webcam, None, stream_every=0.5, time_limit=None, **quiet
        )
        for button, action in (
            (self.pause, Visit.pause), (self.resume, Visit.resume), (self.stop, Visit.stop),
            (self.needs_preview, Visit.make_preview),
        ):  # fmt: skip
            button.click(self._do(action), None, view, **quiet)

        asked = [self.question, self.ask_error, self.answer, self.earlier]
        asking: dict[str, Any] = quiet | {"concurrency_limit": self.site.settings.max_visitors}
        for event in (self.ask.click, self.question.submit):
            event(self._ask, [self.question, self.route], asked, **asking)
        for button in self.suggestions:
            button.click(self._ask, [button, self.route], asked, **asking)
        self.stop_answer.click(self._do(Visit.stop_answer), None, view, **quiet)

        for component in choice[:4]:
            component.change(self._plan, choice, self.plan, **quiet)
        self._wire_keeping(quiet, view)

    def _wire_keeping(self, quiet: dict[str, Any], view: list[Any]) -> None:
        self.save.click(self._save, self.save_name, [self.keep_note, self.saved, *view], **quiet)
        opened = [self.keep_note, self.saved, self.answer, self.earlier, self.ask_error, *view]
        self.open.click(self._open, self.saved, opened, **quiet)
        span = [self.erase_from, self.erase_to]
        asked = [self.confirm, self.confirm_text, self.keep_note]
        self.erase.click(self._ask_erase, span, asked, **quiet)
        self.erase_no.click(lambda: gr.update(visible=False), None, self.confirm, **quiet)
        erased = [self.confirm, self.keep_note, self.answer, self.earlier, *view]
        self.erase_yes.click(self._erase, span, erased, **quiet)

    # -- visitors --------------------------------------------------------------------------------

    def _visit(self, request: gr.Request) -> Visit:
        return self.site.visit(str(request.session_hash))

    def _load(self, request: gr.Request) -> tuple[Any, Any]:
        saved = gr.update(choices=self.site.saved())
        try:
            visit = self._visit(request)
        except DemoError as failure:
            return views.error(str(failure)), saved
        is_small = visit.choice.model == "sprites"
        return (f"<p class='hl-note'>{SPRITES_NOTE}</p>" if is_small else ""), saved

    def _leave(self, request: gr.Request) -> None:
        self.site.leave(str(request.session_hash))

    # -- what is seen ----------------------------------------------------------------------------

    def _view_outputs(self) -> list[Any]:
        return [
            self.status, self.stage, self.memory, self.pause, self.resume, self.stop,
            *self.suggestions,
        ]  # fmt: skip

    def _tick(self, request: gr.Request) -> list[Any]:
        try:
            visit = self._visit(request)
        except DemoError:
            return [gr.skip()] * len(self._view_outputs())
        return self._view(visit)

    def _view(self, visit: Visit) -> list[Any]:
        """All that changes by itself; what is as it was is not sent again."""
        progress = visit.progress()
        is_open = progress is not None and not progress.is_over
        is_paused = progress is not None and progress.state == "paused"
        buttons = [is_open and not is_paused, is_paused, is_open]
        suggestions = [*visit.suggestions(), *self._fixed_questions(visit.choice.model)]
        shown = self._shown.setdefault(visit, Shown())
        return [
            shown.changed("status", views.status(progress, visit.label, visit.saved_as)),
            shown.changed("stage", views.stage(visit)),
            shown.memory(visit.snapshot(), _hits(visit)),
            *(
                shown.changed(f"button{i}", is_on, lambda on: gr.update(interactive=on))
                for i, is_on in enumerate(buttons)
            ),
            *(shown.changed(f"suggestion{i}", suggestions[i]) for i in range(NUM_SUGGESTIONS)),
        ]

    # -- watching --------------------------------------------------------------------------------

    def _watch(self, source: Any) -> Callable[..., list[Any]]:
        """What happens when a source is to be watched."""

        def begin(visit: Visit, value: Any) -> None:
            if source is self.watch_sample:
                visit.watch_scenario(str(value), SCENARIOS[str(value)])
            elif source is self.watch_webcam:
                visit.watch_camera()
            elif source is self.watch_address:
                visit.watch_address(str(value or ""))
            else:
                visit.watch_upload(Path(str(value)))

        def handle(request: gr.Request, *values: Any) -> list[Any]:
            value, *choice = (None, *values) if source is self.watch_webcam else values
            view = [gr.skip()] * len(self._view_outputs())
            sentence, visit = "", None
            try:
                visit = self._visit(request)
                chosen = dict(zip(CHOICE_FIELDS, choice, strict=True))
                visit.choice = replace(visit.choice, **chosen)
                begin(visit, value)
            except (HermesError, SessionStateError) as failure:
                sentence = str(failure)
            if visit is not None:
                view = self._view(visit)
            return [views.error(sentence), *_answers(visit), "", None, *view]

        return handle

    def _push(self, image: Any, request: gr.Request) -> None:
        camera = self._visit(request).camera
        if camera is not None and image is not None:
            camera.push(image)

    def _do(self, action: Callable[[Visit], Any]) -> Callable[..., list[Any]]:
        def handle(request: gr.Request) -> list[Any]:
            visit = self._visit(request)
            action(visit)
            return self._view(visit)

        return handle

    # -- asking ----------------------------------------------------------------------------------

    def _ask(self, question: str, route: str, request: gr.Request) -> Iterator[tuple[Any, ...]]:
        try:
            visit = self._visit(request)
            asking = visit.ask(question or "", views.ROUTES[route])
        except DemoError as failure:
            yield gr.skip(), views.error(str(failure)), gr.skip(), gr.skip()
            return
        yield question, "", *_answers(visit)
        for exchange in asking.updates():
            yield gr.skip(), "", views.exchange(exchange), gr.skip()

    # -- budgets, keeping and forgetting ---------------------------------------------------------

    def _plan(self, model: str, device: int, host: int, disk: int, pace: bool) -> str:
        choice = Choice(str(model), int(device), int(host), int(disk), bool(pace))
        try:
            return views.budgets(choice, self.site.config(choice.model))
        except HermesError as failure:
            return views.error(str(failure))

    def _save(self, name: str, request: gr.Request) -> list[Any]:
        visit = self._visit(request)
        try:
            visit.save(name or "")
            note = views.done(f"Saved as {visit.saved_as}; open it again whenever you like.")
        except (HermesError, SessionStateError) as failure:
            note = views.error(str(failure))
        return [note, gr.update(choices=self.site.saved()), *self._view(visit)]

    def _open(self, name: str | None, request: gr.Request) -> list[Any]:
        visit = self._visit(request)
        try:
            visit.open(name or "")
            note = views.done(f"{visit.saved_as} is open: ask about it.")
        except (HermesError, SessionStateError, OSError, ValueError) as failure:
            note = views.error(str(failure))
        saved = gr.update(choices=self.site.saved())
        return [note, saved, *_answers(visit), "", *self._view(visit)]

    def _ask_erase(self, start: str, end: str) -> tuple[Any, ...]:
        try:
            start_s, end_s = _span(start, end)
        except HermesError as failure:
            return gr.update(visible=False), "", views.error(str(failure))
        text = (
            f"<p>Erase {clock(start_s)} to {clock(end_s)} for good, from the device, RAM and disk, "
            "with its pictures? Whole segments go, so a little more may be erased.</p>"
        )
        return gr.update(visible=True), text, ""

    def _erase(self, start: str, end: str, request: gr.Request) -> list[Any]:
        visit = self._visit(request)
        try:
            first_s, last_s = visit.erase(*_span(start, end))
            note = views.done(f"Erased {clock(first_s)} to {clock(last_s)}.")
        except (HermesError, SessionStateError) as failure:
            note = views.error(str(failure))
        return [gr.update(visible=False), note, *_answers(visit), *self._view(visit)]


CHOICE_FIELDS = ("model", "device_tokens", "host_mib", "disk_mib", "as_it_plays")


def _span(start: str, end: str) -> tuple[float, float]:
    start_s = stream_seconds(start or None, "Erase from")
    end_s = stream_seconds(end or None, "to")
    if start_s is None or end_s is None or not end_s > start_s:
        raise DemoError("Give a beginning and a later end, as in 0:30 and 0:45.")
    return start_s, end_s


def _answers(visit: Visit | None) -> list[Any]:
    """The newest exchange, and the earlier ones."""
    if visit is None:
        return [gr.skip(), gr.skip()]
    exchanges = list(visit.exchanges)
    newest = views.exchange(exchanges[0]) if exchanges else views.EMPTY_ANSWERS
    return [newest, views.earlier(exchanges[1:])]


def _hits(visit: Visit) -> tuple[Evidence, ...]:
    newest = visit.exchanges[0] if visit.exchanges else None
    return () if newest is None or newest.answer is None else newest.answer.evidence
