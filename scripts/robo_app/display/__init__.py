"""Progress bars, tables and curves of running and finished work."""
