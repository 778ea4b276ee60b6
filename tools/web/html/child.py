"""The process that turns a page into text: standard input gives the page in UTF-8, standard output gets the text.

It is run by its path, with nothing of our environment, and killed when its time is over. Its arguments: how many bytes
of memory it may take, how many seconds, how many bytes it is given. It is given the page's URL on the first line (an
empty one for text without links), then the page; it answers with the title on the first line, then the text, then NUL.
An answer without NUL was cut short.
"""

from __future__ import annotations

import gc
import os
import sys


def main(memory: int, seconds: int, size: int) -> None:
    """Convert one page."""
    gc.disable()  # nothing here refers to itself, and the process ends soon
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))))
    from tools.filesystem.child_limits import limit_this_process  # noqa: PLC0415 - the path has to be known first

    limit_this_process(memory, seconds)
    from tools.web.html.markdown import to_text  # noqa: PLC0415 - the limits come first

    base, _, page = sys.stdin.buffer.read(size).decode("utf-8", "replace").partition("\n")
    title, text = to_text(page, base)
    answer = f"{title}\n{text}".replace("\0", "")
    sys.stdout.buffer.write(answer.encode("utf-8", "replace") + b"\0")
    sys.stdout.buffer.flush()
    os._exit(0)  # clearing up takes as long as a small page


if __name__ == "__main__":
    main(*(int(argument) for argument in sys.argv[1:4]))
