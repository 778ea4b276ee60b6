"""Running commands and programs, and what they leave running.

Tools, discovery, language servers and upstreams start programs through it; it stands on permissions and files.
"""
