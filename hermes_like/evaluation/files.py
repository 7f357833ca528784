"""Annotation files to rows: JSON, JSON lines, CSV, TSV, Parquet. Knows no dataset."""

from __future__ import annotations

import csv
import hashlib
import importlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hermes_like.errors import DatasetError

#: Endings that can hold annotations.
SUFFIXES = (".json", ".jsonl", ".csv", ".tsv", ".parquet")
_DELIMITERS = {".csv": ",", ".tsv": "\t"}


def read_content(path: Path) -> Any:
    """Content of one file: what the JSON says, or a list with one dict per line or row.

    A byte order mark and Windows line ends do no harm.

    Raises:
        DatasetError: It cannot be read; the message names file and place.
    """
    suffix = path.suffix.lower()
    try:
        if suffix == ".parquet":
            return _read_parquet(path)
        if suffix in _DELIMITERS:
            with path.open(encoding="utf-8-sig", newline="") as file:
                return _checked(
                    path, csv.DictReader(file, delimiter=_DELIMITERS[suffix], strict=True)
                )
        text = path.read_text(encoding="utf-8-sig")
        if suffix == ".jsonl":
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        return json.loads(text)
    except (OSError, ValueError, csv.Error) as error:
        kind = suffix.removeprefix(".") or "JSON"
        raise DatasetError(f"{path}: expected readable {kind}: {error}") from error


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Content of a file that must be a list of objects.

    Raises:
        DatasetError: It cannot be read, or is something else.
    """
    content = read_content(path)
    if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
        raise DatasetError(f"{path}: expected a list of objects, got {_describe(content)}")
    return content


def read_object(path: Path) -> dict[str, Any]:
    """Content of a file that must be one object.

    Raises:
        DatasetError: It cannot be read, or is something else.
    """
    content = read_content(path)
    if not isinstance(content, dict):
        raise DatasetError(f"{path}: expected an object, got {_describe(content)}")
    return content


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def combined_sha256(hashes: Iterable[str]) -> str:
    """One hash for several files, whatever their order; that of the file where there is one."""
    ordered = sorted(hashes)
    if len(ordered) == 1:
        return ordered[0]
    return hashlib.sha256("\n".join(ordered).encode()).hexdigest()


def _checked(path: Path, reader: csv.DictReader[str]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for row in reader:
        if None in row or None in row.values():
            names = len(reader.fieldnames or ())
            raise DatasetError(f"{path}, line {reader.line_num}: expected {names} fields")
        rows.append(dict(row))
    return rows


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    try:
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DatasetError(
            f"{path}: Parquet files need pyarrow (pip install pyarrow), or export it to JSON lines"
        ) from error
    # Errors of the library are ValueError and OSError, which the caller puts into words.
    rows: list[dict[str, Any]] = parquet.read_table(path).to_pylist()
    return rows


def _describe(content: Any) -> str:
    if isinstance(content, list):
        odd = next((row for row in content if not isinstance(row, dict)), None)
        return f"a list with {type(odd).__name__} in it"
    return type(content).__name__
