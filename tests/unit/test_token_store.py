"""Where logins are kept: whole, private, one renewal at a time, and with the keyring no secret in a file."""

from __future__ import annotations

import errno
import json
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Literal

import keyring.core
import pytest

from server.upstreams.login.login_storage import FOLDER, SERVICE, StoredLogin, TokenStore, TokenStoreError, key_of
from tests.peers import file_keyring
from tests.processes import in_another_process
from tools.files.change.writer import Disk, rename_in
from tools.files.path_opener import Folder

SECRETS = ("access-7f3", "refresh-9c1", "client-5d8", "registration-2b4")
OPEN_PARTS = {"token_type": "Bearer", "scope": "read", "expires_in": 60}
LOGIN = StoredLogin(
    resource="https://up.example/mcp",
    principal="",
    alias="up",
    issuer="https://as.example",
    metadata={"issuer": "https://as.example", "token_endpoint": "https://as.example/token"},
    client={"client_id": "us", "client_secret": SECRETS[2], "registration_access_token": SECRETS[3]},
    scopes="read write",
    token={"access_token": SECRETS[0], "refresh_token": SECRETS[1]} | OPEN_PARTS,
    expires_at=1_800_000_000.5,
)
KEY = (LOGIN.resource, LOGIN.principal)
NEW_LOGIN = "remove the login with coretools-mcp logout ALIAS, then log in with coretools-mcp login ALIAS."

posix = pytest.mark.skipif(os.name != "posix", reason="not run: modes, links and owners are those of POSIX")


def file_of(folder: Path, login: StoredLogin = LOGIN) -> Path:
    return folder / FOLDER / f"{key_of(login.resource, login.principal)}.json"


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(TokenStoreError) as refused:
        work()
    assert refused.value.__cause__ is None
    said = str(refused.value)
    assert said.endswith(".")
    assert not any(secret in said for secret in SECRETS)
    return said


# --- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("login.store")
def test_a_login_is_read_back_as_it_was_written_by_whom_it_is_and_for_which_server(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    assert (store.read(*KEY), store.stamp(*KEY), store.all(), store.remove(*KEY)) == (None, None, [], False)
    assert list(tmp_path.iterdir()) == [], "a look makes nothing"
    others = [
        replace(LOGIN, principal="ann", token=None, expires_at=None, scopes=None),
        replace(LOGIN, resource="https://up.example/other", client={}),
    ]
    for login in (LOGIN, *others):
        store.write(login)
    again = TokenStore(str(tmp_path))
    assert [again.read(login.resource, login.principal) for login in (LOGIN, *others)] == [LOGIN, *others]
    assert again.read(LOGIN.resource, "bob") is None
    assert sorted(map(repr, again.all())) == sorted(map(repr, (LOGIN, *others)))
    assert again.remove(*KEY)
    assert (again.read(*KEY), again.stamp(*KEY), again.remove(*KEY)) == (None, None, False)
    assert len(again.all()) == 2


@pytest.mark.requirement("login.store")
def test_the_stamp_differs_exactly_when_the_login_was_written_again(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    seen: list[object] = []
    for _ in range(20):
        store.write(LOGIN)
        seen.append(store.stamp(*KEY))
        assert store.stamp(*KEY) == seen[-1]
    assert len(set(seen)) == 20


@pytest.mark.requirement("login.store_private")
def test_no_secret_is_in_what_a_login_prints_as() -> None:
    assert not any(secret in repr(LOGIN) for secret in SECRETS)


def full(_descriptor: int, _data: memoryview) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def half_full(descriptor: int, data: memoryview) -> int:
    return full(descriptor, data) if len(data) < 50 else os.write(descriptor, data[:-20])


def no_sync(_descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def no_rename(_folder: Folder, _source: str, _target: str, _replacing: bool) -> None:
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.requirement("login.store")
@pytest.mark.parametrize("disk", [Disk(write=full), Disk(write=half_full), Disk(sync=no_sync), Disk(rename=no_rename)])
def test_a_disk_that_fails_leaves_the_login_before_it_whole_and_nothing_beside_it(disk: Disk, tmp_path: Path) -> None:
    TokenStore(str(tmp_path)).write(LOGIN)
    store = TokenStore(str(tmp_path), disk=disk)
    said = refusal(lambda: store.write(replace(LOGIN, token={"access_token": "new"})))
    assert said.startswith("The login to up cannot be stored in the state folder (")
    assert store.read(*KEY) == LOGIN
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name]


WRITES = 60


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_after(folder: Folder, source: str, target: str, replacing: bool) -> None:
    rename_in(folder, source, target, replacing)
    die()


def long(letter: str) -> StoredLogin:
    return replace(LOGIN, token={"access_token": letter * 20_000})


@posix
@pytest.mark.requirement("login.store")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_while_it_writes_leaves_the_old_login_or_the_new_one(moment: str, tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    store.write(LOGIN)
    disk = Disk(rename=die if moment == "before" else die_after)
    writer = in_another_process(TokenStore(str(tmp_path), disk=disk).write, long("n"))
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    found = store.read(*KEY)
    assert found is not None
    assert (found == LOGIN) is (moment == "before")
    store.write(LOGIN)
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name], "the leftover has gone with the next write"


@pytest.mark.requirement("login.store")
def test_two_processes_that_write_at_once_leave_whole_logins(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    store.write(LOGIN)
    seen: set[str] = set()

    def write_often(letter: str) -> None:
        for _ in range(WRITES):
            TokenStore(str(tmp_path)).write(long(letter))

    writers = [in_another_process(write_often, letter) for letter in "ab"]
    while any(writer.is_alive() for writer in writers):
        found = store.read(*KEY)
        assert found is not None
        assert found.token is not None
        token = str(found.token["access_token"])
        assert token in (SECRETS[0], "a" * 20_000, "b" * 20_000)
        seen.add(token[0:2])
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen & {"aa", "bb"}
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name]


# --- What is not as we wrote it --------------------------------------------------------------------------------------


def damaged(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def of_another_server(file: Path) -> None:
    told = json.loads(file.read_text())
    told["login"]["resource"] = "https://other.example"
    file.write_text(json.dumps(told))


def of_a_later_version(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))


def oversized(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b" " * (9 << 20))


def linked(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def readable_by_others(file: Path) -> None:
    file.chmod(0o604)


def writable_by_the_group(file: Path) -> None:
    file.chmod(0o620)


def pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def of_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root gives files away")
    os.chown(file, 65534, -1)


SPOILED = [
    *(damaged, of_another_server, of_a_later_version, oversized, linked, readable_by_others, writable_by_the_group),
    *(pipe, of_another_user),
]


@posix
@pytest.mark.requirement("login.store_private")
@pytest.mark.parametrize("spoil", SPOILED)
def test_a_file_that_is_not_as_we_wrote_it_is_not_used_and_logging_out_removes_it(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    store, other = TokenStore(str(tmp_path)), replace(LOGIN, principal="ann")
    store.write(LOGIN)
    store.write(other)
    spoil(file_of(tmp_path))
    said = refusal(lambda: store.read(*KEY))
    assert said.endswith(NEW_LOGIN)
    assert str(tmp_path) not in said
    listed = store.all()
    assert other in listed
    assert sorted(map(str, listed)) == sorted([said, str(other)])
    assert store.remove(*KEY)
    assert store.read(*KEY) is None
    store.write(LOGIN)
    assert store.read(*KEY) == LOGIN


@posix
@pytest.mark.requirement("login.store_private")
@pytest.mark.parametrize("umask", [0, 0o022])
def test_nobody_else_may_look_at_logins(umask: int, tmp_path: Path) -> None:
    state = tmp_path / "state"
    before = os.umask(umask)
    try:
        TokenStore(str(state)).write(LOGIN)
        release = TokenStore(str(state)).try_lock(*KEY)
    finally:
        os.umask(before)
    assert release is not None
    release()
    assert [stat.S_IMODE(path.stat().st_mode) for path in (state, state / FOLDER)] == [0o700, 0o700]
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state / FOLDER).iterdir()} == {0o600}
    for mode in (0o755, 0o701, 0o720):
        (state / FOLDER).chmod(mode)
        assert TokenStore(str(state)).read(*KEY) == LOGIN
        assert stat.S_IMODE((state / FOLDER).stat().st_mode) == 0o700


@posix
@pytest.mark.requirement("login.store_private")
@pytest.mark.parametrize("kind", ["link", "of another user", "file"])
def test_a_folder_that_is_not_ours_is_not_used(kind: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    folder = tmp_path / FOLDER
    if kind == "link":
        folder.symlink_to(tmp_path / "elsewhere")
    elif kind == "file":
        folder.write_text("")
    elif os.geteuid() != 0:
        pytest.skip("not run: only root gives folders away")
    else:
        folder.mkdir()
        os.chown(folder, 65534, -1)
    store = TokenStore(str(tmp_path))
    why = "its folder belongs to another user or is a symlink"
    said = f"The stored logins cannot be used ({why}): check the folder logins in the state folder."
    assert refusal(lambda: store.read(*KEY)) == said
    assert refusal(lambda: store.try_lock(*KEY)) == said
    assert refusal(lambda: store.remove(*KEY)) == said
    assert refusal(lambda: store.write(LOGIN)) == f"The login to up cannot be stored in the state folder ({why})."
    assert list(map(str, store.all())) == [said]
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- One at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("login.store_lock")
def test_one_holds_a_login_and_others_are_told_at_once(tmp_path: Path) -> None:
    store, other = TokenStore(str(tmp_path)), TokenStore(str(tmp_path))
    release = store.try_lock(*KEY)
    assert release is not None
    in_thread: list[object] = []
    thread = threading.Thread(target=lambda: in_thread.append(other.try_lock(*KEY)))
    thread.start()
    thread.join()
    assert [store.try_lock(*KEY), *in_thread] == [None, None]
    of_another = store.try_lock(LOGIN.resource, "ann")
    assert of_another is not None, "another login is another lock"
    of_another()
    store.write(LOGIN)
    assert other.read(*KEY) == LOGIN, "who only reads is not kept away"
    release()
    again = other.try_lock(*KEY)
    assert again is not None
    again()
    assert store.all() == [LOGIN]


@posix
@pytest.mark.requirement("login.store_lock")
def test_a_process_that_is_killed_lets_go_of_a_login(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    reading, writing = os.pipe()

    def hold() -> None:
        os.write(writing, b"held" if store.try_lock(*KEY) else b"free")
        signal.pause()

    holder = in_another_process(hold)
    try:
        assert os.read(reading, 4) == b"held"
        assert store.try_lock(*KEY) is None
    finally:
        holder.kill()
        holder.join(60)
        os.close(reading)
        os.close(writing)
    release = store.try_lock(*KEY)
    assert release is not None
    release()


# --- The keyring -----------------------------------------------------------------------------------------------------


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a keyring that works."""
    folder = tmp_path / "keyring"
    folder.mkdir()
    monkeypatch.setenv(file_keyring.FOLDER, str(folder))
    use(monkeypatch, "tests.peers.file_keyring.FileKeyring")
    return folder


def use(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    monkeypatch.setattr(keyring.core, "_keyring_backend", None)  # it is chosen once


@pytest.mark.requirement("login.store_keyring")
def test_with_the_keyring_no_secret_is_in_a_file(tmp_path: Path, secrets: Path) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    assert store.read(*KEY) == LOGIN
    kept = b"".join(path.read_bytes() for path in (tmp_path / FOLDER).iterdir())
    assert not any(secret.encode() in kept for secret in SECRETS)
    assert [path.name for path in secrets.iterdir()] == [f"{SERVICE}.{key_of(*KEY)}"]
    before = store.stamp(*KEY)
    without = replace(LOGIN, token=None, expires_at=None)
    store.write(without)
    assert store.stamp(*KEY) != before
    assert store.read(*KEY) == without
    assert store.remove(*KEY)
    assert list(secrets.iterdir()) == []
    assert (store.read(*KEY), store.remove(*KEY)) == (None, False)


@pytest.mark.requirement("login.store_keyring")
def test_logins_are_listed_without_a_look_into_the_keyring(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    use(monkeypatch, "tests.peers.file_keyring.LockedKeyring")
    (listed,) = store.all()
    assert listed == replace(LOGIN, client={"client_id": "us"}, token=OPEN_PARTS)


def of_nobody(secret: Path) -> None:
    secret.unlink()


def of_another_issuer(secret: Path) -> None:
    secret.write_text(json.dumps(json.dumps(json.loads(json.loads(secret.read_text())) | {"issuer": "https://evil"})))


def of_another_client(secret: Path) -> None:
    secret.write_text(json.dumps(json.dumps(json.loads(json.loads(secret.read_text())) | {"client_id": "they"})))


def no_json(secret: Path) -> None:
    secret.write_text(json.dumps("{"))


@pytest.mark.requirement("login.store_keyring")
@pytest.mark.parametrize("spoil", [of_nobody, of_another_issuer, of_another_client, no_json])
def test_a_login_whose_secrets_are_not_in_the_keyring_begins_again(
    spoil: Callable[[Path], None], tmp_path: Path, secrets: Path
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    spoil(next(secrets.iterdir()))
    assert store.read(*KEY) == replace(LOGIN, client={}, token=None, expires_at=None)
    store.write(LOGIN)
    assert store.read(*KEY) == LOGIN


@pytest.mark.requirement("login.store_keyring")
@pytest.mark.parametrize(
    ("backend", "why"),
    [
        ("keyring.backends.fail.Keyring", "There is no keyring here"),
        ("tests.peers.file_keyring.LockedKeyring", "The keyring is locked: unlock it,"),
        ("tests.peers.file_keyring.BrokenKeyring", "The keyring has failed,"),
        ("no.such.Keyring", "The keyring has failed,"),
    ],
)
def test_a_keyring_that_cannot_be_used_is_told_with_what_to_do_and_no_file_takes_its_place(
    backend: str, why: str, tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    before = file_of(tmp_path).read_bytes()
    use(monkeypatch, backend)
    new = replace(LOGIN, token={"access_token": "new-secret"})
    for work in (lambda: store.read(*KEY), lambda: store.write(new), lambda: store.remove(*KEY)):
        said = refusal(work)
        assert said.startswith(why)
        assert said.endswith('or set proxy.tokenStorage to "file", and log in again.')
        assert "new-secret" not in said
    assert file_of(tmp_path).read_bytes() == before


@pytest.mark.requirement("login.store_keyring")
def test_a_keyring_that_is_switched_off_or_not_installed_is_told(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    use(monkeypatch, "keyring.backends.null.Keyring")
    assert refusal(lambda: store.write(LOGIN)).startswith("The keyring has not stored the login")
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if it was not there
    said = refusal(lambda: store.write(LOGIN))
    assert "pipx install --force 'coretools-mcp[keyring]'" in said
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.requirement("login.store_keyring")
@pytest.mark.parametrize(("storage", "other"), [("file", "keyring"), ("keyring", "file")])
def test_a_login_that_is_kept_otherwise_than_the_settings_say_is_told_and_logging_out_removes_all_of_it(
    storage: Literal["file", "keyring"], other: Literal["file", "keyring"], tmp_path: Path, secrets: Path
) -> None:
    TokenStore(str(tmp_path), storage).write(LOGIN)
    store = TokenStore(str(tmp_path), other)
    said = refusal(lambda: store.read(*KEY))
    place = "in the keyring" if storage == "keyring" else "in a file"
    assert said == (
        f"The secrets of the login to up are {place}, but proxy.tokenStorage is {other}: change that setting, or "
        "remove the login with coretools-mcp logout up, then log in with coretools-mcp login up."
    )
    assert list(map(str, store.all())) == [said]
    assert store.remove(*KEY)
    assert list(secrets.iterdir()) == []
    assert store.all() == []


@pytest.mark.requirement("login.store_keyring")
def test_a_login_that_is_kept_in_a_file_from_now_on_leaves_no_secret_in_the_keyring(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_keyring, in_file = TokenStore(str(tmp_path), "keyring"), TokenStore(str(tmp_path))
    for backend, count in (("FileKeyring", 0), ("LockedKeyring", 1)):
        use(monkeypatch, "tests.peers.file_keyring.FileKeyring")
        in_keyring.write(LOGIN)
        use(monkeypatch, f"tests.peers.file_keyring.{backend}")
        in_file.write(LOGIN)
        assert in_file.read(*KEY) == LOGIN
        assert len(list(secrets.iterdir())) == count
    assert in_file.remove(*KEY)
    assert not in_keyring.remove(*KEY), "where there is nothing, the keyring is not asked"
