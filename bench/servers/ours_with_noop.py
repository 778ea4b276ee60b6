"""Our server with an additional built-in tool that does nothing, to measure a call without any file work."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from server import cli, run_server
from server.app import App
from tools.call.base_tool import READS, BuiltinTool, ToolContext
from tools.contract.permission_subjects import ToolKind
from tools.contract.tool_parameters import ToolParams
from tools.contract.tool_results import ToolResult


class HelloParams(ToolParams):
    """Parameters of the no-op tool."""

    name: str = ""


class HelloTool(BuiltinTool[HelloParams]):
    """Says hello."""

    name = "hello"
    display_name = "Hello"
    description = "Say hello."
    kind = ToolKind.OTHER
    behaviour = READS
    params_model = HelloParams

    def get_description(self, params: HelloParams, context: ToolContext) -> str:
        del context
        return f"Say hello to {params.name}"

    async def execute(self, params: HelloParams, context: ToolContext) -> ToolResult:
        del params, context
        return ToolResult(llm_content="hello")


class AppWithHello(App):
    """The application with the no-op tool registered."""

    def __init__(self, *arguments: object) -> None:
        super().__init__(*arguments)  # pyright: ignore[reportArgumentType]
        self.registry.register_tool(HelloTool())


if __name__ == "__main__":
    run_server.App = AppWithHello
    arguments = ["serve", "--workspace", sys.argv[1]]
    if "http" in sys.argv[2:]:
        arguments += ["--transport", "http", "--port", *(sys.argv[3:] or ["0"])]
    raise SystemExit(cli.main(arguments))
