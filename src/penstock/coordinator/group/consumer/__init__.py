"""Consumer groups of the new protocol (KIP-848): the coordinator assigns, members reconcile.

`heartbeat` decides what a member's heartbeat leads to, `model` is what a group is, `replay` takes
over the records that were decided.
"""
