"""Chat models: conversations, samples, a log of every call, replay, a budget, and packs of replies made by hand."""
