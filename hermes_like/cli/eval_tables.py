"""Reports of ``hermes-like eval`` as tables for people."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from hermes_like.evaluation.check import Check
    from hermes_like.evaluation.scoring.compare import Comparison
    from hermes_like.evaluation.scoring.scores import Scores
    from hermes_like.evaluation.scoring.tally import Row

#: How many of a kind are listed; ``--json`` has them all.
_LISTED = 10


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
    """Names of files and tasks may hold brackets: they are no markup."""
    return Console(soft_wrap=True, highlight=False, markup=False)
