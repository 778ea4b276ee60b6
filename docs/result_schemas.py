"""The JSON Schemas of structured results, by built-in tool. They are documented in tools.md and never sent to clients.

A built-in tool without a schema returns no structured result.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from tools.builtin.ask_user_question import Outcome
from tools.builtin.todo_write import TodoStatus
from tools.contract.tool_parameters import object_schema
from tools.memory.memory_files import MemoryScope
from tools.shell.job_table import JobStatus

_NOTES = {"type": "array", "items": {"type": "string"}, "description": "Further remarks."}
_NEXT_OFFSET = {"type": ["integer", "null"], "description": "The offset of the next part."}

# The properties of the results of every tool that changes a file
_CHANGE: dict[str, dict[str, Any]] = {
    "path": {"type": "string", "description": "Real path of the file."},
    "created": {"type": "boolean", "description": "The file did not exist before."},
    "added": {"type": "integer", "description": "Lines added."},
    "removed": {"type": "integer", "description": "Lines removed."},
    "bytes": {"type": "integer", "description": "Size of the file now."},
    "encoding": {"type": "string"},
    "eol": {"type": ["string", "null"], "description": "lf, crlf, cr or mixed; null if there is no line ending."},
    "sha256": {"type": "string", "description": "Current digest; usable as expected_sha256."},
    "links_broken": {"type": "integer", "description": "Hard links that keep the old content."},
    "user_modified": {"type": "boolean", "description": "The user changed the text before it was written."},
    "notes": _NOTES,
    "diff": {"type": "string", "description": "The final change if the user modified it, else empty."},
}

_JOB_STATUS: dict[str, dict[str, Any]] = {
    "job_id": {"type": "string"},
    "status": {"enum": [status.value for status in JobStatus]},
    "exit_code": {"type": ["integer", "null"]},
    "signal": {"type": ["string", "null"]},
}

_PROPERTIES: dict[str, dict[str, dict[str, Any]]] = {
    "list_directory": {
        "path": {"type": "string", "description": "Absolute path of the folder."},
        "entries": {
            "type": "array",
            "items": object_schema(
                {
                    "name": {"type": "string"},
                    "type": {"enum": ["directory", "file", "link", "other"]},
                    "size": {"type": ["integer", "null"], "description": "Bytes, for files."},
                    "target": {"type": ["string", "null"], "description": "Where a link points."},
                }
            ),
        },
        "total": {"type": "integer", "description": "Entries in the folder, hidden ones excluded."},
        "hidden": object_schema({"git": {"type": "integer"}, "agent": {"type": "integer"}}),
        "next_offset": _NEXT_OFFSET,
    },
    "glob": {
        "files": {"type": "array", "items": {"type": "string"}, "description": "Absolute paths."},
        "total": {"type": "integer", "description": "Files found."},
        "ignored": {"type": "integer", "description": "Matching files, and folders, hidden by ignore files or rules."},
        "partial": {"type": "boolean", "description": "The time limit ended the search early."},
        "next_offset": _NEXT_OFFSET,
    },
    "edit": {
        **_CHANGE,
        "replacements": {"type": "integer", "description": "Number of changed places; 0 for a new file."},
        "strategy": {
            "type": ["string", "null"],
            "description": "How old_string matched: exact, or the difference that was ignored; null for a new file.",
        },
        "lines": {
            "type": "array",
            "items": {"type": "integer"},
            "description": "Line numbers where replaced texts began; only the first 100.",
        },
        "regions": {
            "type": "array",
            "items": object_schema(
                {"first": {"type": "integer"}, "last": {"type": "integer"}, "text": {"type": "string"}}
            ),
            "description": "The changed places with the lines around them, after the edit.",
        },
    },
    "notebook_edit": {
        **_CHANGE,
        "cell_id": {"type": "string", "description": "The id of the cell, even if it was deleted."},
        "cell_type": {"type": "string"},
        "cells": {"type": "integer", "description": "Cells in the notebook now."},
    },
    "write_file": {
        **_CHANGE,
        "removed": {"type": ["integer", "null"], "description": "Lines removed; null if they were hidden."},
        "changed": {"type": "boolean", "description": "False if the file already had exactly this content."},
        "lines": {"type": "integer", "description": "Lines in the file now."},
    },
    "list_changes": {
        "changes": {
            "type": "array",
            "items": object_schema(
                {
                    "change_id": {"type": "integer"},
                    "time": {"type": "number", "description": "Seconds since the epoch."},
                    "tool": {"type": "string"},
                    "path": {"type": "string"},
                    "added": {"type": "integer"},
                    "removed": {"type": ["integer", "null"]},
                    "undoes": {"type": ["integer", "null"], "description": "The change that this one undid."},
                    "undone": {"type": "boolean"},
                    "own": {"type": "boolean", "description": "False if another session made it."},
                }
            ),
        },
        "older": {"type": "integer", "description": "Older changes not listed, at most 1,000."},
    },
    "undo_change": {
        **_CHANGE,
        "undone": {"type": "integer", "description": "The change that was undone."},
        "removed_file": {
            "type": "boolean",
            "description": "The change had created the file, which is now deleted.",
        },
    },
    "list_background_jobs": {
        "jobs": {
            "type": "array",
            "items": object_schema(
                {
                    **_JOB_STATUS,
                    "pid": {"type": "integer"},
                    "command": {"type": "string"},
                    "description": {"type": "string"},
                    "directory": {"type": "string"},
                    "duration_ms": {"type": "integer"},
                    "output_bytes": {"type": "integer"},
                }
            ),
        }
    },
    "stop_background_job": {**_JOB_STATUS, "was_running": {"type": "boolean"}},
    "save_memory": {
        "scope": {"type": "string", "enum": list(get_args(MemoryScope))},
        "path": {"type": "string", "description": "Real path of the memory file."},
        "fact": {"type": "string", "description": "The fact as written in the file."},
        "saved": {"type": "boolean", "description": "False if nothing was written: the fact was there."},
        "created": {"type": "boolean", "description": "The file did not exist before."},
        "sha256": {"type": ["string", "null"], "description": "New digest, if the file was written and is not hidden."},
        "user_modified": {"type": "boolean", "description": "The user changed the fact before it was written."},
        "notes": _NOTES,
    },
    "todo_write": {
        "todos": {
            "type": "array",
            "items": object_schema(
                {
                    "id": {"type": "string"},
                    "content": {"type": "string"},
                    "status": {"type": "string", "enum": list(get_args(TodoStatus))},
                }
            ),
            "description": "The list as it is now.",
        },
        "kept": {
            "type": "boolean",
            "description": "False if this client has no session or token, so the list exists only in this result.",
        },
        "notes": _NOTES,
    },
    "enter_plan_mode": {"approval_mode": {"type": "string", "description": "The mode from now on: plan."}},
    "exit_plan_mode": {
        "approved": {"type": "boolean"},
        "approval_mode": {"type": "string", "description": "The mode from now on: default or auto-edit."},
    },
    "ask_user_question": {
        "outcome": {"type": "string", "enum": list(get_args(Outcome))},
        "answers": {
            "type": "object",
            "description": "The chosen and written answers, keyed by question header; empty if the question was "
            "skipped. No headers if nobody answered.",
            "additionalProperties": {"type": "array", "items": {"type": "string"}},
        },
    },
}

RESULT_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
    tool: object_schema(properties) for tool, properties in _PROPERTIES.items()
}
