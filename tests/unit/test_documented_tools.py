"""The tools that the documentation of Qwen Code and Gemini CLI names, and the only ways to add tools."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from server.app import App
from server.settings import load_settings
from server.upstreams.catalog.upstream_tool import DiscoveredMCPTool
from tools.agent_programs import AgentCommand
from tools.builtin.all_tools import builtin_tools
from tools.builtin.discovered_tools import DiscoveredTool
from tools.call.base_tool import BaseTool, BuiltinTool
from tools.call.tool_registry import ToolRegistry
from tools.contract.tool_results import (
    FileDataPart,
    FileDiff,
    InlineDataPart,
    PartListUnion,
    TextPart,
    ToolResult,
    package,
)
from tools.shell.brokered_starter import BrokeredStarter
from tools.shell.command_runner import ProgramRunner
from tools.shell.private_folders import PrivateFolders

PROJECT = Path(__file__).resolve().parents[2]

DOCUMENTED = [
    ("LSTool", "ListFiles", "list_directory"),
    ("ReadFileTool", "ReadFile", "read_file"),
    ("WriteFileTool", "WriteFile", "write_file"),
    ("GrepTool", "Grep", "grep_search"),
    ("GlobTool", "Glob", "glob"),
    ("EditTool", "Edit", "edit"),
    ("ReadManyFilesTool", "ReadManyFiles", "read_many_files"),
    ("ShellTool", "Shell", "run_shell_command"),
    ("WebFetchTool", "WebFetch", "web_fetch"),
    ("WebSearchTool", "WebSearch", "web_search"),
    ("MemoryTool", "SaveMemory", "save_memory"),
    ("TaskTool", "Task", "task"),
    ("TodoWriteTool", "TodoWrite", "todo_write"),
    ("SkillTool", "Skill", "skill"),
    ("NotebookEditTool", "NotebookEdit", "notebook_edit"),
    ("EnterPlanModeTool", "EnterPlanMode", "enter_plan_mode"),
    ("ExitPlanModeTool", "ExitPlanMode", "exit_plan_mode"),
]
"""The name of each documented tool's class, its short name, and its name in calls."""


def all_built_in(folder: Path) -> list[BaseTool[Any]]:
    """Return every built-in tool. An agent is configured, because there is no `task` tool without one."""
    programs = ProgramRunner(BrokeredStarter(), PrivateFolders(str(folder)))
    return builtin_tools(agents=[AgentCommand(name="worker", command="worker")], programs=lambda: programs)


@pytest.fixture
def registry(tmp_path: Path) -> ToolRegistry:
    registry = ToolRegistry()
    for tool in all_built_in(tmp_path):
        registry.register_tool(tool)
    return registry


@pytest.mark.requirement("registry.names")
@pytest.mark.parametrize(
    ("class_name", "short_name", "call_name"), DOCUMENTED, ids=[call_name for _, _, call_name in DOCUMENTED]
)
def test_every_documented_tool_is_found_by_each_of_its_names(
    class_name: str, short_name: str, call_name: str, registry: ToolRegistry
) -> None:
    tool = registry.get_tool(call_name)
    assert tool.name == call_name
    assert type(tool).__name__ == class_name
    assert registry.get_tool(class_name) is tool
    assert registry.get_tool(short_name) is tool
    assert tool in registry.get_all_tools()


@pytest.mark.requirement("registry.names")
def test_display_names_are_unique(registry: ToolRegistry) -> None:
    tools = registry.get_all_tools()
    assert len({tool.display_name for tool in tools}) == len(tools)


METHODS = ("validate_tool_params", "get_description", "execute", "parameter_schema")


@pytest.mark.requirement("contract.declared")
def test_every_kind_of_tool_implements_all_methods_of_the_contract(tmp_path: Path) -> None:
    kinds = [type(tool) for tool in all_built_in(tmp_path)]
    assert all(issubclass(kind, BuiltinTool) for kind in kinds)
    for kind in (*kinds, DiscoveredTool, DiscoveredMCPTool):
        assert issubclass(kind, BaseTool)
        assert not inspect.isabstract(kind)
        for method in METHODS:
            assert getattr(kind, method) is not getattr(BaseTool, method), f"{kind.__name__}.{method}"


@pytest.mark.requirement("contract.declared")
@pytest.mark.parametrize("omission", METHODS)
def test_a_tool_class_without_one_of_the_methods_cannot_be_instantiated(omission: str) -> None:
    def method(*_arguments: object) -> None: ...

    members: dict[str, Any] = {name: method for name in METHODS if name != omission}
    tool_class = type("Unfinished", (BaseTool,), members)
    with pytest.raises(TypeError, match=omission):
        tool_class()


IMAGE = InlineDataPart("image/png", b"\x89PNG", "file:///a.png")
SOUND = InlineDataPart("audio/wav", b"RIFF", "file:///a.wav")
LINK = FileDataPart("file:///b", "b")


@pytest.mark.requirement("results.rich")
@pytest.mark.parametrize(
    ("content", "parts"),
    [
        ("a text", (TextPart("a text"),)),
        (IMAGE, (IMAGE,)),
        (["one", IMAGE, "two", SOUND, TextPart("three"), LINK], None),
        ([IMAGE, IMAGE], (IMAGE, IMAGE)),
    ],
    ids=["string", "part", "mixed", "several"],
)
def test_content_is_a_string_a_part_or_a_list_of_both(content: PartListUnion, parts: Any) -> None:
    all_parts = (TextPart("one"), IMAGE, TextPart("two"), SOUND, TextPart("three"), LINK)
    display = FileDiff("a", "+x", added=1, removed=0)
    response = package("any", ToolResult(llm_content=content, return_display=display))
    assert response.parts == (all_parts if parts is None else parts)
    assert (response.name, response.error) == ("any", None)


# --- Where tools come from ---------------------------------------------------------------------------------------

FOREIGN_CODE = {
    "exec",
    "eval",
    "compile",
    "__import__",
    "run_path",
    "run_module",
    "entry_points",
    "spec_from_file_location",
}
"""Functions that run or find Python code by a name that can come from outside the program."""


def loads(tree: ast.AST) -> set[str]:
    """Return the calls of such functions in a module, and its imports of names that are not literals."""
    calls: set[str] = set()
    loop_variables = {
        ast.unparse(node.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.For)
        and isinstance(node.iter, ast.Tuple)
        and all(isinstance(element, ast.Constant) for element in node.iter.elts)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func)
        if function in FOREIGN_CODE or function.rpartition(".")[2] in FOREIGN_CODE - {"compile"}:
            calls.add(function)
        is_import = function.rpartition(".")[2] == "import_module"
        variable_names = [argument for argument in node.args if not isinstance(argument, ast.Constant)]
        if is_import and not {ast.unparse(name) for name in variable_names} <= loop_variables:
            calls.add(ast.unparse(node))
    return calls


@pytest.mark.requirement("registry.change")
def test_no_module_loads_code_by_a_name_from_outside() -> None:
    modules = [*PROJECT.glob("server/**/*.py"), *PROJECT.glob("tools/**/*.py"), PROJECT / "coretools_mcp.py"]
    assert len(modules) > 100
    names_by_path = {
        str(path.relative_to(PROJECT)): loads(ast.parse(path.read_text(encoding="utf-8"))) for path in modules
    }
    assert {path: names for path, names in names_by_path.items() if names} == {}
    assert loads(ast.parse("importlib.import_module(name); exec(code); metadata.entry_points()")) == {
        "importlib.import_module(name)",
        "exec",
        "metadata.entry_points",
    }


@pytest.mark.requirement("registry.change")
def test_neither_files_in_a_workspace_nor_unknown_settings_add_a_tool(root: Path, tmp_path: Path) -> None:
    code = "from pathlib import Path\nPath(__file__).with_suffix('.ran').write_text('')\n"
    for folder in (".coretools/tools", ".qwen/tools", ".gemini/extensions/x", "tools", "."):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / "my_tool.py").write_text(code)
    config = tmp_path / "config.json"
    config.write_text(
        '{"tools": {"register": ["my_tool:MyTool"], "plugins": ["./my_tool.py"]}, "plugins": ["my_tool"]}'
    )
    report = load_settings([str(config)], {"workspace": {"roots": [str(root)]}}, {}, folder=str(root))
    app = App(report, "stdio")
    assert [tool.name for tool in app.registry.get_all_tools()] == [tool.name for tool in builtin_tools()]
    assert len([warning for warning in report.warnings if "is not a known key" in warning]) == 3
    assert list(root.rglob("*.ran")) == []
