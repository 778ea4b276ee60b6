"""Skills: where they are found, what is read of them, and what is reported about skills that cannot be used."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.tables import each_of
from tools.builtin.skill import MAX_LIST_CHARS, SkillTool, describe_skills
from tools.call.base_tool import ToolContext
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.files.workspace import Workspace
from tools.skill_folders import MAX_FILES, SkillFolders, Skills, front_matter

pytestmark = pytest.mark.anyio


def write_skill(base: Path, place: str, name: str, text: str | None = None) -> Path:
    """Write a skill, by default a small one, and return its main file."""
    main = base / place / name / "SKILL.md"
    main.parent.mkdir(parents=True, exist_ok=True)
    default_text = f"---\nname: {name}\ndescription: How to {name}.\n---\n\nText of {name}.\n"
    main.write_text(default_text if text is None else text)
    return main


def folders_that_trust(root: Path, *mains: Path) -> SkillFolders:
    digests = {str(main.relative_to(root)): hashlib.sha256(main.read_bytes()).hexdigest() for main in mains}
    return SkillFolders(trusted_skills=lambda: {str(root): digests})


def home_skills(home: Path) -> Skills:
    """Return the skills of a home folder, without a workspace."""
    return SkillFolders(str(home)).find(Workspace([]), with_home=True)


@pytest.mark.requirement("skills.front_matter")
@each_of(
    "text, description",
    [
        ("description: plain words", "plain words"),
        ("description: with: a colon", "with: a colon"),
        ("description: 'it''s quoted'", "it's quoted"),
        ('description: "two\\nlines"', "two lines"),
        ('description: "a \\q broken escape"', "a \\q broken escape"),
        ("description: words # a comment", "words"),
        ("description: C# is no comment", "C# is no comment"),
        ("description: >\n  folded\n  lines\n\n  here", "folded lines here"),
        ("description: >-\n  folded", "folded"),
        ("description: |2\n  as it\n  stands", "as it stands"),
        ("description: | # literal\n  text", "text"),
        ("description: on one line\n  and the next", "on one line and the next"),
        ("description:\n  below its key", "below its key"),
        ('description: "quoted on\n  two lines"', "quoted on two lines"),
        ("metadata:\n  description: another\ndescription: mine", "mine"),
        ("description: first\n# a comment\nname: x", "first"),
        ("allowed-tools:\n- Read\n- Bash\ndescription: after a list", "after a list"),
        ("description:", ""),
        ("description : with a blank", "with a blank"),
        ('description: "quoted # no comment" # a comment', "quoted # no comment"),
        ("description: 'it''s quoted'  # it's a comment", "it's quoted"),
        ('description: "ends \\" here" # "', 'ends " here'),
        ('description: "one" "two"', '"one" "two"'),
        ("description: 'one' and 'two'", "'one' and 'two'"),
        ('description: "glued"# no comment', '"glued"# no comment'),
        ('description: "', '"'),
    ],
)
def test_the_front_matter_of_skills_is_read(text: str, description: str) -> None:
    assert front_matter(text)["description"] == description


@pytest.mark.requirement("skills.unused")
def test_disable_model_invocation_is_understood_in_any_spelling(tmp_path: Path) -> None:
    true_values = ("true", "True", '"true" # so', "'yes'", "on # so", "1", "!!bool true")
    false_values = ("", "false", "'no'", "off # so", "~", "# true")
    for number, value in enumerate((*true_values, *false_values)):
        key = ("disable-model-invocation", "disable_model_invocation")[number % 2]
        write_skill(tmp_path, ".qwen/skills", f"s{number}", f"---\ndescription: d\n{key}: {value}\n---\n")
    assert sorted(home_skills(tmp_path).by_name) == sorted(
        f"s{len(true_values) + number}" for number in range(len(false_values))
    )


@pytest.mark.requirement("skills.found")
def test_skills_in_all_folders_of_the_home_are_found_with_their_descriptions(tmp_path: Path) -> None:
    for place, name in ((".qwen", "a"), (".gemini", "b"), (".claude", "c"), (".agents", "d")):
        write_skill(tmp_path, f"{place}/skills", name)
    write_skill(tmp_path, ".qwen/skills", "e", "\ufeff---\r\ndescription: E.\r\nwhen_to_use: Often.\r\n---\r\nText\r\n")
    skills = home_skills(tmp_path)
    assert {name: found_skill.description for name, found_skill in skills.by_name.items()} == {
        "a": "How to a.", "b": "How to b.", "c": "How to c.", "d": "How to d.", "e": "E. Often.",
    }  # fmt: skip
    assert skills.problems == []
    assert SkillFolders(str(tmp_path)).find(Workspace([]), with_home=False).by_name == {}


@pytest.mark.requirement("skills.trust")
def test_a_skill_of_a_workspace_counts_only_as_it_was_when_it_was_trusted(root: Path) -> None:
    main, workspace = write_skill(root, ".qwen/skills", "sew"), Workspace([str(root)])
    skills = SkillFolders().find(workspace, with_home=True)
    assert skills.by_name == {}
    assert "coretools-mcp trust" in skills.problems[0]
    folders = folders_that_trust(root, main)
    assert list(folders.find(workspace, with_home=True).by_name) == ["sew"]
    main.write_text(main.read_text() + "More.\n")
    assert folders.find(workspace, with_home=True).by_name == {}


@pytest.mark.requirement("skills.trust")
def test_a_skill_of_the_home_that_is_inside_a_workspace_counts_once_the_home_is_trusted(tmp_path: Path) -> None:
    home = tmp_path / "home"
    main = write_skill(home, ".claude/skills", "sew")
    linked_main = write_skill(home, "project/skills", "knit")
    (home / ".qwen/skills").mkdir(parents=True)
    (home / ".qwen/skills/knit").symlink_to(linked_main.parent)
    folders, trusting_folders = (
        SkillFolders(str(home)),
        folders_that_trust(home, main, home / ".qwen/skills/knit/SKILL.md"),
    )
    trusting_folders = SkillFolders(str(home), trusting_folders.trusted_skills)
    for root, names in (
        (tmp_path, []),
        (home, []),
        (home / ".claude", ["knit"]),
        (home / ".claude/skills", ["knit"]),
        (main.parent, ["knit"]),
        (linked_main.parent, ["sew"]),
        (home / "project", ["sew"]),
    ):
        workspace = Workspace([str(root)])
        skills = folders.find(workspace, with_home=True)
        assert (root, list(skills.by_name)) == (root, names)
        assert str(home) in skills.problems[-1]
        assert sorted(trusting_folders.find(workspace, with_home=True).by_name) == ["knit", "sew"]


@pytest.mark.requirement("skills.unused")
def test_each_skill_that_cannot_be_used_is_reported_in_a_sentence(tmp_path: Path) -> None:
    home, other_folder = tmp_path / "home", tmp_path / "away"
    write_skill(home, ".qwen/skills", "good")
    write_skill(home, ".qwen/skills", "bare", "Text alone.")
    write_skill(home, ".qwen/skills", "blank", "---\nname: blank\n---\nText")
    write_skill(home, ".qwen/skills", "open", "---\ndescription: never closed\n")
    write_skill(home, ".qwen/skills", "large", "x" * 10_000_000)
    write_skill(home, ".qwen/skills", "own", "---\ndescription: Own.\ndisable-model-invocation: true\n---\n")
    write_skill(home, ".qwen/skills", "twice", "---\nname: good\ndescription: Another.\n---\n")
    (home / ".qwen/skills/empty").mkdir()
    (home / ".qwen/skills/file").write_text("x")
    (home / ".qwen/skills/pipe").mkdir()
    (home / ".qwen/skills/pipe/SKILL.md").symlink_to("/dev/zero")
    write_skill(other_folder, ".", "out")
    (home / ".qwen/skills/out").symlink_to(other_folder / "out")
    (home / ".qwen/skills/up").symlink_to(home)
    write_skill(home, "notes", "private")
    (home / ".qwen/skills/pack").mkdir()
    (home / ".qwen/skills/pack/SKILL.md").symlink_to(home / "notes/private/SKILL.md")
    write_skill(home, ".qwen/skills", "two\nlines\x1b[2J\u202e", "Text alone.")
    write_skill(home, ".", "SKILL")
    (home / "SKILL.md").write_text("---\ndescription: x\n---\n")
    (home / ".agents").mkdir()
    (home / ".agents/skills").symlink_to(other_folder)
    skills = home_skills(home)
    assert list(skills.by_name) == ["good"]
    for name in ("bare", "blank", "open", "large", "own", "twice", "pipe", "out", "up", "pack", ".agents"):
        assert any(f"{name}" in problem for problem in skills.problems), name
    assert len(skills.problems) == 12
    assert all(problem.isprintable() for problem in skills.problems)


@pytest.mark.requirement("skills.unused")
async def test_a_hidden_skill_is_not_used_and_the_error_for_an_unknown_name_lists_the_others(
    root: Path, context: ToolContext
) -> None:
    mains = [write_skill(root, ".claude/skills", name) for name in ("shown", "hidden")]
    (root / ".geminiignore").write_text("hidden/\n")
    tool = SkillTool(folders_that_trust(root, *mains))
    with pytest.raises(ToolError) as error_info:
        await tool.execute(tool.validate_tool_params({"skill": "shwon"}), context)
    assert error_info.value.code is ToolErrorType.INVALID_TOOL_PARAMS
    assert "Available: shown." in error_info.value.message
    assert ".geminiignore" in error_info.value.message


@pytest.mark.requirement("skills.loaded")
async def test_a_loaded_skill_comes_with_its_folder_and_its_files(root: Path, context: ToolContext) -> None:
    main = write_skill(root, ".claude/skills", "sew")
    (main.parent / "more").mkdir()
    (main.parent / "more" / "stitches.md").write_text("x")
    (main.parent / "link").symlink_to("/etc/passwd")
    tool = SkillTool(folders_that_trust(root, main))
    params = tool.validate_tool_params({"name": "sew"})
    text = str((await tool.execute(params, context)).llm_content)
    assert text.startswith("Text of sew.")
    assert str(main.parent) in text
    assert "- more/stitches.md" in text
    assert "link" not in text
    assert context.client.skill_folders == ()
    for number in range(10_000):
        (main.parent / f"{number}").touch()
    text = str((await tool.execute(params, context)).llm_content)
    assert len(text) < 10_000
    assert text.count("\n- ") == MAX_FILES + 1
    assert text.endswith("- and more")


@pytest.mark.requirement("skills.loaded")
async def test_a_linked_skill_folder_becomes_readable_only_if_it_is_in_a_folder_of_skills(
    tmp_path: Path, context: ToolContext
) -> None:
    home, tool = tmp_path / "home", SkillTool(SkillFolders(str(tmp_path / "home")))
    mains = {
        "placed": write_skill(home, ".agents/skills", "real"),
        "kept": write_skill(home, "dotfiles/skills", "kept"),
        "beside": write_skill(home, ".", "projects", "---\nname: beside\ndescription: x\n---\nText"),
    }
    (home / ".claude/skills").mkdir(parents=True)
    for name, main in mains.items():
        (home / ".claude/skills" / name).symlink_to(main.parent)
    for name in ("real", "kept", "beside"):
        result = await tool.execute(tool.validate_tool_params({"skill": name}), context)
        assert "Text" in str(result.llm_content)
        assert ("Its other files" in str(result.llm_content)) is (name != "beside")
    assert context.client.skill_folders == (str(mains["placed"].parent), str(mains["kept"].parent))


@pytest.mark.requirement("skills.listed")
def test_the_list_names_every_skill_within_its_size_limit(tmp_path: Path) -> None:
    assert not describe_skills(Skills(), has_search=True)
    for number in range(150):
        write_skill(tmp_path, ".qwen/skills", f"skill-{number:03d}", f"---\ndescription: {'word ' * 300}\n---\n")
    text = describe_skills(home_skills(tmp_path), has_search=True)
    assert len(text) <= MAX_LIST_CHARS
    assert text.count("\n- ") > 1
    assert all(f"skill-{number:03d}" in text for number in range(150))
    for number in range(50):
        write_skill(tmp_path, ".qwen/skills", f"{number:03d}-{'long' * 20}", "---\ndescription: x\n---\n")
    for has_search in (True, False):
        text = describe_skills(home_skills(tmp_path), has_search=has_search)
        assert len(text) <= MAX_LIST_CHARS
        assert ("search_tools" in text) is has_search  # without tool search, the client has no such tool
