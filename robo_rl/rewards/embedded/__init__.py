"""A small image-text model that is trained here, on simulated pictures with sentences that are known to be true of them."""
