"""SRPO: refines a clone by success; failures may be worth as much as they resemble successes."""
