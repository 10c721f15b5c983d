import select
import time

import rclpy


class ExternalShutdownException(Exception):
    """Context has been shutdown."""


class SingleThreadedExecutor:
    def __init__(self, *, context=None):
        self._nodes, self._is_shutdown = [], False

    def add_node(self, node):
        self._nodes.append(node)
        return True

    def spin(self):
        while rclpy.ok() and not self._is_shutdown:
            self.spin_once(0.05)
        if not rclpy.ok():
            raise ExternalShutdownException

    def spin_once(self, timeout_sec=None):
        timers = [timer for node in self._nodes for timer in node.timers_]
        now = time.monotonic()
        wait = min([0.05 if timeout_sec is None else timeout_sec, *(max(timer.due - now, 0.0) for timer in timers)])
        subscriptions = {each.listener.socket: each for node in self._nodes for each in node.subscriptions_}
        for ready in select.select([*subscriptions], [], [], wait)[0]:
            for message in subscriptions[ready].listener.take():
                subscriptions[ready].callback(message)
        for timer in timers:
            if time.monotonic() >= timer.due:
                timer.due = max(timer.due + timer.period, time.monotonic())
                timer.callback()

    def shutdown(self, timeout_sec=None):
        self._is_shutdown = True
        return True
