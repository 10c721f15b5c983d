"""Talk to a language model: conversations, samples, a log of every call, replay, budget, and packs of replies made by hand."""
