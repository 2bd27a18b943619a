"""Operations on the log directories and the metadata of nodes that are stopped."""
