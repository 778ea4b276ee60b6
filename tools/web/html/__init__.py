"""HTML as text: a linear reader of tags, a writer of Markdown, and the process in which both run."""
