"""Reading and judging a broker's configuration file, with the files of secrets that it names."""
