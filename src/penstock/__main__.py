"""`python -m penstock` is the same as `penstock`."""

from penstock.cli.app import main

main()
