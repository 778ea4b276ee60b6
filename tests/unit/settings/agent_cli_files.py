"""Settings files of Qwen Code and Gemini CLI: a loader, and two realistic examples, one flat and one in sections."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from server.settings import SettingsReport, load_settings
from server.settings.gemini_and_qwen_files import AGENT_CLIS, CliName
from tests.settings_cases import write

CLIS: list[CliName] = ["qwen", "gemini"]

each_cli = pytest.mark.parametrize("cli", CLIS)


def load_cli(home: Path, cli: CliName, content: str | dict[str, Any], environ: dict[str, str]) -> SettingsReport:
    """Write a CLI's settings file into a home folder, and load the settings."""
    write(home / AGENT_CLIS[cli].folder / "settings.json", content)
    return load_settings([], {}, environ, cli=cli, folder=str(home / "no-project"))


FLAT = """{
  // written for an older version
  "theme": "GitHub",
  "vimMode": true,
  "sandbox": "docker",
  "contextFileName": "AGENTS.md",
  "bugCommand": { "urlTemplate": "https://bug.example.com/new?title={title}&info={info}" },
  "fileFiltering": { "respectGitIgnore": false, "enableRecursiveFileSearch": true },
  "coreTools": ["ReadFileTool", "GlobTool", "ShellTool(ls)"],
  "allowedTools": ["run_shell_command(git status)"],
  "excludeTools": ["run_shell_command(rm -rf)"],
  "allowMCPServers": ["myPythonServer", "myNodeServer"],
  "excludeMCPServers": ["myNodeServer"],
  "autoAccept": false,
  "toolDiscoveryCommand": "bin/get_tools --all 'with blanks'",
  "toolCallCommand": "bin/call_tool",
  "mcpServerCommand": "node server.js $MODE",
  "mcpServers": {
    "myPythonServer": {
      "command": "python",
      "args": ["mcp_server.py", "--port", "8080"],
      "cwd": "./mcp_tools/python",
      "timeout": 5000,
      "includeTools": ["safe_tool", "file_reader"]
    },
    "myNodeServer": { "command": "node", "args": ["mcp_server.js"], "excludeTools": ["dangerous_tool"] }
  },
  "checkpointing": { "enabled": true },
  "telemetry": { "enabled": true, "target": "local", "otlpEndpoint": "http://localhost:4317" },
  "usageStatisticsEnabled": true,
  "hideTips": false,
  "maxSessionTurns": 10,
  "summarizeToolOutput": { "run_shell_command": { "tokenBudget": 100 } },
  "tavilyApiKey": "$MY_TAVILY_KEY",
  "approvalMode": "auto_edit"
}
"""

SECTIONS = """{
  "general": { "preferredEditor": "code", "vimMode": false, "checkpointing": { "enabled": true } },
  "ui": { "theme": "DefaultDark", "hideBanner": true, "footer": { "hideCWD": false } },
  "ide": { "enabled": true },
  "privacy": { "usageStatisticsEnabled": true },
  "model": { "name": "qwen3-coder-plus", "maxSessionTurns": 50, "enableOpenAILogging": false },
  "modelProviders": { "openai": [{ "id": "any", "envKey": "OPENAI_API_KEY" }] },
  "context": {
    "fileName": ["CONTEXT.md", "QWEN.md"],
    "includeDirectories": ["path/to/dir1", "~/path/to/dir2"],
    "loadFromIncludeDirectories": true,
    "fileFiltering": { "respectGitIgnore": true, "respectQwenIgnore": false, "enableFuzzySearch": true }
  },
  "tools": {
    "approvalMode": "plan",
    "sandbox": false,
    "shell": { "enableInteractiveShell": true, "pager": "cat", "showColor": true, "inactivityTimeout": 30 },
    "core": ["read_file", "run_shell_command(git)"],
    "allowed": ["run_shell_command(npm test)"],
    "exclude": ["write_file"],
    "discoveryCommand": "bin/get_tools",
    "callCommand": "bin/call_tool",
    "useRipgrep": true,
    "truncateToolOutputThreshold": 16000,
    "truncateToolOutputLines": -1
  },
  "permissions": { "allow": ["Bash(git *)"], "ask": ["Edit"], "deny": ["Read(.env)"] },
  "mcp": { "serverCommand": "./start-server --verbose", "allowed": [], "excluded": ["old"] },
  "mcpServers": {
    "mainServer": { "command": "bin/mcp_server.py", "trust": true },
    "old": { "httpUrl": "https://example.com/mcp", "headers": { "Authorization": "Bearer ${TOKEN}" } }
  },
  "webSearch": {
    "provider": [
      { "type": "tavily", "apiKey": "${MY_TAVILY_KEY}" },
      { "type": "google", "apiKey": "google-key", "searchEngineId": "engine" },
      { "type": "dashscope" }
    ],
    "default": "google"
  },
  "security": { "folderTrust": { "enabled": true }, "auth": { "selectedType": "qwen-oauth" } },
  "advanced": { "autoConfigureMemory": true, "excludedEnvVars": ["DEBUG", "DEBUG_MODE", "NODE_ENV"] },
  "$version": 2
}
"""
