"""Stored data is used only if its types are right, no matter who has changed it since."""

from __future__ import annotations

import json
import logging
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from server.clients.shared_grants import SharedGrants
from server.console.client_config_file import InstallRecord
from server.settings.layers import FileState, SettingsScope
from server.settings.section_model import Diagnostics
from server.settings.settings_files import read_stored
from server.settings.workspace_trust import WorkspaceFile, digest, read_trust, read_trusted, trust_folder
from server.store.replica import Replica
from server.store.sealing import SealedStates, Sealer
from server.store.sqlite_store import SqliteStore
from server.upstreams.catalog.stored_lists import FOLDER, StoredLists
from tests.tables import all_cases, each_of
from tools.call.base_tool import ClientState

pytestmark = pytest.mark.anyio

ODD: list[Any] = [None, -1, -1.5, "text", [], ["x"], [[]], {}, {"x": 1}, {"x": {}}, [{"x": [1]}], True]
ODD_FOLDERS: list[Any] = [*ODD[:7], {"/a": []}, {"/a": {"x": 1}}]
DEEP = b"[" * 100_000
KEY = b"k" * 32


def variants(original: dict[str, Any]) -> list[Any]:
    """Return copies of an object in which one value has a wrong type or is missing, and values that are no objects."""
    not_objects = [value for value in ODD if not isinstance(value, dict)]
    # An integer is also valid where a float is expected.
    types_by_name: dict[str, Any] = {
        name: (float, int) if isinstance(item, float) else type(item) for name, item in original.items()
    }
    wrong_types = [
        {**original, name: value} for name in original for value in ODD if not isinstance(value, types_by_name[name])
    ]
    return [*not_objects, *wrong_types, *({key: original[key] for key in original if key != name} for name in original)]


@pytest.mark.requirement("stored.types")
async def test_stored_lists_with_wrong_types_are_ignored_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder := tmp_path / FOLDER).mkdir(mode=0o700)
    good = {"key": "k", "version": "2025-11-25", "lists": {"tools": [{"name": "a"}]}}
    bad: list[Any] = [{**good, "lists": {"tools": odd}} for odd in ODD if not isinstance(odd, list)]
    store, file = StoredLists(str(tmp_path)), folder / "k.json"
    file.write_text(json.dumps(good))
    assert list(await store.read(["k"])) == ["k"]
    with all_cases() as case:
        for content in (
            *(json.dumps(content_bytes).encode() for content_bytes in (*variants(good), *bad)),
            DEEP,
            b"",
            b"\xff",
        ):
            with case(content[:100]):
                caplog.clear()
                file.write_bytes(content)
                assert await store.read(["k"]) == {}
                assert "cannot be used" in caplog.text


@pytest.mark.requirement("stored.types")
async def test_rows_and_states_with_wrong_types_are_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The rows and states are sealed with the right keys, as if by another version."""
    caplog.set_level(logging.WARNING)
    store = SqliteStore(str(tmp_path / "store.db"))
    replica = Replica("one", store, (KEY,))
    grants, states = SharedGrants(replica, 60, lambda: ""), SealedStates("question", 60, replica)
    await grants.add(ClientState("token:ada", grants=[]), ["Edit"])
    client_digest = sha256(b"token:ada ").hexdigest()
    row_sealer, name = Sealer(replica.keys_for(f"client-grants {client_digest}")), f"client-grants:{client_digest}"
    row_value = await store.get(name)
    assert row_value is not None
    state_sealer = Sealer(replica.keys_for("question"))
    claims = json.loads(state_sealer.unseal(states.seal("action", "ada")))
    with all_cases() as case:
        for row in variants(json.loads(row_sealer.unseal(row_value.value))):
            with case(row):
                await store.put(name, row_sealer.seal(json.dumps(row).encode()), 60)
                assert not await grants.take_up(ClientState("token:ada", grants=[]))
        for claims_variant in variants(claims):
            with case(claims_variant):
                assert (
                    await states.open(state_sealer.seal(json.dumps(claims_variant).encode()), "action", "ada") is None
                )
    await store.aclose()
    assert "it is ignored" in caplog.text
    assert "that this server did not encrypt" in caplog.text


@pytest.mark.requirement("stored.types")
@each_of("content", [DEEP, *(json.dumps({"folders": odd}).encode() for odd in ODD_FOLDERS)])
def test_a_trust_file_with_wrong_types_trusts_nothing_and_is_rewritten(tmp_path: Path, content: bytes) -> None:
    path = str(tmp_path / "trusted.json")
    Path(path).write_bytes(content)
    os.chmod(path, 0o600)
    diagnostics = Diagnostics()
    assert read_trust(path, diagnostics) == {}
    assert "no workspace is trusted" in str(diagnostics.warnings) or b"[]" in content
    trust_folder(path, "/b", {"x": "y"})
    assert read_trust(path, Diagnostics()) == {"/b": {"x": "y"}}


@pytest.mark.requirement("settings.trust.store")
def test_a_folder_whose_name_is_not_valid_text_can_be_trusted(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "trusted.json"), f"{tmp_path}/odd\udcff"
    file = WorkspaceFile(folder, ".coretools/settings.json", SettingsScope.WORKSPACE, None, b"{}")
    trust_folder(store, "/b", {"x": "y"})
    for files, expected in (({file.name: digest(b"{}")}, FileState.READ), (None, FileState.UNTRUSTED)):
        trust_folder(store, folder, files)
        folders = read_trust(store, Diagnostics())
        assert read_trusted([file], folders, Diagnostics())[1][0].state is expected
        assert folders["/b"] == {"x": "y"}


@pytest.mark.requirement("stored.types")
@each_of("content", [json.dumps([variant]).encode() for variant in variants({"file": "f", "name": "n"})])
def test_install_records_with_wrong_types_are_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_stored(list[InstallRecord], content)
