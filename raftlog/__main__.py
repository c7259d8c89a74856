"""`python -m raftlog` is the `raftlog` command."""

from raftlog.cli.main import main

if __name__ == "__main__":
    main()
