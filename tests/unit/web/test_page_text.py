"""HTML converted to Markdown: the visible text of a page in its order, with absolute links."""

from __future__ import annotations

import pytest

from tests.tables import each_of
from tools.contract.call_options import AbortSignal
from tools.contract.tool_errors import ToolError, ToolErrorType
from tools.web.page_text import ConversionFailure, PageText, page_text

BASE = "https://site.test/a/b.html?q"


def convert(page: str, base: str = BASE) -> PageText:
    result = page_text(page, base, AbortSignal())
    assert isinstance(result, PageText)
    return result


@pytest.mark.requirement("web.html")
@each_of(
    ("page", "markdown"),
    [
        ("a <b>b</b>\n  c", "a **b** c"),
        ("<p>one<p>two</p>three", "one\n\ntwo\n\nthree"),
        ("<h1>One</h1><h3>Three <i>x</i></h3>text", "# One\n\n### Three *x*\n\ntext"),
        ("a&amp;b &lt;c&gt; &eacute;&#233;&#xE9;", "a&b <c> \u00e9\u00e9\u00e9"),
        ("<!DOCTYPE html><?php x ?><p>shown", "shown"),
        ("one<hr>two", "one\n\n---\n\ntwo"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
        ("x <code>y()</code>", "x `y()`"),
        ("<form><p>a whole page in a form</form>", "a whole page in a form"),
        ("<ul><li>a<li>b</ul>", "- a\n- b"),
        ("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b"),
        ("<ul><li>a<ol><li>b<li>c</ol><li>d</ul>", "- a\n  1. b\n  2. c\n- d"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2|3</table>x", "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |\n\nx"),
        ("<pre><code class='language-python'>x &lt; y</code></pre>", "```python\nx < y\n```"),
        ("<a href=c>x</a>", "[x](https://site.test/a/c)"),
        ("<a href='/c'>x</a>", "[x](https://site.test/c)"),
        ("<a href=//other.test/>x</a>", "[x](https://other.test/)"),
        ("<base href='/z/'><a href=c>x</a>", "[x](https://site.test/z/c)"),
        ("<img src=i.png alt='a cat'>", "![a cat](https://site.test/a/i.png)"),
        ("<img src=data:image/png;base64,xx alt=cat>", "cat"),
    ],
)
def test_a_page_becomes_markdown(page: str, markdown: str) -> None:
    assert convert(page).text == markdown


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    "noise",
    [
        "<script>if (a<b) document.write('<p>no</p>')</script>",
        "<style>no{}</style>",
        "<nav><ul><li>no</ul></nav>",
        "<div role=navigation><div>no</div>no</div>",
        "<svg><title>no</title><text>no</text></svg>",
        "<template><p>no</template>",
        "<button>no</button>",
        "<select><option>no</select>",
        "<textarea><p>no</textarea>",
        "<iframe>no</iframe>",
        "<div hidden>no</div>",
        "<div aria-hidden=true>no</div>",
        "<span style='color:red; display : none'>no</span>",
    ],
)
def test_parts_that_nobody_reads_are_left_out(noise: str) -> None:
    assert convert(f"<p>before</p>{noise}<p>after</p>").text == "before\n\nafter"


@pytest.mark.requirement("web.leads")
@each_of(
    ("part", "hides"),
    [
        ("<p style='visibility: hidden'>no</p>", True),
        ("<div hidden>no</div>", True),
        ("<div hidden=until-found>no</div>", True),
        ("<x-y><template shadowrootmode=open><p>no</template></x-y>", True),
        ("<p style=display:none>no</p>", True),
        ("<p aria-hidden=true>no", True),
        ("<input type=hidden name=a value=no>", False),
        ("<nav>no</nav><button>no</button>", False),
        ("<div hidden></div>", False),
        ("<p>It is hidden here.", False),
    ],
)
def test_a_page_with_hidden_text_is_recognised(part: str, hides: bool) -> None:
    assert convert(f"<p>text</p>{part}").has_hidden_text is hides


@pytest.mark.requirement("web.leads")
def test_refreshes_and_frames_of_a_page_are_found_but_not_those_in_comments_and_scripts() -> None:
    page = """<META content="0; URL='/a?b&amp;c'" Http-Equiv=REFRESH><frameset><frame src=left.html>
    <frame src='right.html'></frameset><iframe src="left.html" title=x></iframe><iframe srcdoc=x></iframe>
    <!-- <iframe src=c></iframe> --><script>x = '<iframe src=s>'</script><meta name=x content="0;url=z">"""
    result = convert(page)
    assert result.refresh == ("0; URL='/a?b&c'",)
    assert result.frames == ("left.html", "right.html")
    assert len(convert("<iframe src=x>" * 5 + "".join(f"<frame src={n}>" for n in range(99))).frames) == 10


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "markdown"),
    [
        ("<nav>all there is</nav>", "all there is"),
        ("<p hidden>only this</p>", "only this"),
        ("<noscript>Turn scripts on</noscript>", "Turn scripts on"),
        ("<main><footer>kept</footer></main>", "kept"),
    ],
)
def test_a_page_is_not_left_without_its_text(page: str, markdown: str) -> None:
    assert convert(page).text == markdown


@pytest.mark.requirement("web.html")
def test_the_title_is_the_first_one() -> None:
    result = convert("<html><head><title> A &amp;\n B</title></head><body>x<svg><title>no</title></svg></body>")
    assert (result.title, result.text) == ("A & B", "x")


@pytest.mark.requirement("web.html")
def test_plain_text_has_neither_links_nor_markup() -> None:
    assert convert("<p>a <b>b</b> <a href=c>c</a> <code>d</code>", "").text == "a b c d"


@pytest.mark.requirement("web.html")
def test_characters_of_every_kind_are_converted() -> None:
    result = convert("<title>\u00e9</title><p>\U0001f600 \ud800 <a href=/y>z</a>" + "<p>word" * 50_000)
    assert result.title == "\u00e9"
    assert result.text.startswith("\U0001f600 ? [z](https://site.test/y)\n\nword\n\nword")
    assert result.text.count("word") == 50_000


@pytest.mark.requirement("web.html")
def test_a_page_that_would_take_too_much_memory_says_so() -> None:
    assert page_text("<p>x" * 4_000_000, BASE, AbortSignal(), 60, memory=200 << 20) is ConversionFailure.ENDED
    assert isinstance(page_text("<p>x", BASE, AbortSignal(), 60, memory=200 << 20), PageText)


@pytest.mark.requirement("web.html")
def test_a_cancelled_call_reads_no_page() -> None:
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as error_info:
        page_text("<p>x", BASE, signal)
    assert error_info.value.code is ToolErrorType.CANCELLED
