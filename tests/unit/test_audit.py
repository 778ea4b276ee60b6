"""The audit log: every decision, one line each, without secrets."""

from __future__ import annotations

import fcntl
import json
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest

from server.administration import audit_log
from server.administration.audit_log import AuditLog
from tests.processes import in_another_process
from tests.waiting import wait_until
from tools.call.consent import AuditEntry, GrantScope, LastingAnswer
from tools.contract.confirmation import Answer, Decision, Unavailable
from tools.contract.tool_errors import ExhaustedError
from tools.permissions.verdict import Permission, Verdict

ALLOW = Permission(Verdict.ALLOW, "because")


def decision_entry(
    arguments: dict[str, Any] | None = None,
    answer: Answer | Unavailable | None = None,
    lasting: LastingAnswer | None = None,
) -> AuditEntry:
    return AuditEntry("edit", arguments or {}, "Edit a\nb", "stdio", ALLOW, 1_700_000_000.5, answer, lasting)


def records(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.requirement("audit.records")
def test_each_decision_is_one_line_with_its_reason_and_its_answer(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit.jsonl"))
    log.note(decision_entry({"file_path": "a", "n": 5}))
    log.note(decision_entry(answer=Answer(Decision.ONCE)))
    log.note(decision_entry(answer=Unavailable(client_decides=True, way_out="")))
    log.close()
    first, second, third = records(tmp_path / "audit.jsonl")
    assert (first["tool"], first["verdict"], first["reason"]) == ("edit", "allow", "because")
    assert first["arguments"] == {"file_path": "a", "n": 5}
    assert first["time"] == "2023-11-14T22:13:20.500+00:00"
    assert (second["answer"], second["by"], third["answer"]) == ("once", "form", "client decides")
    assert stat.S_IMODE(os.stat(tmp_path / "audit.jsonl").st_mode) == 0o600


@pytest.mark.requirement("audit.records")
def test_the_rules_that_an_answer_allows_are_written_with_their_scope_and_without_secrets(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit.jsonl"))
    token = "ghp_" + "a1B2" * 9
    rules = ("Edit(//ws)", f"Bash(curl {token} *)", f"Bash({'x' * 10_000} *)")
    log.note(decision_entry(answer=Answer(Decision.ONCE)))
    log.note(decision_entry(answer=Answer(Decision.SAVE), lasting=LastingAnswer(rules, GrantScope.SAVED)))
    log.close()
    single_record, saved_record = records(tmp_path / "audit.jsonl")
    assert "rules" not in single_record
    assert "scope" not in single_record
    assert (saved_record["answer"], saved_record["scope"]) == ("save", "saved")
    assert saved_record["rules"][0] == "Edit(//ws)"
    assert len(saved_record["rules"]) == 3
    assert token not in str(saved_record["rules"])
    assert len(saved_record["rules"][2]) < 3_000


@pytest.mark.requirement("audit.records")
def test_queued_decisions_are_written_once_a_thread_can_be_started_even_if_the_queue_was_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start_none(_: object) -> None:
        raise ExhaustedError("there are no threads")

    monkeypatch.setattr(audit_log, "QUEUED_RECORDS", 2)
    log = AuditLog(str(tmp_path / "audit.jsonl"))
    with monkeypatch.context() as context:
        context.setattr(audit_log, "start_thread", start_none)
        for _ in range(3):
            log.note(decision_entry())
    log.note(decision_entry())
    log.close()
    assert len(records(tmp_path / "audit.jsonl")) >= 2


@pytest.mark.requirement("audit.shared")
def test_two_servers_write_one_file_line_by_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def write() -> None:
        log = AuditLog(str(path))
        for number in range(50):
            log.note(decision_entry({"n": number}))
        log.close()

    writers = [in_another_process(write) for _ in range(2)]
    for writer in writers:
        writer.join(30)
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert [record["arguments"]["n"] for record in records(path)].count(49) == 2
    assert len(records(path)) == 100


@pytest.mark.requirement("audit.shared")
def test_a_lock_held_by_somebody_else_delays_no_decision(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    path.touch()
    with path.open("rb") as lock_file:
        fcntl.flock(lock_file, fcntl.LOCK_EX)
        log = AuditLog(str(path))
        log.note(decision_entry())
        log.close()
        assert len(records(path)) == 1


@pytest.mark.requirement("audit.shared")
def test_a_line_that_does_not_fit_on_the_disk_is_left_out_completely(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"

    def write() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000, 1_000))
        log = AuditLog(str(path))
        for _ in range(100):
            log.note(decision_entry())
        log.close()

    writer = in_another_process(write)
    writer.join(30)
    assert writer.exitcode == 0
    assert len(records(path)) > 1
    assert path.read_bytes().endswith(b"\n")


@pytest.mark.requirement("audit.shared")
def test_decisions_that_could_not_be_written_are_counted_in_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_log, "FLUSH_SECONDS", 0.01)
    path = tmp_path / "nobody reads"
    os.mkfifo(path)
    log = AuditLog(str(path))
    for _ in range(3):
        log.note(decision_entry())
    log.close()
    assert "decisions missing from it: 3" in caplog.text
    with os.fdopen(os.open(path, os.O_RDWR), "rb", buffering=0) as reader:  # lets the thread of the log end
        content = b""
        while content.count(b"\n") < 3:
            content += reader.read(100_000)


@pytest.mark.requirement("audit.shared")
@pytest.mark.parametrize(("name", "is_warned"), [("a/audit.jsonl", True), ("audit.jsonl", False), ("ab/x", False)])
def test_the_log_warns_of_an_audit_file_that_tools_can_reach(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, is_warned: bool
) -> None:
    (tmp_path / "a").mkdir()
    AuditLog(str(tmp_path / name)).warn_of_roots([str(tmp_path / "a")])
    assert ("is in the workspace folder" in caplog.text) is is_warned


@pytest.mark.requirement("audit.secrets")
def test_secrets_and_long_texts_are_not_written(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(str(path))
    token = "ghp_" + "a1B2" * 9
    log.note(
        decision_entry(
            {"api_key": "hunter2", "command": f"curl -H 'Authorization: Bearer {token}' x", "content": "y" * 10_000}
        )
    )
    log.close()
    text = path.read_text()
    assert "hunter2" not in text
    assert token not in text
    assert len(text) < 5_000


@pytest.mark.requirement("audit.secrets")
def test_a_secret_where_a_long_text_is_truncated_is_not_written(tmp_path: Path) -> None:
    log = AuditLog(str(tmp_path / "audit.jsonl"))
    text = f"{'x' * (audit_log.MAX_REASON_CHARS - 24)} https://user:hunter2-secret@host/{'y' * 99}"
    log.note(AuditEntry("edit", {}, text, "stdio", Permission(Verdict.ALLOW, text), 1_700_000_000.5))
    log.close()
    (record,) = records(tmp_path / "audit.jsonl")
    (recent_record,) = (make_record() for make_record in log.recent)
    assert "hunter2" not in f"{record} {recent_record}"
    assert len(record["does"]) == len(record["reason"]) == audit_log.MAX_REASON_CHARS


@pytest.mark.requirement("audit.shared")
def test_no_argument_can_forge_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    log = AuditLog(str(path))
    log.note(decision_entry({"command": 'x\n{"tool": "forged"}\u2028\u2029\x85\r\n', "k\ney": "\ud800"}))
    log.close()
    assert path.read_bytes().count(b"\n") == 1


@pytest.mark.requirement("audit.shared")
def test_the_next_line_counts_all_decisions_that_could_not_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "later"
    log = AuditLog(str(folder / "audit.jsonl"))
    for count in (1, 2):
        log.note(decision_entry())
        wait_until(lambda count=count: caplog.text.count("could not be written") == count)
    folder.mkdir()
    log.note(decision_entry())
    log.close()
    (record,) = records(folder / "audit.jsonl")
    assert record["dropped_before"] == 2
    assert "could not be completed" not in caplog.text


@pytest.mark.requirement("audit.shared")
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="not run: there is no /dev/full here")
def test_a_full_disk_is_logged_and_stops_no_decision(caplog: pytest.LogCaptureFixture) -> None:
    log = AuditLog("/dev/full")
    log.note(decision_entry())
    log.note(decision_entry())
    log.close()
    assert [record.levelname for record in caplog.records if "could not be written" in record.message] == ["ERROR"] * 2
