"""A small image-text model that is trained here, on pictures a simulator drew with sentences known to be true of them."""
