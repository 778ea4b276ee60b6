"""Turns files and command-line options into frozen settings, with the source of each value."""

from __future__ import annotations

from server.settings.load import SettingsReport, load_settings
from server.settings.section_model import SettingsError
from server.settings.server_models import Settings, TokenSource, UpstreamSettings

__all__ = ["Settings", "SettingsError", "SettingsReport", "TokenSource", "UpstreamSettings", "load_settings"]
