def reward(batch):
    """Bring the gripper to the goal: every gain is paid, every loss taken back, so that waiting earns nothing.

    frames: any
    """
    distance = np.linalg.norm(batch["goal_from_gripper"], axis=1)
    distance_before = np.linalg.norm(batch["previous_goal_from_gripper"], axis=1)
    approach = 1 / (1 + (distance / 0.1) ** 2) - 1 / (1 + (distance_before / 0.1) ** 2)
    arrive = np.where(distance < 0.02, 1.0, 0.0) - np.where(distance_before < 0.02, 1.0, 0.0)
    effort = -0.001 * np.sum(batch["action"][:, :4] ** 2, axis=1)
    return approach + arrive + effort, {"approach": approach, "arrive": arrive, "effort": effort}
