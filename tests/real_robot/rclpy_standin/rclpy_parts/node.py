import time

from rclpy.bus import Listener, Speaker


class Publisher:
    def __init__(self, msg_type, topic):
        self.msg_type, self.topic, self._speaker = msg_type, topic, Speaker(topic)

    def publish(self, msg):
        if not isinstance(msg, self.msg_type):
            raise TypeError(f"Expected {self.msg_type}, got {type(msg)}")
        self._speaker.say(msg)

    def get_subscription_count(self):
        return len(self._speaker.listeners())


class Subscription:
    def __init__(self, msg_type, topic, callback, depth):
        self.msg_type, self.topic, self.callback, self.listener = msg_type, topic, callback, Listener(topic, depth)


class Timer:
    def __init__(self, period, callback):
        self.period, self.callback, self.due = period, callback, time.monotonic() + period


class Node:
    def __init__(self, node_name, *, context=None, cli_args=None, namespace=None):
        self._name, self.subscriptions_, self.timers_ = node_name, [], []

    def get_name(self):
        return self._name

    def create_publisher(self, msg_type, topic, qos_profile, *, callback_group=None):
        return Publisher(msg_type, topic)

    def create_subscription(self, msg_type, topic, callback, qos_profile, *, callback_group=None, raw=False):
        depth = qos_profile if isinstance(qos_profile, int) else qos_profile.depth
        self.subscriptions_.append(Subscription(msg_type, topic, callback, depth))
        return self.subscriptions_[-1]

    def create_timer(self, timer_period_sec, callback, callback_group=None, clock=None):
        self.timers_.append(Timer(timer_period_sec, callback))
        return self.timers_[-1]

    def destroy_node(self):
        for subscription in self.subscriptions_:
            subscription.listener.close()
        self.subscriptions_.clear()
