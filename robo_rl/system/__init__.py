"""Services of the operating system for the other packages: threads, files, processes, logs, databases, HTTP."""
