"""Conformance suites: functions that check whether an implementation of an interface keeps the rules of that interface."""

from robo_rl.conformance.environments import (
    actions_at_the_limits_are_accepted,
    check_environment,
    closing_twice_is_harmless,
    divergence_ends_the_episode,
    episode_replays,
    episodes_end_for_one_reason,
    info_has_right_types,
    observations_are_not_shared,
    observations_match_spec,
    reset_depends_on_seed_alone,
    rewards_are_finite_numbers,
    spaces_derive_from_spec,
    specs_of_two_instances_agree,
    wrong_actions_are_refused,
)

__all__ = [
    "actions_at_the_limits_are_accepted",
    "check_environment",
    "closing_twice_is_harmless",
    "divergence_ends_the_episode",
    "episode_replays",
    "episodes_end_for_one_reason",
    "info_has_right_types",
    "observations_are_not_shared",
    "observations_match_spec",
    "reset_depends_on_seed_alone",
    "rewards_are_finite_numbers",
    "spaces_derive_from_spec",
    "specs_of_two_instances_agree",
    "wrong_actions_are_refused",
]
