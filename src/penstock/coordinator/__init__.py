"""Who reads what, and how far: the coordinators of groups, as pure machines."""
