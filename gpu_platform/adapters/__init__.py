"""One module or package per outside system: it translates types and errors, and decides nothing."""
