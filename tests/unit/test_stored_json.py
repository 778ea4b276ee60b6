"""What is read again has the types that it was kept with, no matter who has written there since."""

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
from server.store.shared_store import MemoryStore
from server.upstreams.catalog.stored_lists import FOLDER, StoredLists
from tests.tables import all_cases, each_of
from tools.call.base_tool import ClientState

pytestmark = pytest.mark.anyio

ODD: list[Any] = [None, -1, -1.5, "text", [], ["x"], [[]], {}, {"x": 1}, {"x": {}}, [{"x": [1]}], True]
ODD_FOLDERS: list[Any] = [*ODD[:7], {"/a": []}, {"/a": {"x": 1}}]
DEEP = b"[" * 100_000
KEY = b"k" * 32


def variants(good: dict[str, Any]) -> list[Any]:
    """An object with each value replaced by each of other types, or left out, and things that are no object."""
    odd = [value for value in ODD if not isinstance(value, dict)]
    # A whole number is a number.
    kept: dict[str, Any] = {
        name: (float, int) if isinstance(each, float) else type(each) for name, each in good.items()
    }
    replaced = [{**good, name: value} for name in good for value in ODD if not isinstance(value, kept[name])]
    return [*odd, *replaced, *({key: good[key] for key in good if key != name} for name in good)]


@pytest.mark.requirement("stored.types")
async def test_lists_of_other_types_are_passed_over_with_a_word_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder := tmp_path / FOLDER).mkdir(mode=0o700)
    good = {"key": "k", "version": "2025-11-25", "lists": {"tools": [{"name": "a"}]}}
    bad: list[Any] = [{**good, "lists": {"tools": odd}} for odd in ODD if not isinstance(odd, list)]
    stored, file = StoredLists(str(tmp_path)), folder / "k.json"
    file.write_text(json.dumps(good))
    assert list(await stored.read(["k"])) == ["k"]
    with all_cases() as case:
        for content in (*(json.dumps(each).encode() for each in (*variants(good), *bad)), DEEP, b"", b"\xff"):
            with case(content[:100]):
                caplog.clear()
                file.write_bytes(content)
                assert await stored.read(["k"]) == {}
                assert "cannot be used" in caplog.text


@pytest.mark.requirement("stored.types")
async def test_rows_and_states_of_other_types_count_for_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Sealed with our own keys, as by another version."""
    caplog.set_level(logging.WARNING)
    store = MemoryStore()
    replica = Replica("one", store, (KEY,))
    grants, states = SharedGrants(replica, 60, lambda: ""), SealedStates("question", 60, replica)
    await grants.add(ClientState("token:ada", grants=[]), ["Edit"])
    whose = sha256(b"token:ada ").hexdigest()
    sealed, name = Sealer(replica.keys_for(f"client-grants {whose}")), f"client-grants:{whose}"
    held = await store.get(name)
    assert held is not None
    state = Sealer(replica.keys_for("question"))
    claims = json.loads(state.unseal(states.seal("action", "ada")))
    with all_cases() as case:
        for row in variants(json.loads(sealed.unseal(held.value))):
            with case(row):
                await store.put(name, sealed.seal(json.dumps(row).encode()), 60)
                assert not await grants.take_up(ClientState("token:ada", grants=[]))
        for each in variants(claims):
            with case(each):
                assert await states.open(state.seal(json.dumps(each).encode()), "action", "ada") is None
    assert "it is ignored" in caplog.text
    assert "that this server did not encrypt" in caplog.text


@pytest.mark.requirement("stored.types")
@each_of("content", [DEEP, *(json.dumps({"folders": odd}).encode() for odd in ODD_FOLDERS)])
def test_a_store_of_trust_of_other_types_trusts_nothing_and_is_written_again(tmp_path: Path, content: bytes) -> None:
    path = str(tmp_path / "trusted.json")
    Path(path).write_bytes(content)
    os.chmod(path, 0o600)
    diagnostics = Diagnostics()
    assert read_trust(path, diagnostics) == {}
    assert "no workspace is trusted" in str(diagnostics.warnings) or b"[]" in content
    trust_folder(path, "/b", {"x": "y"})
    assert read_trust(path, Diagnostics()) == {"/b": {"x": "y"}}


@pytest.mark.requirement("settings.trust.store")
def test_a_folder_whose_name_is_no_text_is_trusted_beside_others(tmp_path: Path) -> None:
    store, folder = str(tmp_path / "trusted.json"), f"{tmp_path}/odd\udcff"
    file = WorkspaceFile(folder, ".coretools/settings.json", SettingsScope.WORKSPACE, None, b"{}")
    trust_folder(store, "/b", {"x": "y"})
    for files, expected in (({file.name: digest(b"{}")}, FileState.READ), (None, FileState.UNTRUSTED)):
        trust_folder(store, folder, files)
        trusted = read_trust(store, Diagnostics())
        assert read_trusted([file], trusted, Diagnostics())[1][0].state is expected
        assert trusted["/b"] == {"x": "y"}


@pytest.mark.requirement("stored.types")
@each_of("content", [json.dumps([each]).encode() for each in variants({"file": "f", "name": "n"})])
def test_installs_of_other_types_are_not_taken_for_such(content: bytes) -> None:
    with pytest.raises(ValueError, match="validation error"):
        read_stored(list[InstallRecord], content)
