"""Engines that find the lines a pattern matches: ripgrep, our own in process, our own in a killable process."""
