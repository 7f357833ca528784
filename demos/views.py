"""What a visitor sees, as HTML: status, film, answers with their moments, budgets in figures.

Everything that comes from outside is escaped. Knows what visits hold; it knows no framework.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from html import escape

from demos.asking import Exchange
from demos.choice import Choice
from demos.memory_view import COLORS, NAMES, NARROW, WIDE, draw_memory, summary
from demos.pictures import data_address, to_jpeg
from demos.snapshots import Snapshot
from demos.visit import MAX_PICTURES, Visit
from demos.watching import Progress
from hermes_like import plan as arithmetic
from hermes_like.cli.output import answer_json, clock, size
from hermes_like.cli.plan import model_shape
from hermes_like.config import HermesConfig
from hermes_like.errors import HermesError
from hermes_like.records import Answer, Evidence, Image, Route

ROUTES: dict[str, Route | None] = {
    "Choose for me": None,
    "Only now": "now",
    "Search the past": "recall",
    "By time": "time",
    "Go through everything": "scan",
}
ROUTE_WORDS: dict[Route, str] = {
    "now": "looked at now",
    "recall": "searched the past",
    "time": "went to a time",
    "scan": "went through everything",
}
TIER_WORDS = {
    "device": "device",
    "host": "RAM",
    "disk": "disk",
    "remote": "remote",
    "source": "picture",
}
STATE_WORDS = {
    "opening": "Opening",
    "watching": "Watching",
    "paused": "Paused",
    "ended": "Watched to the end",
    "stopped": "Stopped",
    "failed": "Watching failed",
}
EMPTY_STAGE = (
    "<div class='hl-empty'><strong>Nothing is being watched yet.</strong>"
    "<p>Press <em>Watch</em> above to start with the sample, or choose your own video or a "
    "camera.</p></div>"
)
EMPTY_ANSWERS = (
    "<div class='hl-empty'><strong>No question yet.</strong>"
    "<p>Ask while the video is being watched or later: answers come with the moments they rest "
    "on, and a click on one takes you there.</p></div>"
)
EMPTY_MEMORY = (
    "<div class='hl-empty'><strong>The memory is empty.</strong>"
    "<p>Once something is watched, you see here what is remembered, where it lies, and which "
    "moments the last answer used.</p></div>"
)


def error(sentence: str) -> str:
    """A sentence about what went wrong."""
    return f"<p class='hl-error' role='alert'>{escape(sentence)}</p>" if sentence else ""


def done(sentence: str) -> str:
    """A sentence about what has been done."""
    return f"<p class='hl-done' role='status'>{escape(sentence)}</p>"


# -- watching ----------------------------------------------------------------------------------


def status(progress: Progress | None, label: str, saved_as: str) -> str:
    """What is being watched, and how far it is."""
    saved = f" <span class='hl-chip'>saved as {escape(saved_as)}</span>" if saved_as else ""
    if progress is None:
        if not label:
            return "<p class='hl-status'>Ready.</p>"
        return f"<p class='hl-status'><b>Reopened</b> {escape(label)}{saved}</p>"
    figures = [f"{clock(progress.stream_s)} of stream", f"{progress.num_frames} frames"]
    if progress.duration_s:
        figures[0] = f"{clock(progress.stream_s)} of {clock(progress.duration_s)}"
    if progress.state == "watching":
        figures.append(f"{progress.fps:.1f} frames/s")
    if progress.lag_s is not None:
        figures.append(f"lag {progress.lag_s:.1f} s")
    figures.append(f"{progress.num_dropped} dropped")
    bar = ""
    if progress.duration_s and not progress.is_over:
        share = 100 * min(1.0, progress.stream_s / progress.duration_s)
        bar = (
            f"<div class='hl-bar' role='progressbar' aria-label='watched' aria-valuemin='0' "
            f"aria-valuemax='100' aria-valuenow='{share:.0f}'><i style='width:{share:.1f}%'></i>"
            "</div>"
        )
    state = f"<b class='hl-state hl-{progress.state}'>{STATE_WORDS[progress.state]}</b>"
    told = error(progress.text) if progress.state == "failed" else ""
    if progress.text and not told:
        told = f"<p class='hl-note'>{escape(progress.text)}</p>"
    return (
        f"<p class='hl-status'>{state} {escape(label)}{saved}<span class='hl-figures'>"
        f"{escape(', '.join(figures))}</span></p>{bar}{told}"
    )


def stage(visit: Visit) -> str:
    """The film, or the newest picture of a camera, or what to do first."""
    if not visit.has_memory:
        return EMPTY_STAGE
    if visit.film.token:
        return (
            f"<video id='hl-video' class='hl-video' controls muted playsinline preload='auto' "
            f"aria-label='{escape(visit.label, quote=True)}' src='clip/{visit.film.token}'>"
            f"</video>{_preview_note(visit)}"
        )
    picture = visit.newest_picture
    if picture is None:
        return "<div class='hl-empty'><p>No picture has come yet.</p></div>"
    what = "Newest picture" if visit.is_live else "The film is being prepared; newest picture"
    return _picture(picture, what)


def _preview_note(visit: Visit) -> str:
    if visit.film.is_making_preview:
        return (
            "<p class='hl-note'>Your browser cannot play this file, so a preview is being made. "
            "The model sees the original.</p>"
        )
    return error(visit.film.error)


def _picture(image: Image, what: str) -> str:
    address = data_address(to_jpeg(image))
    return f"<img class='hl-video' alt='{escape(what)}' src='{address}'>"


# -- answers -----------------------------------------------------------------------------------


def earlier(exchanges: Sequence[Exchange]) -> str:
    """Exchanges before the newest one, folded away."""
    if not exchanges:
        return ""
    older = "".join(map(exchange, exchanges))
    return f"<details class='hl-older'><summary>Earlier questions</summary>{older}</details>"


def exchange(exchange: Exchange) -> str:
    """A question and what has come of its answer."""
    text = escape(exchange.text) or ("" if exchange.state != "running" else "&hellip;")
    parts = [f"<h3 class='hl-q'>{escape(exchange.question)}</h3>"]
    if text:
        cursor = "<i class='hl-cursor'></i>" if exchange.state == "running" else ""
        live = " aria-live='polite'" if exchange.state == "running" else ""
        parts.append(f"<p class='hl-a'{live}>{text}{cursor}</p>")
    if exchange.scanned is not None and exchange.state == "running":
        parts.append(
            f"<p class='hl-note'>Looked at {exchange.scanned[0]} of {exchange.scanned[1]} "
            "frames.</p>"
        )
    if exchange.state == "stopped":
        parts.append("<p class='hl-note'>Stopped.</p>")
    parts.append(error(exchange.error))
    answer = exchange.answer
    if answer is not None:
        parts += [_facts(exchange, answer), _truth(exchange), _notes(answer)]
        parts += [_gallery(exchange, answer), _raw(answer)]
    return f"<article class='hl-exchange' data-state='{exchange.state}'>{''.join(parts)}</article>"


def _facts(exchange: Exchange, answer: Answer) -> str:
    forced = " (as you asked)" if exchange.forced is not None else ""
    facts = [("route", f"{ROUTE_WORDS[answer.route]}{forced}")]
    facts.append(("first text after", _seconds(answer.ttft_s)))
    if answer.tpot_s:
        facts.append(("per token", _seconds(answer.tpot_s)))
    facts.append(("asked at", clock(answer.asked_at_s)))
    chips = "".join(
        f"<span class='hl-chip'><small>{name}</small> {escape(value)}</span>"
        for name, value in facts
    )
    return f"<p class='hl-facts'>{chips}</p>"


def _seconds(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.2f} s"


def _truth(exchange: Exchange) -> str:
    if exchange.truth is None or exchange.answer is None:
        return ""
    is_right = exchange.truth == exchange.answer.text
    word, kind = ("right", "hl-right") if is_right else ("wrong", "hl-wrong")
    shown = ", ".join(f"{clock(start)}-{clock(end)}" for start, end in exchange.shown)
    where = f", shown at {shown}" if shown else ""
    return (
        f"<p class='hl-truth'><b class='{kind}'>{word}</b> The script says: "
        f"{escape(exchange.truth)}{where}.</p>"
    )


def _notes(answer: Answer) -> str:
    notes = [note for note in answer.notes if note != answer.text]
    notes += [
        f"Not consulted: {clock(m.start_s)}-{clock(m.end_s)} ({m.reason})."
        for m in answer.missing
        if answer.status != "no_footage"
    ]
    return "".join(f"<p class='hl-note'>{escape(note)}</p>" for note in notes)


def _gallery(exchange: Exchange, answer: Answer) -> str:
    if not answer.evidence:
        return ""
    shown = answer.evidence[:MAX_PICTURES]
    pictures = (*exchange.pictures, *[b""] * len(shown))
    cards = "".join(
        _card(number, evidence, picture)
        for number, (evidence, picture) in enumerate(zip(shown, pictures, strict=False), start=1)
    )
    more = len(answer.evidence) - len(shown)
    rest = f"<p class='hl-note'>and {more} more</p>" if more > 0 else ""
    return (
        f"<p class='hl-caption'>This answer rests on</p><ul class='hl-gallery'>{cards}</ul>{rest}"
    )


def _card(number: int, evidence: Evidence, picture: bytes) -> str:
    span = "-".join(dict.fromkeys((clock(evidence.start_s), clock(evidence.end_s))))
    image = (
        f"<img alt='' src='{data_address(picture)}'>"
        if picture
        else "<span class='hl-blank'>no picture</span>"
    )
    wall = ""
    if evidence.wall_time is not None:
        wall = f"<span class='hl-wall'>{evidence.wall_time:%Y-%m-%d %H:%M:%S}</span>"
    tier = TIER_WORDS[evidence.tier]
    return (
        f"<li><button type='button' class='hl-moment' data-seek='{evidence.start_s:.3f}' "
        f"aria-label='Moment {number}: show {span}, share {evidence.score:.0%}, from {tier}'>"
        f"<span class='hl-number'>{number}</span>{image}<b>{span}</b>{wall}"
        f"<span class='hl-score'>{evidence.score:.0%} <small>from {tier}</small></span>"
        "</button></li>"
    )


def _raw(answer: Answer) -> str:
    # Pictures have numbers here, not bytes, so the whole record is small.
    return (
        "<details class='hl-raw'><summary>The whole record</summary>"
        f"<pre tabindex='0'>{escape(answer_json(dataclasses.replace(answer, parts=())))}</pre>"
        "</details>"
    )


# -- memory ------------------------------------------------------------------------------------


def memory(snapshot: Snapshot | None, hits: Sequence[Evidence]) -> str:
    """The memory as drawings for screens and phones, with a key and the numbers behind it."""
    if snapshot is None or not snapshot.stats.num_frames:
        return EMPTY_MEMORY
    used = {"short", "mid"} | {span.place for span in (*snapshot.stored, *snapshot.pictured)}
    used |= {"hit"} if hits else set()
    key = "".join(
        f"<span><i style='background:{COLORS[name]}'></i>{NAMES[name]}</span>"
        for name in COLORS
        if name in used
    )
    return (
        f"<p class='hl-summary'>{escape(summary(snapshot))}.</p><div class='hl-key'>{key}</div>"
        f"<div class='hl-wide' data-hits='{len(hits)}'>{draw_memory(snapshot, hits, WIDE)}</div>"
        f"<div class='hl-narrow'>{draw_memory(snapshot, hits, NARROW)}</div>{_numbers(snapshot)}"
    )


def _numbers(snapshot: Snapshot) -> str:
    rows = "".join(
        f"<tr><th scope='row'>{layer.layer_index}</th><td>{layer.band}</td><td>{layer.short}</td>"
        f"<td>{layer.mid}</td><td>{layer.summary}</td><td>{layer.num_frames}</td></tr>"
        for layer in snapshot.stats.layers
    )
    heads = ("layer", "band", "short-term", "mid-term", "summary", "frames")
    head = "".join(f"<th scope='col'>{name}</th>" for name in heads)
    return (
        "<details class='hl-raw'><summary>Tokens of every layer</summary><table>"
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></details>"
    )


# -- budgets -----------------------------------------------------------------------------------


def budgets(choice: Choice, config: HermesConfig) -> str:
    """What the budgets of a choice come to, by the planner's arithmetic."""
    try:
        config = choice.apply(config)
        picture_bytes = arithmetic.usual_picture_bytes(config)
        made = arithmetic.make_plan(
            config,
            model_shape(config.model),
            cameras=1,
            days=1.0,
            assumptions=arithmetic.Assumptions(picture_bytes),
        )
    except HermesError as failure:
        return error(str(failure))
    shape, fps = made.shape, config.source.sample_fps or 1.0
    rows = [
        (
            "Device",
            f"{config.memory.device_tokens} slots x {made.kv_bytes_per_token} bytes x 3/2",
            size(made.device_bytes),
            _span(config.memory.device_tokens / shape.tokens_per_frame / fps),
        )
    ]
    for name, word in (("host", "RAM"), ("disk", "Disk"), ("keyframes", "Pictures")):
        tier = made.tiers[name]
        sum_ = f"{size(tier.bytes_per_hour)} per hour, {tier.bytes_per_token:.0f} bytes per token"
        rows.append((word, sum_, size(made.total_bytes[name]), _span(tier.reach_s)))
    body = "".join(
        f"<tr><th scope='row'>{a}</th><td>{b}</td><td>{c}</td><td>{d}</td></tr>"
        for a, b, c, d in rows
    )
    return (
        "<table class='hl-plan'><thead><tr><th scope='col'>where</th><th scope='col'>what it takes"
        "</th><th scope='col'>cap</th><th scope='col'>reaches back</th></tr></thead>"
        f"<tbody>{body}</tbody></table><p class='hl-note'>{shape.num_layers} layers x "
        f"{shape.num_kv_heads} heads x {shape.head_dim} channels, {shape.tokens_per_frame} tokens "
        f"per frame, {fps:g} frames per second, codec {escape(made.codec)}. On the device whole "
        "frames reach back so far; what is chosen of older ones reaches further.</p>"
    )


def _span(seconds: float) -> str:
    for unit, name in ((86400.0, "days"), (3600.0, "hours"), (60.0, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.1f} {name}"
    return f"{seconds:.0f} seconds"
