"""The built-in tools. Each module defines the parameters and the description of a tool, and calls other packages.

`all_tools` creates the tools. The modules share code only through `file_tools` and `background_jobs`.
"""
