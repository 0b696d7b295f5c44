"""The `cct-keras` command: one file a subcommand, parsing and printing only."""
