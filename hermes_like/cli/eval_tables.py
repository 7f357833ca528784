"""Reports of ``hermes-like eval`` as tables for people."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hermes_like.evaluation.check import Check
    from hermes_like.evaluation.grid import Grid
    from hermes_like.evaluation.scoring.compare import Comparison
    from hermes_like.evaluation.scoring.scores import Scores
    from hermes_like.evaluation.scoring.tally import Row
    from hermes_like.evaluation.standing import RunReport

#: How many of a kind are listed; ``--json`` has them all.
_LISTED = 10
#: Columns where the output is no terminal.
_FILE_WIDTH = 140


def print_check(report: Check, console: Console) -> None:
    """Write what is there and what is missing."""
    edition = report.edition
    console.print(f"{report.dataset}: {edition.name}, SHA-256 {edition.sha256}")
    for file in edition.files[:_LISTED]:
        console.print(f"  {file.path}: {file.num_rows} rows, {file.sha256[:12]}")
    _more(len(edition.files), console)
    num_present = report.num_videos - len(report.missing) - len(report.broken)
    console.print(
        f"videos: {num_present} of {report.num_videos} there, {len(report.missing)} missing, "
        f"{len(report.broken)} broken"
    )
    for absent in (*report.missing[:_LISTED], *report.broken[:_LISTED]):
        why = absent.problem or "missing"
        console.print(f"  {absent.reference}: {why} ({absent.num_questions} questions)")
    _more(max(len(report.missing), len(report.broken)), console)
    hidden = report.num_questions - report.num_scored
    told = f", {hidden} without a public answer" if hidden else ""
    console.print(f"questions: {report.num_questions}{told}")
    for name, count in report.categories.items():
        console.print(f"  {name:32} {count:>6}")
    codes = Counter(finding.code for finding in report.findings)
    if codes:
        listed = ", ".join(f"{count} {code}" for code, count in codes.items())
        console.print(f"oddities of the annotations: {listed}")
    for finding in report.findings[:_LISTED]:
        console.print(f"  {finding.code}: {finding.where}: {finding.message}")
    _more(len(report.findings), console)
    for remark in report.remarks:
        console.print(f"note: {remark}")


def print_run(report: RunReport, console: Console) -> None:
    """Write what a run did, and what it could not do."""
    standing = report.standing
    for absent in report.absent[:_LISTED]:
        why = absent.problem or "the video is missing"
        console.print(f"{absent.reference}: {why} ({absent.num_questions} questions)")
    _more(len(report.absent), console)
    for question_id, why in report.refused[:_LISTED]:
        console.print(f"{question_id}: no reply: {why}")
    _more(len(report.refused), console)
    num_new = standing.num_done - standing.num_reused
    console.print(
        f"{standing.num_done} of {standing.num_questions} questions on "
        f"{standing.num_videos} videos done, {num_new} of them now, in {report.seconds:.0f} s"
        + (f"; {report.num_lost} worker(s) died and were replaced" if report.num_lost else "")
    )
    if standing.accuracy is not None:
        console.print(
            f"{_percent(standing.accuracy)} % right of the {standing.num_scored} that count "
            f"without a judge (strict; hermes-like eval score {report.path} for the table)"
        )


def print_grid(found: Grid, console: Console) -> None:
    """Write the score of every setting, and every pair with its difference."""
    console.print(f"\n{found.dataset}, scorer {found.scorer}")
    table = Table(box=None, pad_edge=False)
    columns = ("setting", "score %", "95 % interval", "chance", "unparsed", "n", "TTFT s")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left", no_wrap=True)
    places: dict[str, int] = {}
    for outcome in found.outcomes:
        if outcome.total is None:
            continue
        places[outcome.setting.name] = place = len(places) + 1
        ttft = "-" if outcome.ttft_s is None else f"{outcome.ttft_s:.3f}"
        table.add_row(f"{place}  {outcome.setting.name}", *_cells(outcome.total)[:-1], ttft)
    if found.pairs:
        table.add_row()
        heads = ("difference", "95 %, paired", "", "", "1st only", "2nd only")
        table.add_row("first minus second", *heads, style="bold")
    for pair in found.pairs:
        total = pair.total
        span = "-" if total.low is None else f"{_percent(total.low)} to {_percent(total.high)}"
        alone = str(pair.num_first_only), str(pair.num_second_only)
        title = f"{places[pair.first]} - {places[pair.second]}"
        table.add_row(title, _percent(total.difference), span, "", "", *alone)
    console.print(table)
    for outcome in found.outcomes:
        if outcome.problem is not None:
            console.print(f"{outcome.setting.name}: cannot be run: {outcome.problem}")
        elif outcome.report is not None and (outcome.report.absent or outcome.report.refused):
            num = len(outcome.report.refused) + sum(a.num_questions for a in outcome.report.absent)
            console.print(f"{outcome.setting.name}: {num} questions have no reply")


def print_scores(report: Scores, console: Console) -> None:
    """Write the table of one scorer with what has to be said beside it."""
    console.print(
        f"\n{report.dataset}, scorer {report.scorer}"
        + (f", judge {report.judge}" if report.judge else "")
        + f" (annotations {report.edition_sha256[:12]}, settings {report.config_hash[:12]}, "
        f"{report.num_videos} videos)"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "score %", "95 % interval", "chance %", "unparsed %", "n", "asked"):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    for part in report.parts:
        table.add_row(part.title, *_cells(part.mean), style="bold")
        for row in part.rows:
            table.add_row(f"  {row.name}", *_cells(row))
    for row, title in (
        (report.total, report.total.name),
        (report.micro, "micro, over all questions"),
        (report.macro, "macro, over tasks"),
    ):
        table.add_row(title, *_cells(row), style="bold")
    console.print(table)
    for name, value in report.extras.items():
        console.print(f"{name.replace('_', ' ')}: {value:.4g}")
    counts = {
        "without a public answer": report.num_hidden,
        "in need of a judge": report.num_unjudged,
        "dropped by the rule": report.num_dropped,
        "failed": report.num_errors,
    }
    told = [f"{count} {name}" for name, count in counts.items() if count]
    if told:
        console.print(f"questions {', '.join(told)}")
    for note in report.notes:
        console.print(f"note: {note}")


def _cells(row: Row) -> tuple[str, ...]:
    interval = "-" if row.low is None else f"{_percent(row.low)} to {_percent(row.high)}"
    shares = _percent(row.chance), _percent(row.unparsed)
    return _percent(row.score), interval, *shares, str(row.num), str(row.num_asked)


def print_comparison(found: Comparison, console: Console) -> None:
    """Write paired differences."""
    console.print(
        f"\npaired difference, first minus second: {found.num_questions} questions, "
        f"{found.num_first_only} right in the first alone, "
        f"{found.num_second_only} in the second alone"
    )
    table = Table(box=None, pad_edge=False)
    for name in ("", "first %", "second %", "difference", "95 % interval"):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    for row in found.differences:
        name = row.section if not row.name else f"  {row.name}"
        span = "-" if row.low is None else f"{_percent(row.low)} to {_percent(row.high)}"
        table.add_row(
            name, _percent(row.first), _percent(row.second), _percent(row.difference), span
        )
    console.print(table)


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def _more(count: int, console: Console) -> None:
    if count > _LISTED:
        console.print(f"  ... and {count - _LISTED} more (--json lists all)")


def make_console() -> Console:
    """Names of files and tasks may hold brackets: they are no markup. Files hold whole tables."""
    width = None if sys.stdout.isatty() else _FILE_WIDTH
    return Console(soft_wrap=True, highlight=False, markup=False, width=width)
