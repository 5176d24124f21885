"""``python -m snaprebuild``."""

from snaprebuild.cli.main import main

if __name__ == "__main__":
    main()
