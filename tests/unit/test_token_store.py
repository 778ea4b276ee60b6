"""The login store: files are complete and private, one process renews a login at a time, and the keyring works."""

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
from tools.machine.installation import install_command

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
    with pytest.raises(TokenStoreError) as error:
        work()
    assert error.value.__cause__ is None
    message = str(error.value)
    assert message.endswith(".")
    assert not any(secret in message for secret in SECRETS)
    return message


@pytest.mark.requirement("login.issuer")
def test_a_damaged_file_does_not_forget_the_authorization_server(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    store.set_issuer("https://up.example/mcp", "us", "https://as.example")
    (path,) = (tmp_path / FOLDER).iterdir()
    path.write_bytes(b"")
    assert "set oauth.issuer" in refusal(lambda: store.issuer_of("https://up.example/mcp", "us"))
    store.set_issuer("https://up.example/mcp", "us", "https://as.example")
    assert store.issuer_of("https://up.example/mcp", "us") == "https://as.example"


# --- Files -----------------------------------------------------------------------------------------------------------


@pytest.mark.requirement("login.store")
def test_logins_are_stored_by_server_and_principal_and_read_back_unchanged(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    assert (store.read(*KEY), store.stamp(*KEY), store.all(), store.remove(*KEY)) == (None, None, [], False)
    assert list(tmp_path.iterdir()) == [], "reading created a file"
    other_logins = [
        replace(LOGIN, principal="ann", token=None, expires_at=None, scopes=None),
        replace(LOGIN, resource="https://up.example/other", client={}),
    ]
    for login in (LOGIN, *other_logins):
        store.write(login)
    second_store = TokenStore(str(tmp_path))
    assert [second_store.read(login.resource, login.principal) for login in (LOGIN, *other_logins)] == [
        LOGIN,
        *other_logins,
    ]
    assert second_store.read(LOGIN.resource, "bob") is None
    assert sorted(map(repr, second_store.all())) == sorted(map(repr, (LOGIN, *other_logins)))
    assert second_store.remove(*KEY)
    assert (second_store.read(*KEY), second_store.stamp(*KEY), second_store.remove(*KEY)) == (None, None, False)
    assert len(second_store.all()) == 2


@pytest.mark.requirement("login.store")
def test_the_stamp_changes_exactly_when_the_login_is_written(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    stamps: list[object] = []
    for _ in range(20):
        store.write(LOGIN)
        stamps.append(store.stamp(*KEY))
        assert store.stamp(*KEY) == stamps[-1]
    assert len(set(stamps)) == 20


@pytest.mark.requirement("login.store_private")
def test_the_repr_of_a_login_contains_no_secret() -> None:
    assert not any(secret in repr(LOGIN) for secret in SECRETS)


def raise_disk_full(_descriptor: int, _data: memoryview) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_partially(descriptor: int, data: memoryview) -> int:
    return raise_disk_full(descriptor, data) if len(data) < 50 else os.write(descriptor, data[:-20])


def fail_to_sync(_descriptor: int) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def fail_to_rename(_folder: Folder, _source: str, _target: str, _replacing: bool) -> None:
    raise OSError(errno.EACCES, os.strerror(errno.EACCES))


@pytest.mark.requirement("login.store")
@pytest.mark.parametrize(
    "disk",
    [Disk(write=raise_disk_full), Disk(write=write_partially), Disk(sync=fail_to_sync), Disk(rename=fail_to_rename)],
)
def test_a_failing_disk_leaves_the_old_login_complete_and_no_other_file(disk: Disk, tmp_path: Path) -> None:
    TokenStore(str(tmp_path)).write(LOGIN)
    store = TokenStore(str(tmp_path), disk=disk)
    message = refusal(lambda: store.write(replace(LOGIN, token={"access_token": "new"})))
    assert message.startswith("The login to up cannot be stored in the state folder (")
    assert store.read(*KEY) == LOGIN
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name]


WRITES = 60


def kill_self(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def rename_and_kill_self(folder: Folder, source: str, target: str, replacing: bool) -> None:
    rename_in(folder, source, target, replacing)
    kill_self()


def long_login(letter: str) -> StoredLogin:
    return replace(LOGIN, token={"access_token": letter * 20_000})


@posix
@pytest.mark.requirement("login.store")
@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_process_killed_while_it_writes_leaves_the_old_login_or_the_new_one(moment: str, tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    store.write(LOGIN)
    disk = Disk(rename=kill_self if moment == "before" else rename_and_kill_self)
    writer = in_another_process(TokenStore(str(tmp_path), disk=disk).write, long_login("n"))
    writer.join(60)
    assert writer.exitcode == -signal.SIGKILL
    login = store.read(*KEY)
    assert login is not None
    assert (login == LOGIN) is (moment == "before")
    store.write(LOGIN)
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name], "the next write did not remove the leftover file"


@pytest.mark.requirement("login.store")
def test_two_processes_that_write_at_once_leave_complete_logins(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    store.write(LOGIN)
    prefixes: set[str] = set()

    def write_often(letter: str) -> None:
        for _ in range(WRITES):
            TokenStore(str(tmp_path)).write(long_login(letter))

    writers = [in_another_process(write_often, letter) for letter in "ab"]
    while any(writer.is_alive() for writer in writers):
        login = store.read(*KEY)
        assert login is not None
        assert login.token is not None
        token = str(login.token["access_token"])
        assert token in (SECRETS[0], "a" * 20_000, "b" * 20_000)
        prefixes.add(token[0:2])
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert prefixes & {"aa", "bb"}
    assert os.listdir(tmp_path / FOLDER) == [file_of(tmp_path).name]


# --- Files that were changed after we wrote them ---------------------------------------------------------------------


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-7])


def change_server(file: Path) -> None:
    content = json.loads(file.read_text())
    content["login"]["resource"] = "https://other.example"
    file.write_text(json.dumps(content))


def raise_version(file: Path) -> None:
    file.write_text(json.dumps(json.loads(file.read_text()) | {"version": 2}))


def enlarge(file: Path) -> None:
    file.write_bytes(file.read_bytes() + b" " * (9 << 20))


def replace_with_symlink(file: Path) -> None:
    file.rename(file.with_suffix(".elsewhere"))
    file.symlink_to(file.with_suffix(".elsewhere"))


def make_readable_by_others(file: Path) -> None:
    file.chmod(0o604)


def make_writable_by_group(file: Path) -> None:
    file.chmod(0o620)


def replace_with_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def give_to_another_user(file: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("not run: only root gives files away")
    os.chown(file, 65534, -1)


SPOILERS = [
    *(
        truncate,
        change_server,
        raise_version,
        enlarge,
        replace_with_symlink,
        make_readable_by_others,
        make_writable_by_group,
    ),
    *(replace_with_pipe, give_to_another_user),
]


@posix
@pytest.mark.requirement("login.store_private")
@pytest.mark.parametrize("spoil", SPOILERS)
def test_a_file_that_was_changed_by_others_is_not_used_and_logout_removes_it(
    spoil: Callable[[Path], None], tmp_path: Path
) -> None:
    store, other_login = TokenStore(str(tmp_path)), replace(LOGIN, principal="ann")
    store.write(LOGIN)
    store.write(other_login)
    spoil(file_of(tmp_path))
    message = refusal(lambda: store.read(*KEY))
    assert message.endswith(NEW_LOGIN)
    assert str(tmp_path) not in message
    logins = store.all()
    assert other_login in logins
    assert sorted(map(str, logins)) == sorted([message, str(other_login)])
    assert store.remove(*KEY)
    assert store.read(*KEY) is None
    store.write(LOGIN)
    assert store.read(*KEY) == LOGIN


@posix
@pytest.mark.requirement("login.store_private")
@pytest.mark.parametrize("umask", [0, 0o022])
def test_login_files_are_private(umask: int, tmp_path: Path) -> None:
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
    reason = "its folder belongs to another user, or is a symlink or a file"
    message = f"The stored logins cannot be used ({reason}): check the folder logins in the state folder."
    assert refusal(lambda: store.read(*KEY)) == message
    assert refusal(lambda: store.try_lock(*KEY)) == message
    assert refusal(lambda: store.remove(*KEY)) == message
    assert refusal(lambda: store.write(LOGIN)) == f"The login to up cannot be stored in the state folder ({reason})."
    assert list(map(str, store.all())) == [message]
    assert list((tmp_path / "elsewhere").iterdir()) == []


# --- One at a time ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("login.store_lock")
def test_a_locked_login_cannot_be_locked_by_others(tmp_path: Path) -> None:
    store, other_store = TokenStore(str(tmp_path)), TokenStore(str(tmp_path))
    release = store.try_lock(*KEY)
    assert release is not None
    in_thread: list[object] = []
    thread = threading.Thread(target=lambda: in_thread.append(other_store.try_lock(*KEY)))
    thread.start()
    thread.join()
    assert [store.try_lock(*KEY), *in_thread] == [None, None]
    release_of_other = store.try_lock(LOGIN.resource, "ann")
    assert release_of_other is not None, "another login has the same lock"
    release_of_other()
    store.write(LOGIN)
    assert other_store.read(*KEY) == LOGIN, "the lock blocked a reader"
    release()
    second_release = other_store.try_lock(*KEY)
    assert second_release is not None
    second_release()
    assert store.all() == [LOGIN]


@posix
@pytest.mark.requirement("login.store_lock")
def test_a_killed_process_releases_its_lock_of_a_login(tmp_path: Path) -> None:
    store = TokenStore(str(tmp_path))
    read_end, write_end = os.pipe()

    def hold() -> None:
        os.write(write_end, b"held" if store.try_lock(*KEY) else b"free")
        signal.pause()

    holder = in_another_process(hold)
    try:
        assert os.read(read_end, 4) == b"held"
        assert store.try_lock(*KEY) is None
    finally:
        holder.kill()
        holder.join(60)
        os.close(read_end)
        os.close(write_end)
    release = store.try_lock(*KEY)
    assert release is not None
    release()


# --- The keyring -----------------------------------------------------------------------------------------------------


@pytest.fixture
def secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a working keyring."""
    folder = tmp_path / "keyring"
    folder.mkdir()
    monkeypatch.setenv(file_keyring.FOLDER, str(folder))
    use(monkeypatch, "tests.peers.file_keyring.FileKeyring")
    return folder


def use(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", backend)
    monkeypatch.setattr(keyring.core, "_keyring_backend", None)  # the library selects it only once


@pytest.mark.requirement("login.store_keyring")
def test_with_the_keyring_no_secret_is_in_a_file(tmp_path: Path, secrets: Path) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    assert store.read(*KEY) == LOGIN
    content = b"".join(path.read_bytes() for path in (tmp_path / FOLDER).iterdir())
    assert not any(secret.encode() in content for secret in SECRETS)
    assert [path.name for path in secrets.iterdir()] == [f"{SERVICE}.{key_of(*KEY)}"]
    before = store.stamp(*KEY)
    login_without_token = replace(LOGIN, token=None, expires_at=None)
    store.write(login_without_token)
    assert store.stamp(*KEY) != before
    assert store.read(*KEY) == login_without_token
    assert store.remove(*KEY)
    assert list(secrets.iterdir()) == []
    assert (store.read(*KEY), store.remove(*KEY)) == (None, False)


@pytest.mark.requirement("login.store_keyring")
def test_logins_are_listed_without_access_to_the_keyring(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    use(monkeypatch, "tests.peers.file_keyring.LockedKeyring")
    (login,) = store.all()
    assert login == replace(LOGIN, client={"client_id": "us"}, token=OPEN_PARTS)


def delete_secret(secret: Path) -> None:
    secret.unlink()


def change_issuer(secret: Path) -> None:
    secret.write_text(json.dumps(json.dumps(json.loads(json.loads(secret.read_text())) | {"issuer": "https://evil"})))


def change_client(secret: Path) -> None:
    secret.write_text(json.dumps(json.dumps(json.loads(json.loads(secret.read_text())) | {"client_id": "they"})))


def corrupt_secret(secret: Path) -> None:
    secret.write_text(json.dumps("{"))


@pytest.mark.requirement("login.store_keyring")
@pytest.mark.parametrize("spoil", [delete_secret, change_issuer, change_client, corrupt_secret])
def test_a_login_whose_secrets_are_missing_from_the_keyring_is_read_without_them(
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
    ("backend", "reason"),
    [
        ("keyring.backends.fail.Keyring", "There is no keyring here"),
        ("tests.peers.file_keyring.LockedKeyring", "The keyring is locked: unlock it,"),
        ("tests.peers.file_keyring.BrokenKeyring", "The keyring has failed,"),
        ("no.such.Keyring", "The keyring has failed,"),
    ],
)
def test_an_unusable_keyring_is_an_error_with_advice_and_no_file_replaces_it(
    backend: str, reason: str, tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    store.write(LOGIN)
    before = file_of(tmp_path).read_bytes()
    use(monkeypatch, backend)
    new = replace(LOGIN, token={"access_token": "new-secret"})
    for work in (lambda: store.read(*KEY), lambda: store.write(new), lambda: store.remove(*KEY)):
        message = refusal(work)
        assert message.startswith(reason)
        assert message.endswith('or set proxy.tokenStorage to "file", and log in again.')
        assert "new-secret" not in message
    assert file_of(tmp_path).read_bytes() == before


@pytest.mark.requirement("login.store_keyring")
def test_a_keyring_that_is_switched_off_or_not_installed_is_an_error_with_advice(
    tmp_path: Path, secrets: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TokenStore(str(tmp_path), "keyring")
    use(monkeypatch, "keyring.backends.null.Keyring")
    assert refusal(lambda: store.write(LOGIN)).startswith("The keyring has not stored the login")
    monkeypatch.setitem(sys.modules, "keyring", None)  # as if it was not installed
    message = refusal(lambda: store.write(LOGIN))
    assert f"run {install_command('keyring')}, or set proxy.tokenStorage" in message
    assert not (tmp_path / FOLDER).exists()


@pytest.mark.requirement("login.store_keyring")
@pytest.mark.parametrize(("storage", "other_storage"), [("file", "keyring"), ("keyring", "file")])
def test_a_login_in_another_storage_than_configured_is_refused_and_logout_removes_it_completely(
    storage: Literal["file", "keyring"], other_storage: Literal["file", "keyring"], tmp_path: Path, secrets: Path
) -> None:
    TokenStore(str(tmp_path), storage).write(LOGIN)
    store = TokenStore(str(tmp_path), other_storage)
    message = refusal(lambda: store.read(*KEY))
    place = "in the keyring" if storage == "keyring" else "in a file"
    assert message == (
        f"The secrets of the login to up are {place}, but proxy.tokenStorage is {other_storage}: "
        f"change that setting, or {NEW_LOGIN}"
    )
    assert list(map(str, store.all())) == [message]
    assert store.remove(*KEY)
    assert list(secrets.iterdir()) == []
    assert store.all() == []


@pytest.mark.requirement("login.store_keyring")
def test_a_login_that_moves_to_a_file_leaves_no_secret_in_a_working_keyring(
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
    assert not in_keyring.remove(*KEY), "the keyring was asked although nothing is stored"
