"""Names and purposes of components, known without importing them."""
