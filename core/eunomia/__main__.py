"""``python -m eunomia``: the same command line as ``eunomia``."""

from eunomia.cli import main

if __name__ == "__main__":
    main()
