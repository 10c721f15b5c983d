"""Playback of a policy: window, page, films."""
