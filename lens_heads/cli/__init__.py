"""The command `lens-heads`: the functions of the library with their options, tables and exit codes. Computes nothing itself."""
