"""Small PDF files, built by hand: valid ones, and parts for invalid ones."""

from __future__ import annotations

from collections.abc import Mapping

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"


def pdf(objects: Mapping[int, bytes]) -> bytes:
    """Return a PDF file with these objects. Number 1 is the catalog."""
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    size = max(objects) + 1
    offsets = dict.fromkeys(range(1, size), 0)
    for number, body in objects.items():
        offsets[number] = len(out)
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % size
    for offset in offsets.values():
        out += b"%010d 00000 n \n" % offset
    return bytes(out + b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (size, start))


def stream(data: bytes, entries: bytes = b"") -> bytes:
    """Return a stream object."""
    return b"<< /Length %d %s >>\nstream\n%s\nendstream" % (len(data), entries, data)


def lines(*texts: str) -> bytes:
    """Return the content of a page with these lines."""
    operators = b" ".join(b"(%s) Tj T*" % text.encode("latin-1") for text in texts)
    return b"BT /F1 12 Tf 14 TL 50 750 Td " + operators + b" ET"


def page_objects(*contents: bytes) -> dict[int, bytes]:
    """Return the objects of a document with one page for each content."""
    kids = [4 + 2 * number for number in range(len(contents))]
    objects = {
        1: CATALOG,
        2: b"<< /Type /Pages /Count %d /Kids [%s] >>" % (len(kids), b" ".join(b"%d 0 R" % kid for kid in kids)),
        3: b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    }
    for kid, content in zip(kids, contents, strict=True):
        objects[kid] = (
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /Font << /F1 3 0 R >> >> "
            b"/Contents %d 0 R >>" % (kid + 1)
        )
        objects[kid + 1] = content
    return objects


def document(*pages: bytes) -> bytes:
    """Return a PDF file with one page for each content."""
    return pdf(page_objects(*map(stream, pages)))
