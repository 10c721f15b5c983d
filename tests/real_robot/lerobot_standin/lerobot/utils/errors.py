"""Stand-in for lerobot.utils.errors 0.4.4."""


class DeviceNotConnectedError(ConnectionError): ...


class DeviceAlreadyConnectedError(ConnectionError): ...
