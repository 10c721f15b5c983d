def reward(batch):
    """Go to the cube, close the fingers on it, lift it: every gain is paid, every loss taken back."""
    to_cube = np.linalg.norm(batch["object_from_gripper"], axis=1)
    to_cube_before = np.linalg.norm(batch["previous_object_from_gripper"], axis=1)
    approach = 1 / (1 + (to_cube / 0.1) ** 2) - 1 / (1 + (to_cube_before / 0.1) ** 2)
    # The cube is 5 cm wide: fingers that far apart around its middle hold it.
    holds = (to_cube < 0.03) & (np.abs(batch["gripper_opening"][:, 0] - 0.05) < 0.003)
    held = (to_cube_before < 0.03) & (np.abs(batch["previous_gripper_opening"][:, 0] - 0.05) < 0.003)
    grasp = np.where(holds, 0.5, 0.0) - np.where(held, 0.5, 0.0)
    height = np.clip((batch["object_position"][:, 2] - 0.025) / 0.1, 0.0, 1.0)
    height_before = np.clip((batch["previous_object_position"][:, 2] - 0.025) / 0.1, 0.0, 1.0)
    lift = np.where(holds, 2 * height, 0.0) - np.where(held, 2 * height_before, 0.0)
    return approach + grasp + lift, {"approach": approach, "grasp": grasp, "lift": lift}
