"""The client side of the network: connections to brokers, and requests over them.

Used by `penstock.client` and by a broker that sends requests to other brokers. From the socket up:

    connection.py        no I/O: the bytes of requests, the responses, API versions, the SASL login
    channel.py           one connection with its socket, an asyncio protocol
    node_connection.py   one broker: connects when needed, backs off after failures, renews logins
    network_client.py    all brokers of a cluster: picks versions, sends requests, obeys throttling
    cluster.py           a snapshot of the cluster, and the metadata that keeps the latest one
    metadata_updater.py  keeps the metadata fresh
    sasl/                the SASL mechanisms, from the client's side
"""
