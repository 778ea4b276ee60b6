"""HTML as Markdown: what a reader of the page sees, in order, with links that lead somewhere."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tools.contract.context import AbortSignal
from tools.contract.errors import ToolError, ToolErrorType
from tools.web.html.conversion import PageText, Unconverted, convert
from tools.web.html.markdown import to_text

BASE = "https://site.test/a/b.html?q"


def text(page: str, base: str | None = BASE) -> str:
    return to_text(page, base)[1]


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("a <b>b</b>\n  c", "a **b** c"),
        ("<p>one<p>two</p>three", "one\n\ntwo\n\nthree"),
        ("<div>one</div><div>two</div>", "one\ntwo"),
        ("one<br>two<br/>three", "one\ntwo\nthree"),
        ("<h1>One</h1><h3>Three <i>x</i></h3>text", "# One\n\n### Three *x*\n\ntext"),
        ("<h2><div>One</div> <div>line</div></h2>text", "## One line\n\ntext"),
        ("a&amp;b &lt;c&gt; &eacute;&#233;&#xE9; &nosuch; &", "a&b <c> \u00e9\u00e9\u00e9 &nosuch; &"),
        ("a < b <3 >", "a < b <3 >"),
        ("<!-- <p>no --><p>yes<!-->also<!---->too<!--x--!>end", "yesalsotooend"),
        ("<!DOCTYPE html><?php x ?><![CDATA[y]]>shown</>", "shown"),
        ("one<hr>two", "one\n\n---\n\ntwo"),
        ("<blockquote><p>a</p><p>b</p></blockquote>c", "> a\n>\n> b\n\nc"),
        ("<p>  </p><p>x</p><div></div>", "x"),
        ("<b> </b>x<i></i>", "x"),
        ("a<b> b </b>c", "a **b** c"),
        ("<b>a<p>b</b>", "a\n\nb"),
        ("x <code>y()</code>, <kbd>Ctrl</kbd>", "x `y()`, `Ctrl`"),
        ("<dl><dt>term<dd>what it means</dl>", "term\n: what it means"),
        ("<details><summary>Sum</summary>more</details>", "Sum\nmore"),
        ("a&nbsp;b", "a b"),
    ],
)
def test_text_keeps_its_blocks(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("<ul><li>a<li>b</ul>", "- a\n- b"),
        ("x<ul><li><p>a</p></li><li>b</li></ul>y", "x\n\n- a\n- b\n\ny"),
        ("<ol start=3><li>a</li><li>b</li></ol>", "3. a\n4. b"),
        ("<ul><li>a<ol><li>b<li>c</ol><li>d</ul>", "- a\n  1. b\n  2. c\n- d"),
        ("<ul><li>a<br>b</ul>", "- a\n  b"),
        ("<ul><li></li><li>x</li></ul>", "- x"),
        ("<li>alone", "- alone"),
        ("<ol start=99999999999999999999><li>a</ol>", "1. a"),
        ("<ul><li>a</ul></ul></li>b", "- a\n\nb"),
    ],
)
def test_lists_are_lists(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("<a href=c>x</a>", "[x](https://site.test/a/c)"),
        ("<a href='/c'>x</a>", "[x](https://site.test/c)"),
        ("<a href=/./c/../d>x</a>", "[x](https://site.test/d)"),
        ("<a href=//other.test/>x</a>", "[x](https://other.test/)"),
        ('<A HREF="HTTP://other.test/?a=1&amp;b=(2)">x</A>', "[x](HTTP://other.test/?a=1&b=%282%29)"),
        ("<a href=' c\n'>x</a>", "[x](https://site.test/a/c)"),
        ("<a href=#top>x</a> <a>y</a> <a href=''>z</a>", "x y z"),
        ("<a href='javascript:alert(1)'>x</a> <a href='JaVa\nScript:1'>y</a> <a href=data:,x>z</a>", "x y z"),
        ("<a href=mailto:a@b.test>x</a>", "[x](mailto:a@b.test)"),
        ("<base href='/z/'><a href=c>x</a>", "[x](https://site.test/z/c)"),
        ("<base href='javascript:x'><a href=c>x</a>", "[x](https://site.test/a/c)"),
        ("see <a href=c> x </a>.", "see [x](https://site.test/a/c) ."),
        ("<a href=c><b>x</b></a>", "[**x**](https://site.test/a/c)"),
        ("<a href=c>x<a href=d>y</a>", "[x](https://site.test/a/c)[y](https://site.test/a/d)"),
        ("<a href=c></a>x", "x"),
        ("<a href=c><h2>T</h2><p>x</p></a>", "## T\n\nx (https://site.test/a/c)"),
        (
            "<ul><li><a href=c>x</a><li><a href=d>y</a></ul>",
            "- [x](https://site.test/a/c)\n- [y](https://site.test/a/d)",
        ),
        ("<img src=i.png alt='a  cat'>", "![a cat](https://site.test/a/i.png)"),
        ("<img src=data:image/png;base64,xx alt=cat><img src=x><img alt=''>", "![cat]()"),
        ("<a href='http://[x'>x</a>", "[x](http://%5Bx)"),
        (f"<a href={'x' * 3_000}>x</a>", "x"),
    ],
)
def test_links_lead_to_absolute_targets(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        (
            "<table><tr><th>a<th>b<tr><td>1<td>2|3</table>x",
            "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |\n\nx",
        ),
        (
            "<table><caption>C</caption><thead><tr><td>a</td><td><p>b</p></td></tr></thead></table>",
            "C\n| a | b |\n| --- | --- |",
        ),
        ("<table><tr><td>a<br>b</td><td>c</td></tr></table>", "| a b | c |\n| --- | --- |"),
        ("<table><tr><td>only</td></tr></table>", "only"),
        ("<table><tr><td></td><td></td></tr></table>x", "x"),
        ("<table><td>a<td>b</table>", "| a | b |\n| --- | --- |"),
        (
            "<table><tr><td>menu<td><h1>T</h1><p>x</p><table><tr><td>1<td>2</table></table>",
            "menu\n\n# T\n\nx\n\n| 1 | 2 |\n| --- | --- |",
        ),
        ("<td>a</td> <tr>b", "a b"),
        ("<ul><li><table><tr><td>a<td>b</table></ul>", "- | a | b |\n  | --- | --- |"),
    ],
)
def test_tables_are_tables_unless_they_are_there_for_the_layout(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("<pre>a\n  b\n</pre>c", "```\na\n  b\n```\n\nc"),
        ("<pre><code class='hljs language-python'>x &lt; y</code></pre>", "```python\nx < y\n```"),
        ("<pre class=lang-c++>x<br>y<b>z</b></pre>", "```c++\nx\nyz\n```"),
        ("<pre>```\nx\n```</pre>", "````\n```\nx\n```\n````"),
        ("<ul><li><pre>a\nb</pre></ul>", "- ```\n  a\n  b\n  ```"),
        ("<pre>without end", "```\nwithout end\n```"),
        ("<pre> \n</pre>x", "x"),
    ],
)
def test_code_stays_as_it_is(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html.noise")
@pytest.mark.parametrize(
    "noise",
    [
        "<script>if (a<b) document.write('<p>no</p>')</script>",
        "<SCRIPT>no</script >",
        "<style>no{}</style>",
        "<nav><ul><li>no</ul></nav>",
        "<nav><nav>no</nav>no</nav>",
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
        "<p style=visibility:hidden>no<p>",
        "<noscript></noscript>",
    ],
)
def test_what_nobody_reads_is_left_out(noise: str) -> None:
    assert text(f"<p>before</p>{noise}<p>after</p>") == "before\n\nafter"


@pytest.mark.requirement("web.html.noise")
@pytest.mark.parametrize(
    ("page", "wanted"),
    [
        ("<nav>all there is</nav>", "all there is"),
        ("<p>a</p><div hidden>never ends<p>b", "a\n\nnever ends\n\nb"),
        ("<body hidden>x", "x"),
        ("<p hidden>a<p>b", "b"),
        ("<a href=x class=hidden-xs>x</a>", "[x](https://site.test/a/x)"),
        ("<noscript>Turn scripts on</noscript>", "Turn scripts on"),
        ("<main><footer>kept</footer></main>", "kept"),
    ],
)
def test_what_is_left_out_takes_no_text_with_it(page: str, wanted: str) -> None:
    assert text(page) == wanted


@pytest.mark.requirement("web.html")
def test_the_title_is_the_first_one() -> None:
    page = "<html><head><title> A &amp;\n B <b>c</b></title></head><svg><title>no</title></svg><body>x<title>no</title>"
    assert to_text(page, BASE) == ("A & B <b>c</b>", "x")


@pytest.mark.requirement("web.html")
def test_plain_text_has_neither_links_nor_marks() -> None:
    page = "<h1>T</h1><p>a <b>b</b> <a href=c>c</a> <code>d</code><ul><li>e</ul><img src=i alt=f>"
    assert text(page, None) == "# T\n\na b c d\n\n- e\n\n![f]()"


PIECES = (
    "<p> <div> </div> <ul> <li> </li> </ul> <ol> <table> <tr> <td> </td> </tr> </table> <b> </b> <i> </i> <a_href=x> "
    "</a> <pre> </pre> <h1> </h1> <blockquote> </blockquote> <br> <nav> </nav> <code> </code> <!-- --> <script> "
    "</script> <div_hidden> < & > <dd> <hr> </p> &amp; <svg> </svg> <title> </title> <button> _"
)
NOISY = {"<nav>", "<!--", "<script>", "<div_hidden>", "<svg>", "<title>", "<button>"}


@pytest.mark.requirement("web.html")
@settings(deadline=None)
@given(st.lists(st.sampled_from(PIECES.split()), max_size=60))
def test_every_nesting_of_tags_keeps_the_words_that_stand_outside_of_noise(pieces: list[str]) -> None:
    page = "".join(f"{piece.replace('_', ' ')}({number})" for number, piece in enumerate(pieces))
    _, found = to_text(page, BASE)
    if NOISY.isdisjoint(pieces):
        assert [f"({number})" in found for number in range(len(pieces))] == [True] * len(pieces)
    assert found == found.strip("\n")


@pytest.mark.requirement("web.html")
@given(st.text(max_size=300), st.text(alphabet="<>/!-= \"'abp&;#x0", max_size=300))
def test_any_text_is_read(some: str, markup: str) -> None:
    for page in (some, markup, markup + some):
        title, found = to_text(page, BASE)
        assert isinstance(title, str)
        assert isinstance(found, str)


@pytest.mark.requirement("web.html")
def test_the_process_gives_what_the_reader_gives() -> None:
    page = "<title>\u00e9</title><p>\U0001f600 \ud800 \0x<a href=/y>z</a>" + "<p>word" * 50_000
    found = convert(page, BASE, AbortSignal())
    assert isinstance(found, PageText)
    assert found.title == "\u00e9"
    assert found.text.startswith("\U0001f600 ? x[z](https://site.test/y)\n\nword\n\nword")
    assert len(found.text) == len("\U0001f600 ? x[z](https://site.test/y)") + 50_000 * len("\n\nword")


@pytest.mark.requirement("web.html")
def test_a_page_that_would_take_too_much_memory_says_so() -> None:
    page = "<p>x" * 1_000_000
    assert convert(page, BASE, AbortSignal(), 60, memory=64 << 20) is Unconverted.ENDED
    assert isinstance(convert("<p>x", BASE, AbortSignal(), 60, memory=64 << 20), PageText)


@pytest.mark.requirement("web.html")
def test_a_cancelled_call_reads_no_page() -> None:
    signal = AbortSignal()
    signal.abort()
    with pytest.raises(ToolError) as caught:
        convert("<p>x", BASE, signal)
    assert caught.value.code is ToolErrorType.CANCELLED
