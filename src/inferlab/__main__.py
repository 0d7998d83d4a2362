"""`python -m inferlab`: the command line."""

from inferlab.start import main

if __name__ == "__main__":
    main()
