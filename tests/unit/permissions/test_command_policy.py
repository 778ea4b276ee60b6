"""Rules against commands that are spelled to get past them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.permissions.test_policy import flow_with, in_mode, of_command
from tools.call.context import ToolContext
from tools.contract.limits import ApprovalMode
from tools.permissions.verdict import Verdict

pytestmark = pytest.mark.anyio


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("git push", "git --no-pager push"),
        ("git push", "git -C . push"),
        ("git push", "git -c x=y push origin"),
        ("git push", "git --git-dir x push"),
        ("git push", "git -P -C . --no-pager push"),
        ("git push", "/usr/bin/git -C . push"),
        ("git push", "./git push"),
        ("git push", "git $X push"),
        ("docker run:*", "docker --host x run y"),
        ("docker run", "docker -H x -D run y"),
        ("npm publish", "npm --prefix d publish"),
        ("kubectl delete", "kubectl -n a delete pod b"),
        ("cargo install", "cargo +nightly install x"),
        ("terraform apply", "terraform -chdir=d apply"),
        ("rm", "/usr/bin/../bin/rm x"),
        ("rm", "//usr/bin/rm x"),
        ("rm", "/./bin/rm x"),
        ("rm", "~/../../bin/rm x"),
        ("rm", "RM x"),
        ("rm", "rm.exe x"),
        ("rm", "npm exec -- rm x"),
        ("rm", "uv run --quiet rm x"),
        ("rm", "npx rm x"),
        ("rm", "direnv exec . rm x"),
        ("rm", "split --filter='rm x' f"),
        ("rm", "printf -v 'a[$(rm x)]' 1"),
    ],
)
async def test_a_rule_that_denies_holds_for_every_spelling(context: ToolContext, rule: str, command: str) -> None:
    yolo = in_mode(context, ApprovalMode.YOLO)
    flow = flow_with(permissions_deny=[f"Bash({rule})"])
    assert (await of_command(flow, yolo, command)).verdict is Verdict.DENY
    asking = flow_with(permissions_ask=[f"Bash({rule})"])
    assert (await of_command(asking, yolo, command)).verdict is Verdict.ASK


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize("number", [1, 10, 100, 1_000, 30_000])
async def test_no_number_of_options_hides_what_a_rule_denies(context: ToolContext, number: int) -> None:
    flow = flow_with(permissions_deny=["Bash(git push)"])
    command = f"git {'-P ' * number}push"
    assert (await of_command(flow, in_mode(context, ApprovalMode.YOLO), command)).verdict is not Verdict.ALLOW


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    ("rule", "command", "verdict"),
    [
        ("git push", "git $X", Verdict.ASK),
        ("git push", "git $(echo push) origin", Verdict.ASK),
        ("git push", "git pu*", Verdict.ASK),
        ("git push", "git -P $X", Verdict.ASK),
        ("git push", "{git,push}", Verdict.DENY),
        ("git push --force", "git push $X", Verdict.ASK),
        ("git * --force", "git push $X", Verdict.ASK),
        ("npm run test*", "npm run te$X", Verdict.ASK),
        ("docker run", "docker --host $H run y", Verdict.DENY),
        ("docker run", "docker --host $H $X y", Verdict.ASK),
        ("git push", "git commit -m $X", Verdict.ALLOW),
        ("git push", 'git -C "$D" log', Verdict.ALLOW),
        ("git push", "ls $X", Verdict.ALLOW),
        ("rm", "ls $X", Verdict.ALLOW),
    ],
)
async def test_a_word_that_is_not_known_may_be_what_a_rule_denies(
    context: ToolContext, rule: str, command: str, verdict: Verdict
) -> None:
    flow = flow_with(permissions_deny=[f"Bash({rule})"])
    assert (await of_command(flow, in_mode(context, ApprovalMode.YOLO), command)).verdict is verdict


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    ("rule", "command", "verdict"),
    [
        ("git push", "git --no-pager push", Verdict.ALLOW),
        ("git push", "git -P push", Verdict.ALLOW),
        ("git push", "git -C ../other push", Verdict.ASK),
        ("git push", "git -c core.sshCommand=x push", Verdict.ASK),
        ("git push", "git --git-dir=x push", Verdict.ASK),
        ("docker run", "docker --host x run y", Verdict.ASK),
        ("touch", "/tmp/link/../../bin/touch x", Verdict.ASK),
        ("touch", "/tmp/usr/bin/touch x", Verdict.ASK),
        ("touch", "TOUCH x", Verdict.ASK),
        ("touch", "//usr/bin/touch x", Verdict.ALLOW),
        ("touch", "npx touch x", Verdict.ASK),
        ("printf", "printf -v 'a[$(x)]' 1", Verdict.ASK),
        ("python", "python -c 1", Verdict.ASK),
        ("sed", "sed -i s/a/b/ f", Verdict.ALLOW),
        ("sed", "sed 'w f' g", Verdict.ASK),
    ],
)
async def test_a_rule_that_allows_holds_for_what_is_the_same_for_certain(
    context: ToolContext, rule: str, command: str, verdict: Verdict
) -> None:
    flow = flow_with(permissions_allow=[f"Bash({rule}:*)"])
    assert (await of_command(flow, context, command)).verdict is verdict


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    "command",
    [
        "git log --output=.git/config",
        "git config core.pager x",
        "cp -r evil/.vscode .",
        "mv evil/.mcp.json .",
        "rm mcp.lock.json",
        "mv other.json mcp.lock.json",
        "echo {} > mcp.lock.json",
        "sort --outp=.vscode/tasks.json a",
        "sort -uo .npmrc a",
        "tee .husky/pre-commit",
    ],
)
async def test_no_rule_lets_a_command_write_auto_run_files(context: ToolContext, command: str) -> None:
    name = command.partition(" ")[0]
    flow = flow_with(permissions_allow=[f"Bash({name}:*)"])
    assert (await of_command(flow, in_mode(context, ApprovalMode.YOLO), command)).verdict is Verdict.ASK


@pytest.mark.requirement("rules.commands")
@pytest.mark.parametrize(
    "command",
    [
        "mv secrets/key open",
        "cat -n secrets/key",
        "cat /proc/self/cwd/secrets/key",
        "cat /dev/fd/3",
        "cd /proc/self && cat cwd/secrets/key",
        "git log -p",
        "jq 'include \"x\"; .' f",
        "sort --files0-from=f",
        "awk 'BEGIN{ARGV[1]=\"secrets/key\"; ARGC=2} 1'",
    ],
)
async def test_no_rule_for_a_program_opens_a_file_that_may_not_be_read(
    root: Path, context: ToolContext, command: str
) -> None:
    (root / "secrets").mkdir()
    (root / "secrets" / "key").write_text("x")
    name = command.rpartition("&& ")[2].partition(" ")[0]
    flow = flow_with(permissions_deny=["Read(secrets/**)"], permissions_allow=[f"Bash({name}:*)"])
    assert (await of_command(flow, context, command)).verdict is not Verdict.ALLOW
