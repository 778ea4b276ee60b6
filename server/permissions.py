"""From settings to the permission policy, with a place for the rules that people save."""

from __future__ import annotations

import logging

from server.guarded_settings import guarded_paths
from server.settings import SettingsReport
from server.settings.settings_writer import SavedRules
from tools.permissions.policy import PermissionPolicy
from tools.permissions.rules import RuleReader
from tools.registry import ToolRegistry

logger = logging.getLogger(__name__)


def permission_policy(report: SettingsReport, registry: ToolRegistry) -> PermissionPolicy:
    """The policy that the settings describe. What is wrong in a rule is told in the log."""
    permissions, tools = report.settings.permissions, report.settings.tools
    reader = RuleReader(registry.canonical, report.home)
    rules = reader.read(
        {
            "permissions.allow": permissions.allow,
            "permissions.ask": permissions.ask,
            "permissions.deny": permissions.deny,
            "tools.include": tools.include,
            "tools.core": tools.core,
            "tools.allowed": tools.allowed,
            "tools.exclude": tools.exclude,
            "tools.confirmationRequired": tools.confirmation_required,
        }
    )
    for warning in reader.warnings:
        logger.warning(warning)
    return PermissionPolicy(rules, registry.canonical, report.home, guarded_paths(report))


def rule_keeper(report: SettingsReport) -> SavedRules | None:
    """Where people's rules are saved: in the user's own settings file, if there is one."""
    return SavedRules(report.user_file) if report.user_file is not None else None
