"""A destroyed memory leaves nothing, whatever was in the way, and takes nothing else with it."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hermes_like.errors import MemoryLockedError, StorageError
from hermes_like.tiers import destroy, failpoints
from hermes_like.tiers.destroy import destroy_memory
from tests.tiers.disk_tools import blocks_of, open_small, volumes_of
from tests.tiers.segments import make_pictures, make_segment

ROOT = Path(__file__).parent.parent.parent


def filled(folder: Path, *, key: bytes | None = None) -> Path:
    """A closed memory with volumes of both kinds, an erased stretch, and small files."""
    with open_small(folder, key=key) as store:
        for i in range(12):
            store.segments.put(make_segment(i, 60_000))
            store.keyframes.put(make_pictures(i))
        store.segments.remove([3, 4])
        store.put_blob("session", b"personal data" * 500)
        store.put_blob("watched", b"{}")
    return folder


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("memory") / "original")


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "m"))


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def tree(folder: Path) -> dict[str, bytes]:
    """Contents of all ordinary files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.is_symlink()
    }


# -- all of it -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, bytes(range(32))])
def test_nothing_is_left(tmp_path: Path, key: bytes | None) -> None:
    folder = filled(tmp_path / "m", key=key)
    assert len(volumes_of(folder)) > 1
    taken = blocks_of(folder) - folder.stat().st_blocks * 512
    assert destroy_memory(folder) == taken > 10 * 50_000
    assert not list(tmp_path.iterdir())
    with open_small(folder) as store:
        assert not store.segments.heads()


def test_what_a_process_still_has_open_reads_as_zeros(folder: Path) -> None:
    files = [path for path in folder.iterdir() if path.stat().st_size]
    handles = [path.open("rb") for path in files]
    assert any(b"personal" in handle.read() for handle in handles)
    destroy_memory(str(folder))
    for handle in handles:
        with handle:
            handle.seek(8)
            assert not handle.read().strip(b"\0")


def test_what_crashes_leave_goes_too(folder: Path) -> None:
    for name in (
        "kv-00000099.vol.new", "state.blob.new", "manifest.sqlite.damaged", "manifest.sqlite-wal",
        "manifest.sqlite-shm", "manifest.sqlite-journal", "keyframes-123456789.vol",
    ):  # fmt: skip
        (folder / name).write_bytes(b"")
    (folder / "wiped.blob").write_bytes(bytes(100))
    volumes_of(folder)[0].write_bytes(b"damaged")
    destroy_memory(folder)
    assert not folder.exists()


def test_empty_memory_and_empty_folder(tmp_path: Path) -> None:
    with open_small(tmp_path / "m"):
        pass
    destroy_memory(tmp_path / "m")
    (tmp_path / "m").mkdir()  # as an interruption may leave it
    assert destroy_memory(tmp_path / "m") == 0
    assert not list(tmp_path.iterdir())


# -- nothing else ----------------------------------------------------------------------------------


def test_a_folder_in_use_is_refused(folder: Path) -> None:
    with open_small(folder) as store:
        before = names(folder)
        with pytest.raises(MemoryLockedError, match="nobody uses"):
            destroy_memory(folder)
        assert names(folder) == before
        assert store.segments.get(0).head.segment_id == 0
    with (
        open_small(folder, read_only=True),
        pytest.raises(MemoryLockedError, match="nothing was removed"),
    ):
        destroy_memory(folder)
    destroy_memory(folder)
    assert not folder.exists()


def test_what_is_no_memory_is_refused_whole(tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    folder.mkdir()
    (folder / "lock").write_bytes(b"")
    (folder / "cat.jpg").write_bytes(b"cat")
    (folder / "notes.blob").write_bytes(b"of another program")
    before = tree(folder)
    with pytest.raises(StorageError, match=r"expected the folder of a memory.*got 'cat\.jpg'"):
        destroy_memory(folder)
    (folder / "lock").write_bytes(b"pid 7")
    (folder / "kv-00000001.vol").write_bytes(b"")
    with pytest.raises(StorageError, match="empty file 'lock'"):
        destroy_memory(folder)
    (folder / "lock").unlink()
    with pytest.raises(StorageError, match=r"manifest\.sqlite; got 'cat\.jpg'"):
        destroy_memory(folder)
    assert tree(folder) == {
        **{name: data for name, data in before.items() if name != "lock"},
        "kv-00000001.vol": b"",
    }
    with pytest.raises(StorageError, match="No such file"):
        destroy_memory(tmp_path / "nothing")
    with pytest.raises(StorageError, match="Not a directory"):
        destroy_memory(folder / "cat.jpg")


def test_foreign_files_stay_and_are_named(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "sub" / "kv-00000001.vol").write_bytes(b"of somebody else")
    (folder / "notes.txt").write_bytes(b"notes")
    (folder / "other.blob").write_bytes(b"of another program")
    (folder / "kv-1.vol").write_bytes(b"short")
    (folder / "kv-00000077.vol").mkdir()
    with pytest.raises(StorageError, match=r"gone \(\d+ bytes\).*'notes\.txt', 'other\.blob'"):
        destroy_memory(folder)
    assert names(folder) == {"sub", "notes.txt", "other.blob", "kv-1.vol", "kv-00000077.vol"}
    assert (folder / "sub" / "kv-00000001.vol").read_bytes() == b"of somebody else"
    with pytest.raises(StorageError, match="expected the folder of a memory"):
        destroy_memory(folder)


def test_links_are_not_followed(folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kv-00000001.vol").write_bytes(b"HLvolume of somebody else")
    (outside / "album").mkdir()
    before = tree(outside)
    (folder / "kv-00000088.vol").symlink_to(outside / "kv-00000001.vol")
    (folder / "x.blob").symlink_to(outside / "kv-00000001.vol")
    (folder / "ballast").unlink()
    (folder / "ballast").symlink_to(outside / "album")
    with pytest.raises(StorageError, match=r"left: 'ballast', 'kv-00000088\.vol', 'x\.blob'"):
        destroy_memory(folder)
    assert names(folder) == {"ballast", "kv-00000088.vol", "x.blob"}
    assert tree(outside) == before


def test_a_link_to_a_memory_and_a_link_as_lock_are_refused(folder: Path, tmp_path: Path) -> None:
    before = tree(folder)
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(StorageError, match="no link to one"):
        destroy_memory(tmp_path / "link")
    (folder / "lock").rename(tmp_path / "elsewhere")
    (folder / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StorageError, match="empty file 'lock'"):
        destroy_memory(folder)
    assert tree(folder) == {name: data for name, data in before.items() if name != "lock"}
    assert (tmp_path / "elsewhere").exists()


def test_hard_links_elsewhere_keep_their_contents(folder: Path, tmp_path: Path) -> None:
    """A backup made with ``cp -al`` is another memory."""
    shutil.copytree(folder, tmp_path / "backup", copy_function=os.link)
    before = tree(tmp_path / "backup")
    destroy_memory(folder)
    assert not folder.exists()
    assert tree(tmp_path / "backup") == before


# -- interrupted -----------------------------------------------------------------------------------


class Interrupted(BaseException):
    """As a key press or a signal comes."""


@pytest.mark.parametrize("call", ["unlink", "fsync", "rmdir", "pwritev"])
def test_a_second_call_finishes(
    folder: Path, monkeypatch: pytest.MonkeyPatch, call: str, tmp_path: Path
) -> None:
    """Broken off at each place in turn, until a call comes through; the pieces come to all."""
    total = blocks_of(folder) - folder.stat().st_blocks * 512
    whole = getattr(os, call)
    count = 0
    for steps in range(60):
        copy = Path(shutil.copytree(folder, tmp_path / f"copy-{steps}"))
        left = steps

        def broken(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if left == 0:
                raise Interrupted
            left -= 1
            return whole(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(destroy.os, call, broken)
            try:
                destroy_memory(copy)
            except Interrupted:
                count += 1
            else:
                break
        if copy.exists():
            assert destroy_memory(copy) <= total
        assert not copy.exists()
    assert count >= (1 if call == "rmdir" else 3)


def test_killed_while_it_works(folder: Path) -> None:
    script = """
import os, signal, sys
from hermes_like.tiers.destroy import destroy_memory
whole, count = os.unlink, 0
def unlink(*args, **kwargs):
    global count
    count += 1
    if count == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    whole(*args, **kwargs)
os.unlink = unlink
destroy_memory(sys.argv[1])
"""
    before = names(folder)
    done = subprocess.run([sys.executable, "-c", script, str(folder)], cwd=ROOT)
    assert done.returncode == -signal.SIGKILL
    assert len(before - names(folder)) == 3
    assert "lock" in names(folder)
    destroy_memory(folder)
    assert not folder.exists()


def test_a_file_that_cannot_go_does_not_keep_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = volumes_of(folder)[0].name
    whole = os.unlink

    def unlink(name: str, *, dir_fd: int) -> None:
        if name == stuck:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        whole(name, dir_fd=dir_fd)

    with monkeypatch.context() as patch:
        patch.setattr(destroy.os, "unlink", unlink)
        with pytest.raises(StorageError, match=rf"could not be removed: {stuck} \(Operation"):
            destroy_memory(folder)
    assert names(folder) == {"lock", stuck}
    assert not (folder / stuck).read_bytes()[8:].strip(b"\0")
    destroy_memory(folder)
    assert not folder.exists()


def test_a_medium_that_cannot_be_written_is_unlinked_all_the_same(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*args: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(destroy.os, "pwritev", refuse)
    destroy_memory(folder)
    assert not folder.exists()
    assert "not overwritten, only removed" in caplog.text


def test_after_a_crash_in_the_middle_of_writing(tmp_path: Path) -> None:
    folder = filled(tmp_path / "m")
    failpoints.arm("blob.before_rename=eio")
    try:
        with open_small(folder) as store, pytest.raises(StorageError):
            store.put_blob("session", b"half")
    finally:
        failpoints.arm("")
    destroy_memory(folder)
    assert not list(tmp_path.iterdir())
