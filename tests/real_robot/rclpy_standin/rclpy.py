"""Stand-in of rclpy, as far as the driver ros2 and the nodes of its tests use it; names, arguments and defaults are rclpy's.

Messages of one topic go through datagram sockets in the folder ROS_STANDIN_BUS, from any process to any: a full queue drops
messages, as best-effort QoS does, and a dead process is heard no more.
"""

import os
from pathlib import Path

__path__ = [str(Path(__file__).with_name("rclpy_parts"))]  # the tests are no packages

_is_ok = False


def init(*, args=None, context=None, domain_id=None, signal_handler_options=None):
    global _is_ok  # noqa: PLW0603
    if _is_ok:
        raise RuntimeError("Context.init() must only be called once")
    if not os.environ.get("ROS_STANDIN_BUS"):
        raise RuntimeError("rcl node's rmw handle is invalid: ROS_STANDIN_BUS names no folder")
    _is_ok = True


def ok(*, context=None):
    return _is_ok


def shutdown(*, context=None, uninstall_handlers=None):
    global _is_ok  # noqa: PLW0603
    if not _is_ok:
        raise RuntimeError("rcl_shutdown already called on the given context")
    _is_ok = False


def try_shutdown(*, context=None, uninstall_handlers=None):
    if _is_ok:
        shutdown()


def create_node(node_name, *, context=None, cli_args=None, namespace=None):
    from rclpy.node import Node

    return Node(node_name)


def spin(node, executor=None):
    from rclpy.executors import SingleThreadedExecutor

    executor = executor or SingleThreadedExecutor()
    executor.add_node(node)
    executor.spin()
