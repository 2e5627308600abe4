"""`python -m circlet` is the `circlet` command."""

from circlet.cli import main

if __name__ == "__main__":
    main()
