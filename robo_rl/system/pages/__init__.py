"""Web pages of this machine: their server, and the HTML frame that they share."""
