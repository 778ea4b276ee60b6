"""Placeholder lines: they stand for text that a model left out."""

from __future__ import annotations

import sysconfig
import tracemalloc
from pathlib import Path

import pydantic
import pytest

from tests.tables import each_of
from tools.files.change.omitted_text import first_omission

# Placeholders as models write them
OMISSIONS = """\
// ... existing code ...
// ...existing code...
# ... rest of code
// ... rest of the function ...
# rest of the code remains the same
/* ... unchanged ... */
/* ... */
{/* ... */}
{/* ... existing JSX ... */}
{/* rest of the component */}
<!-- rest of the page -->
<!-- ... existing content ... -->
…
// …
# … rest unchanged …
-- previous code remains
-- ... rest of the query ...
// (same as before)
# (unchanged)
(same as before)
[rest of file omitted]
[... rest of file unchanged ...]
[remaining code omitted for brevity]
// rest of the file unchanged
// ... other methods remain unchanged ...
// Keep existing imports
// keep the rest of the file as is
# --- existing code ---
/* rest of your styles */
; rest of the file
% ... remaining sections ...
// ... (previous code) ...
# ... snip ...
// ... [truncated] ...
// ...
# ...
...
... existing code ...
(rest of methods ...)
  # unchanged code ...
Rest of ....
// code omitted for brevity
// Existing code here...
// ... handleSubmit unchanged ...
// ... lines 10-50 unchanged ...
(* ... rest of proof ... *)
{# ... existing template ... #}
 * ... existing code ...
//... keep existing code
// ===== existing code =====
' ... existing code ...
REM rest of the script unchanged
dnl ... existing macros ...
\\ ... existing words ...
#region ... existing code ...
// <existing code>
// {existing code}
<existing code here>
\u00abexisting code\u00bb
// ..existing code..
// \u22ef existing code \u22ef
// ... rest of `UserService` ...
# ... (no changes below this line)
// All other functions remain the same as in the original file
# The remaining functions are identical to the original
// ... c\u00f3digo existente ...
-- remaining columns omitted""".splitlines()


@pytest.mark.requirement("write.literal")
@each_of("line", OMISSIONS)
def test_a_placeholder_is_found_where_lines_are_removed(line: str) -> None:
    old = "".join(f"line{number}();\n" for number in range(12))
    assert first_omission(f"import a\n{line}\n", old) == line.strip()
    assert first_omission(f"x();\n{line}\n", "b();\nc();\n", "a();\nb();\nc();\n") == line.strip()
    assert first_omission(f"import a\n{line}\n", f"{old}{line}\n") is None, "the file already has the line"
    assert first_omission(f"{old}{line}\n", old) is None, "no line is removed"


@pytest.mark.requirement("write.literal")
@each_of(
    "line",
    [
        'x = "// rest of code ..."',
        "a = 1  // rest of code ...",
        "the rest of the day ...",
        "rest of code",
        "    ...",
        "  ...rest,",
        "{...rest}",
        "[...existing]",
        "--keep",
        "#rest {",
        "* same",
        "'existing', 'keep',",
        "// The rest of the arguments are names of uploaded files.",
        "# " + "." * 60,
        "- Existing files remain unchanged.",
        "The rest remains unchanged.",
        "# Unchanged",
        "; remaining options",
        "const all = {...rest, ...existing};",
        "# ../existing/rest",
    ],
)
def test_a_line_that_only_resembles_a_placeholder_is_not_found(line: str) -> None:
    assert first_omission(line, "x = 1\ny = 2\nz = 3\n") is None


@pytest.mark.requirement("write.literal")
def test_a_doubtful_placeholder_counts_only_outside_comments_and_where_most_lines_are_removed() -> None:
    old = "".join(f"line{number}();\n" for number in range(12))
    assert first_omission("// All are checked,\n// the rest of the lines\n", old) is None
    new = "".join(f"new{number}();\n" for number in range(12))
    assert first_omission(f"{new}\n// ...\n", old) is None
    assert first_omission(f"{new}\n// ... existing code ...\n", old) is not None
    for kept_lines in (2, 6, 9):
        beginning = "".join(old.splitlines(keepends=True)[:kept_lines])
        assert first_omission(f"{beginning}// ...\n", old) == "// ..."
        assert first_omission(f"{beginning}// ...\nline11();\n", old) == (None if kept_lines == 9 else "// ...")
        assert first_omission(f"{beginning}new();\n// rest of the code remains unchanged\n", old) is not None
    assert first_omission(old.replace("line3();", "// ..."), old) is None, "only one line is replaced"


@pytest.mark.requirement("write.literal")
def test_a_markdown_heading_without_dots_or_brackets_is_not_a_placeholder() -> None:
    old = "".join(f"line {number}\n" for number in range(12))
    for heading in ("# Existing code", "## Same", "### Rest unchanged"):
        assert first_omission(f"{heading}\n\nText.\n", old, path="a.md") is None
    assert first_omission("# Existing code\n\nx = 1\n", old, path="a.py") == "# Existing code"
    assert first_omission("## ... existing sections ...\n", old, path="a.md") is not None
    assert first_omission("## [rest unchanged]\n", old, path="a.md") is not None


@pytest.mark.requirement("write.literal")
def test_real_source_files_may_be_written_over_longer_versions_of_them() -> None:
    library = Path(sysconfig.get_path("stdlib"))
    for path in sorted((*library.glob("*.py"), *Path(pydantic.__file__).parent.rglob("*.py")))[::8]:
        text = path.read_text("utf-8", "replace")
        assert first_omission(text, f"{text}\nmore = 1\n\nlines = 2\n") is None, path


@pytest.mark.requirement("write.literal")
def test_a_text_of_nothing_but_dots_takes_less_memory_than_four_copies_of_it() -> None:
    text = ("." * 999 + "\n") * 1_000
    tracemalloc.start()
    assert first_omission(text, None) is None
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * len(text)
