"""Collectors: processes that act in environments, here or on other machines, for one learner.

worker.Collector ── rollouts or segments, as bytes ──▶ crew.Crew ──▶ synchronous.* or asynchronous.* training, its log, learner
                 ◀── requests, versioned parameters ── engine: local.LocalEngine, or one over a cluster
"""
