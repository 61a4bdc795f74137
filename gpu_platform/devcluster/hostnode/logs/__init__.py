"""A container's output on disk, in the format of the container runtimes, and out again through `pods/log`."""
