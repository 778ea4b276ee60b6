"""Files of the workspace: the way to them, reading, changing, finding, searching.

Every room above may import it; whatever opens a file of a workspace does so here.
"""
