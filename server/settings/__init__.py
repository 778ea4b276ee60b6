"""Turns files, command-line options and environment variables into frozen settings, and records their sources."""

from __future__ import annotations

from server.settings.load import SettingsReport, load_settings
from server.settings.section_model import SettingsError
from server.settings.server_models import Settings, TokenSource, UpstreamSettings

__all__ = ["Settings", "SettingsError", "SettingsReport", "TokenSource", "UpstreamSettings", "load_settings"]
