"""Work in other processes, here or on many machines: nothing here imports Ray before a cluster is asked for.

workers.Workers: one at each place, asked in bytes, replaced if it dies or hangs
    ├─ engines: local.LocalEngine (child processes), local.InProcessEngine, over_ray.RayEngine (actors of a connection.Cluster)
    ├─ host.Host: the other end, which makes the object and calls it
    └─ pool.Pool: many of those on a cluster, tasks in and results out
"""
