"""Turns files and command-line options into frozen settings, with the source of each value."""

from __future__ import annotations

from server.settings.load import SettingsReport, load_settings
from server.settings.models import Settings, TokenSource, UpstreamSettings
from server.settings.section_model import SettingsError

__all__ = ["Settings", "SettingsError", "SettingsReport", "TokenSource", "UpstreamSettings", "load_settings"]
