"""The machine: threads, files, processes, logs, databases, HTTP."""
