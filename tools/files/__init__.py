"""Files of the workspace: opening, reading, changing, finding and searching them.

Only this package opens workspace files. Every package in a higher layer may import it.
"""
