"""Files of the workspace: opening, reading, changing, finding and searching them.

Every package above may import this one. It is the only one that opens workspace files.
"""
