"""Pages of this machine in a browser: their server and the frame of HTML that they share."""
