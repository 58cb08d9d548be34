"""`python -m logqueue` is the `logqueue` command."""

from logqueue.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
