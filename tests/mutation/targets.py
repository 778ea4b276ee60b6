"""The modules to mutate and their tests: only tests with few processes, so that a mutant costs seconds."""

from __future__ import annotations

from typing import NamedTuple


class Target(NamedTuple):
    """Some modules and their tests.

    Args:
        modules: Paths from the root of the project.
        tests: Patterns of test modules, relative to the tests folder.
    """

    modules: tuple[str, ...]
    tests: tuple[str, ...]


TARGETS = {
    "opener": Target(
        ("tools/files/path_opener.py", "tools/files/workspace.py"),
        (
            "unit/filesystem/test_batch.py",
            "unit/filesystem/test_edit.py",
            "unit/filesystem/test_forbidden.py",
            "unit/filesystem/test_li[ns]*.py",
            "unit/filesystem/test_near_names.py",
            "unit/filesystem/test_reading_from_memory.py",
            "unit/filesystem/test_scratch.py",
            "unit/filesystem/test_true_names.py",
            "unit/filesystem/test_w*.py",
            "unit/permissions/test_hidden_files.py",
            "hostile/test_costly_links.py",
            "hostile/test_folder_swaps.py",
            "hostile/test_paths.py",
            "hostile/test_special_files.py",
            "property/test_containment.py",
        ),
    ),
    "writer": Target(
        ("tools/files/change/writer.py",),
        (
            "unit/filesystem/test_write*.py",
            "unit/filesystem/test_batch.py",
            "unit/filesystem/test_undo.py",
            "unit/test_token_store.py",
            "hostile/test_write_faults.py",
        ),
    ),
    "matching": Target(
        ("tools/files/change/text_match.py", "tools/files/change/text_edit.py"),
        (
            "unit/filesystem/test_batch.py",
            "unit/filesystem/test_edit*.py",
            "unit/filesystem/test_matching.py",
            "hostile/test_large_edits.py",
            "property/test_edit*.py",
        ),
    ),
    "rules": Target(
        (
            "tools/permissions/permission_rules.py",
            "tools/permissions/permission_policy.py",
            "tools/permissions/command_policy.py",
            "tools/permissions/command_rules.py",
        ),
        (
            "unit/permissions/test_*.py",
            "unit/planning/test_task_rules.py",
            "unit/test_tokens.py",
            "property/test_what_bash_runs.py",
        ),
    ),
    "views and masks": Target(
        (
            "tools/permissions/hidden_files.py",
            "tools/shell/sandbox/credential_masks.py",
            "tools/shell/sandbox/mount_check.py",
            "tools/shell/sandbox/reading_view.py",
            "tools/shell/sandbox/visible_file_system.py",
        ),
        (
            "unit/permissions/test_hidden_files.py",
            "unit/execution/test_sandbox*.py",
            "property/test_hidden_files.py",
            "property/test_command_views.py",
            "hostile/test_views.py",
            "hostile/test_sandbox_secrets.py",
            "hostile/test_sandbox_ways.py",
        ),
    ),
    "consent": Target(
        (
            "tools/call/consent.py",
            "server/clients/shared_grants.py",
            "server/questions/client_confirmer.py",
            "server/questions/form.py",
        ),
        (
            "unit/test_flow.py",
            "unit/test_pending_questions.py",
            "unit/test_relayed_parts.py",
            "unit/test_audit.py",
            "unit/test_shared_grants.py",
            "interaction/test_consent.py",
            "interaction/test_at_prompt.py",
            "interaction/test_ask_user_question.py",
            "unit/permissions/test_policy.py",
            "unit/planning/test_ask_user_question.py",
            "interaction/consent/test_frameworks.py",
        ),
    ),
    "sealing": Target(
        ("server/store/sealing.py",),
        ("unit/test_sealed_states.py", "unit/test_shared_*.py", "unit/test_stored_json.py"),
    ),
    "relay": Target(
        (
            "server/upstreams/relay/request_relay.py",
            "server/upstreams/relay/relayed_results.py",
            "server/upstreams/relay/upstream_resources.py",
            "server/upstreams/relay/upstream_tasks.py",
        ),
        (
            "unit/test_relayed_parts.py",
            "interaction/relay/test_apps.py",
            "interaction/relay/test_call_tool.py",
            "interaction/relay/test_concurrency_limit.py",
            "interaction/login/test_questions.py",
            "interaction/relay/test_roots_outside_calls.py",
            "interaction/relay/test_features.py",
            "interaction/relay/test_isolation.py",
            "interaction/relay/test_la*.py",
            "interaction/relay/test_lo[s]*.py",
            "interaction/relay/test_noted_subscriptions.py",
            "interaction/relay/test_published_items.py",
            "interaction/relay/test_questions.py",
            "interaction/relay/test_r[eo]s*.py",
            "interaction/relay/test_round_targets.py",
            "interaction/relay/test_shares.py",
            "interaction/relay/test_tasks.py",
            "unit/test_resource_routes.py",
        ),
    ),
    "tokens": Target(
        (
            "server/transports/configured_secrets.py",
            "server/transports/issuer.py",
            "server/upstreams/login/login_storage.py",
        ),
        (
            "unit/test_tokens.py",
            "unit/test_token_store.py",
            "unit/test_shared_logins.py",
            "interaction/network/test_access_tokens.py",
            "hostile/test_lying_issuers.py",
        ),
    ),
}
