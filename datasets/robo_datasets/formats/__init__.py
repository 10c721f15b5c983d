"""Foreign dataset formats: one file each, found through the entry points `robo_rl.formats`."""
