def reward(batch):
    """Reward of the task `ArmPush`: the gripper goes to the cube, then pushes the cube onto the mark.

    Every gain of progress is paid and every loss taken back, so that waiting earns nothing.
    """
    to_cube = np.linalg.norm(batch["object_from_gripper"], axis=1)
    to_cube_before = np.linalg.norm(batch["previous_object_from_gripper"], axis=1)
    approach = 1 / (1 + (to_cube / 0.1) ** 2) - 1 / (1 + (to_cube_before / 0.1) ** 2)
    to_mark = np.linalg.norm(batch["goal_from_object"], axis=1)
    to_mark_before = np.linalg.norm(batch["previous_goal_from_object"], axis=1)
    push = 2 / (1 + (to_mark / 0.1) ** 2) - 2 / (1 + (to_mark_before / 0.1) ** 2)
    arrive = np.where(to_mark < 0.03, 1.0, 0.0) - np.where(to_mark_before < 0.03, 1.0, 0.0)
    return approach + push + arrive, {"approach": approach, "push": push, "arrive": arrive}
