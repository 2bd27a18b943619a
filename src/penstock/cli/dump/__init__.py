"""What `penstock dump-log` shows: from the files of a log to items, and from items to lines.

Nothing here prints or changes a file, and only `paths` opens one.
"""
