"""Push and pull runs and datasets: to folders, object stores, the Hugging Face hub."""
