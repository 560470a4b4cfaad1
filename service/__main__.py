"""``python -m service``: the same as the command ``tailrace``."""

from service.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
