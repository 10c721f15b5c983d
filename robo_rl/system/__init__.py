"""Services of the machine: threads, files, processes, logs, databases, HTTP."""
