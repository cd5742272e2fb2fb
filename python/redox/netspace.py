"""Several nodes on one machine: a network namespace each, on one bridge; or where that is not allowed, addresses of the
loopback interface.

For the demonstration and for tests. Needs `unshare`, `nsenter` and `ip`, no rights: without root the namespaces are
those of a user namespace. Everything goes with the processes that hold the namespaces.
"""

from __future__ import annotations

import os
import shutil
import subprocess

__all__ = ["Nodes"]

_TIMEOUT_S = 20.0


class Nodes:
    """Nodes that processes can be started on. A context manager.

    Attributes:
        addresses: One for each node.
        isolated: Whether each node has a network of its own.
        why_not: Why not, in words.
    """

    def __init__(self, count: int) -> None:
        self.addresses = [f"127.0.0.{node + 1}" for node in range(count)]
        self.isolated, self.why_not = False, ""
        self._holders: list[subprocess.Popen[bytes]] = []
        try:
            self._isolate(count)
        except (OSError, subprocess.SubprocessError) as error:
            words = getattr(error, "stderr", None) or str(error)
            self.why_not = (words.decode() if isinstance(words, bytes) else words).strip()
            self.close()
            self.addresses = [f"127.0.0.{node + 1}" for node in range(count)]

    def command(self, node: int, command: list[str]) -> list[str]:
        """Return a command so that it runs on a node."""
        return [*self._inside(1 + node), *command] if self.isolated else command

    def close(self) -> None:
        """End the namespaces. Processes that still run in them keep theirs."""
        holders, self._holders, self.isolated = self._holders, [], False
        for holder in holders:
            holder.kill()
        for holder in holders:
            holder.wait()

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _isolate(self, count: int) -> None:
        missing = [tool for tool in ("unshare", "nsenter", "ip") if shutil.which(tool) is None]
        if missing:
            raise OSError(f"{' and '.join(missing)} not found")
        rights = [] if os.getuid() == 0 else ["--user", "--map-root-user"]
        self._hold(["unshare", *rights, "--net"])  # the switch that the nodes hang on
        self._run(0, "ip link add redox type bridge")
        self._run(0, "ip link set redox up")
        for node in range(count):
            self._hold([*self._inside(0), "unshare", "--net"])
            pid = self._holders[-1].pid
            self._run(0, f"ip link add node{node} type veth peer name eth0 netns {pid}")
            self._run(0, f"ip link set node{node} master redox up")
            self.addresses[node] = f"10.83.0.{node + 1}"
            for line in ("link set lo up", f"address add {self.addresses[node]}/24 dev eth0", "link set eth0 up"):
                self._run(1 + node, f"ip {line}")
        self.isolated = True

    def _hold(self, command: list[str]) -> None:
        """Start a process that is there for its namespace, and wait until it has it."""
        holder = subprocess.Popen(
            [*command, "sh", "-c", "echo; exec sleep 3600"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self._holders.append(holder)
        assert holder.stdout is not None
        assert holder.stderr is not None
        if holder.stdout.readline() != b"\n":
            raise OSError(holder.stderr.read().decode().strip() or "unshare failed")

    def _inside(self, holder: int) -> list[str]:
        rights = [] if os.getuid() == 0 else ["--user", "--preserve-credentials"]
        return ["nsenter", "--target", str(self._holders[holder].pid), *rights, "--net"]

    def _run(self, holder: int, line: str) -> None:
        subprocess.run([*self._inside(holder), *line.split()], check=True, capture_output=True, timeout=_TIMEOUT_S)
