"""`python -m circlet.annif` is the `circlet-annif` command."""

from circlet.annif import main

if __name__ == "__main__":
    main()
