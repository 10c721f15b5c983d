class _GoalHandle:
    def __init__(self, request):
        self.request = request

    def succeed(self):
        self.status = 4


class ActionServer:
    def __init__(self, node, action_type, action_name, execute_callback, **_):
        self._callback = execute_callback
        node.create_subscription(action_type.Goal, f"{action_name}/_action/send_goal", self._take, 10)

    def _take(self, goal):
        self._callback(_GoalHandle(goal))


class ActionClient:
    def __init__(self, node, action_type, action_name, **_):
        self._publisher = node.create_publisher(action_type.Goal, f"{action_name}/_action/send_goal", 10)

    def server_is_ready(self):
        return self._publisher.get_subscription_count() > 0

    def send_goal_async(self, goal, feedback_callback=None, goal_uuid=None):
        self._publisher.publish(goal)
