"""Tools that a command of the operator's tells of, and another one carries out."""
