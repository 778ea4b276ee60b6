"""`file://` URIs of workspace files: which path one means, and how a path stands in one.

They are what `pathlib.Path.as_uri` gives, as links in results are. A name that is not UTF-8 comes back as it was.
"""

from __future__ import annotations

import os
import re
from urllib.parse import quote_from_bytes, unquote_to_bytes

from tools.text.file_names import is_seen_in_name

FILE_TEMPLATE = "file:///{+path}"  # RFC 6570: a reserved expansion, so that the slashes of the path stay
MAX_URI_CHARS = 3 * 4096 + 32  # the longest path of Linux (PATH_MAX) with every byte percent-encoded, and the scheme
ON_WINDOWS = os.name == "nt"
_FILE_URI = re.compile(r"(?is)file://(?P<host>[^/?#]*)(?P<path>/[^?#]*)(?P<more>[?#].*)?")
_DRIVE = re.compile(r"[A-Za-z]:\\")
_AMBIGUOUS = re.compile(r"[?#]|%[0-9A-Fa-f]{2}")
"""What must not stand in a value as it is: a client that expands the template leaves it, and it means another thing."""


class UriRefusedError(Exception):
    """A URI that means no file of this machine; the text is a sentence for the one who sent it."""


def path_of_uri(uri: str, *, may_go_up: bool = False, windows: bool = ON_WINDOWS) -> str:
    """The absolute path that a URI means, percent-decoded once, or `UriRefusedError`. The disk is not looked at."""
    if len(uri) > MAX_URI_CHARS:
        raise UriRefusedError(f"The URI has {len(uri):,} characters; no file has one of more than {MAX_URI_CHARS:,}.")
    parts = _FILE_URI.fullmatch(uri)
    if parts is None:
        raise UriRefusedError(
            f"No resource has this URI: files are {FILE_TEMPLATE} with an absolute path, and resources/list shows what "
            "else there is, by its URI here."
        )
    if parts["host"].lower() not in ("", "localhost"):
        raise UriRefusedError("The URI names another machine; only an empty host or localhost can be served.")
    if parts["more"] is not None:
        raise UriRefusedError("A URI of a file has no query and no fragment; write ? as %3F and # as %23.")
    try:
        data = unquote_to_bytes(parts["path"])
        # On Windows names are not bytes, so what is not UTF-8 means nothing there.
        path = data.decode() if windows else os.fsdecode(data)
    except UnicodeError:
        raise UriRefusedError("The URI is not valid text; percent-encode the bytes of the path.") from None
    if "\0" in path:
        raise UriRefusedError("The URI holds a NUL (%00); no path has one.")
    if not may_go_up and ".." in re.split(r"[/\\]" if windows else "/", path):
        raise UriRefusedError("The URI holds '..'; name the file by its path without going up.")
    if windows:
        path = path.lstrip("/").replace("/", "\\")
        if not _DRIVE.match(path):
            raise UriRefusedError("On Windows a URI of a file begins with a drive: file:///C:/...")
    return path


def typed_path(value: str, *, windows: bool = ON_WINDOWS) -> str:
    """The absolute path that a value of the template's `path` means so far, percent-decoded."""
    path = os.fsdecode(unquote_to_bytes(value.encode("utf-8", "replace")))
    return path if windows else "/" + path.lstrip("/")


def template_value(path: str, *, windows: bool = ON_WINDOWS) -> str:
    """The value of the template's `path` for an absolute path.

    It is readable where it can be: clients encode what has to be encoded when they expand the template, some of them
    also a `%`. Only what would not come through that is encoded here.
    """
    plain = path.replace("\\", "/") if windows else path[1:]
    if _AMBIGUOUS.search(plain) or not is_seen_in_name(plain):
        return quote_from_bytes(os.fsencode(plain), safe="/:" if windows else "/")
    return plain
