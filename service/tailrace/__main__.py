"""``python -m tailrace``: the same as the command ``tailrace``."""

from tailrace.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
