"""What a container's process is given: command line, environment, directories. Reads the API, starts nothing."""
