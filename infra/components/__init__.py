"""One component per deployable thing: takes its Args, declares its objects, decides nothing about their content."""
