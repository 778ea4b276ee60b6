"""One session with an upstream: its revision, lists, questions and subscriptions."""
