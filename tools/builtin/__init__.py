"""The built-in tools. Their modules share code only through `file_tools` and `background_jobs`."""
