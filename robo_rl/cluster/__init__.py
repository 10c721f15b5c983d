"""Work on many machines by Ray, an extra: nothing here imports Ray before a cluster is asked for.

connection.connected(WHERE) ── Cluster ──▶ worker.Worker: an object of ours in a process on some node, replaced where it dies
                                       └─▶ pool.Pool: many of those, tasks in and results out, in bytes
"""
