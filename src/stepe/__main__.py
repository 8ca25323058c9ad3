"""``python -m stepe``."""

from stepe.cli import main

if __name__ == "__main__":
    main()
