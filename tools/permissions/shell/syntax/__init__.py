"""What the text of a command says by the grammar of bash: words, simple commands, and where each would run."""
