"""Collectors: processes that act in environments, on this or other machines, for one learner.

Collector ── rollouts or segments, as bytes ──▶ CollectorPool ──▶ synchronous.* or asynchronous.* training, its log, learner
          ◀── requests, versioned parameters ── robo_rl.cluster.workers, with an engine: local processes, or Ray actors
"""
