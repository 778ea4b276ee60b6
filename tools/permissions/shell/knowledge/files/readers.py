"""Programs that show or search files."""

from __future__ import annotations

from dataclasses import replace

from tools.permissions.shell.knowledge.files.operands import Files, R, W, for_each
from tools.permissions.shell.names import names

_GREP = Files(
    (R,),
    skip=1,
    unless=names("-e -f --regexp --file"),
    valued=names(
        "e A B C m D d regexp after-context before-context context max-count include exclude exclude-dir label"
        " binary-files devices directories"
    ),
    options={"f": R, "file": R, "exclude-from": R},
    searches=True,
)
_RG = replace(
    _GREP,
    unless=names("-e -f --regexp --file --files --type-list"),
    valued=names(
        "e A B C m g t T d j r E M regexp after-context before-context context max-count glob iglob type type-not"
        " type-add max-depth maxdepth threads replace encoding max-columns sort sortr color colors engine"
        " max-filesize"
    ),
    options={"f": R, "file": R, "ignore-file": R},
)
_HASHES = "md5sum sha1sum sha224sum sha256sum sha384sum sha512sum b2sum shasum md5"

READERS: dict[str, Files] = {
    **for_each(
        "cat less more most rev tac bat zcat bzcat xzcat zstdcat zless zmore bzless xzless tsort sum cksum"
        " crc32 stat readlink realpath nm objdump readelf size ldd source . view vimdiff",
        Files((R,)),
    ),
    **for_each(_HASHES, Files((R,), valued=names("l a length algorithm"))),
    "nl": Files((R,), valued=names("b d f h i l n s v w")),
    "tac": Files((R,), valued=names("s separator")),
    **for_each("comm", Files((R,))),
    "cmp": Files((R,), valued=names("i n ignore-initial bytes")),
    **for_each(
        "diff diff3 sdiff colordiff",
        Files(
            (R,),
            valued=names("C U I L F W x label ignore-matching-lines exclude show-function-line width context unified"),
            options={"from-file": R, "to-file": R, "exclude-from": R, "X": R, "S": R, "o": W, "output": W},
        ),
    ),
    "od": Files((R,), valued=names("A j N t w S address-radix skip-bytes read-bytes format width strings")),
    **for_each("hexdump hd", Files((R,), valued=names("e n s"), options={"f": R})),
    "strings": Files((R,), valued=names("n t e s bytes radix encoding target output-separator")),
    "file": Files((R,), valued=names("e F P separator parameter"), lists=names("f files-from"), options={"m": R}),
    **for_each("base32 base64 basenc", Files((R,), valued=names("w wrap"), options={"i": R, "o": W})),
    **for_each("expand unexpand", Files((R,), valued=names("t tabs"))),
    "pr": Files((R,), valued=names("D h l N o s S w W e i n")),
    **for_each("head tail", Files((R,), valued=names("n c s lines bytes sleep-interval pid max-unchanged-stats"))),
    "wc": Files((R,), valued=names("total"), lists=names("files0-from")),
    "fold": Files((R,), valued=names("w width")),
    "fmt": Files((R,), valued=names("w g p width goal prefix")),
    "column": Files((R,), valued=names("c s o N H R O W E T r p i n d l output-width separator table-columns")),
    "cut": Files((R,), valued=names("b c d f bytes characters delimiter fields output-delimiter")),
    "paste": Files((R,), valued=names("d delimiters")),
    "join": Files((R,), valued=names("a e i j o t v 1 2")),
    **for_each("ls dir vdir", Files((R,), valued=names("I w T ignore hide width tabsize block-size"), searches=True)),
    "tree": Files(
        (R,),
        valued=names("I L P H T filelimit charset sort timefmt"),
        options={"o": W, "output": W, "gitfile": R, "infofile": R},
        lists=names("fromfile"),
        searches=True,
    ),
    "du": Files(
        (R,),
        valued=names("d B t max-depth block-size threshold exclude"),
        options={"X": R, "exclude-from": R},
        lists=names("files0-from"),
        searches=True,
    ),
    **for_each("grep egrep fgrep", replace(_GREP, recursive=names("-r -R --recursive --dereference-recursive"))),
    **for_each("zgrep zegrep zfgrep bzgrep xzgrep", replace(_GREP, recursive=names("-r -R --recursive"))),
    **for_each("rg ag ack", _RG),
    "sort": Files(
        (R,),
        valued=names("k t S key field-separator buffer-size parallel batch-size sort compress-program"),
        options={"o": W, "output": W, "T": W, "temporary-directory": W, "random-source": R},
        lists=names("files0-from"),
    ),
    "shuf": Files((R,), valued=names("n i head-count input-range"), options={"o": W, "output": W, "random-source": R}),
    "uniq": Files((R,), last=(W,), valued=names("f s w skip-fields skip-chars check-chars")),
    "xxd": Files((R,), last=(W,), valued=names("c g l o s n R cols groupsize len offset seek name")),
    "date": Files(options={"f": R, "file": R, "r": R, "reference": R}, valued=names("d s date set")),
}
