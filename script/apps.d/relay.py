"""A relay with a delay: what it reads it sends on DELAY seconds later, each way. Counts the statements that pass it.

    relay.py pg|mysql TARGET_PORT DELAY     prints its port; then, for each line of standard input, its counts as JSON

A process of its own, so that the clients' work does not delay what it forwards. Connections of Freshet's own account are counted apart.
A turn is data of the client behind data of the server: the number of turns is that of the round trips that the client waits for, however long they take.
"""

import collections
import json
import select
import socket
import struct
import sys
import threading
import time

OWN_ACCOUNT = b"freshet"


class Tally:
    """The statements of one connection, found by the frames of the client."""

    def __init__(self, family):
        self.family, self.rest, self.started, self.own = family, b"", False, False

    def count(self, data):
        """The statements that begin and end within what has come by now."""
        self.rest += data
        found = 0
        while (frame := self._frame()) is not None:
            found += frame
        return found

    def _frame(self):
        return self._pg() if self.family == "pg" else self._mysql()

    def _take(self, length):
        if len(self.rest) < length:
            return None
        taken, self.rest = self.rest[:length], self.rest[length:]
        return taken

    def _pg(self):
        kinded = 1 if self.started else 0
        if len(self.rest) < kinded + 4:
            return None
        (length,) = struct.unpack_from(">I", self.rest, kinded)
        frame = self._take(kinded + length)
        if frame is None:
            return None
        if not self.started:
            # A request for TLS or to cancel is no start-up.
            self.started = frame[4:6] == b"\x00\x03"
            self.own |= b"\0user\0" + OWN_ACCOUNT + b"\0" in b"\0" + frame[8:]
            return 0
        return int(frame[:1] in (b"Q", b"E"))

    def _mysql(self):
        if len(self.rest) < 4:
            return None
        frame = self._take(4 + int.from_bytes(self.rest[:3], "little"))
        if frame is None:
            return None
        # The packets of a login follow the server's, so that none of them has the number 0.
        if not self.started:
            self.started = True
            self.own = frame[36:].startswith(OWN_ACCOUNT + b"\0")
        return int(frame[3] == 0 and frame[4:5] in (b"\x03", b"\x17"))


class Turns:
    """How often the client of one connection has sent behind the server; each connection begins with one."""

    def __init__(self):
        self.number, self.answered = 0, True

    def sent(self):
        self.number += self.answered
        self.answered = False


class Relay:
    def __init__(self, family, port, delay):
        self.family, self.port, self.delay = family, port, delay
        self.lock = threading.Lock()
        self.counts = {"sessions": 0, "statements": 0, "own_statements": 0}
        self.last = Turns()  # those of the session that began last

    def told(self):
        with self.lock:
            return self.counts | {"turns": self.last.number}

    def serve(self, listener):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.connection, args=(client,), daemon=True).start()

    def connection(self, client):
        with client:
            try:
                with socket.create_connection(("127.0.0.1", self.port)) as server:
                    self.forward(client, server)
            except OSError:
                pass  # either side is gone, and so is the other

    def forward(self, client, server):
        for end in (client, server):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        tally, due, open_ends, known = Tally(self.family), collections.deque(), [client, server], False
        turns = Turns()
        while open_ends or due:
            wait = max(0.0, due[0][0] - time.monotonic()) if due else None
            ready, _, _ = select.select(open_ends, [], [], wait)
            now = time.monotonic()
            for end in ready:
                data = end.recv(1 << 16)
                due.append((now + self.delay, server if end is client else client, data))
                if not data:
                    open_ends.remove(end)
                elif end is server:
                    turns.answered = True
                else:
                    turns.sent()
                    self.note(tally, data)
                    if tally.started and not known:
                        known = True
                        self.begins(tally, turns)
            while due and due[0][0] <= time.monotonic():
                _, end, data = due.popleft()
                if not data:
                    return
                end.sendall(data)

    def begins(self, tally, turns):
        if not tally.own:
            self.add("sessions", 1)
            self.last = turns

    def note(self, tally, data):
        found = tally.count(data)
        self.add("own_statements" if tally.own else "statements", found)

    def add(self, name, number):
        with self.lock:
            self.counts[name] += number


def main():
    family, port, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    relay = Relay(family, port, delay)
    listener = socket.create_server(("127.0.0.1", 0), backlog=100)
    threading.Thread(target=relay.serve, args=(listener,), daemon=True).start()
    print(listener.getsockname()[1], flush=True)
    for _ in sys.stdin:
        print(json.dumps(relay.told()), flush=True)


if __name__ == "__main__":
    main()
