"""CPO, constrained policy optimisation: policy gradient with limits on costs."""
