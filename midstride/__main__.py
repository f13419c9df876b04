"""`python -m midstride` is the `midstride` command."""

from midstride.cli import main

if __name__ == "__main__":
    main()
