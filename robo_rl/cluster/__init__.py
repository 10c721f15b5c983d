"""Work in other processes, on this or other machines; Ray is imported only when a cluster is used.

workers.Workers: one worker at each place; requests are bytes; workers that die or hang are replaced
    ├─ engines: local.LocalEngine (child processes), local.InProcessEngine, over_ray.RayEngine (actors of a connection.Cluster)
    ├─ host.Host: the other end; creates the object and calls it
    └─ task_pool.TaskPool: workers on a cluster, tasks in and results out
"""
