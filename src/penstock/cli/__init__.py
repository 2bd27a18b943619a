"""The command line: `penstock`. One file per command group."""
