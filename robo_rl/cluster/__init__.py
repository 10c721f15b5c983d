"""Work in other processes, here or on many machines: Ray is imported only when a cluster is used.

workers.Workers: one at each place; requests are bytes; replaced if one dies or hangs
    ├─ engines: local.LocalEngine (child processes), local.InProcessEngine, over_ray.RayEngine (actors of a connection.Cluster)
    ├─ host.Host: the other end; creates the object and calls it
    └─ task_pool.TaskPool: many of those on a cluster, tasks in and results out
"""
